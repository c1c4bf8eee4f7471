"""Images in class folders, perhaps under a folder for each split."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageFile, UnidentifiedImageError

from deformrs.data import imagenet
from deformrs.data.base import ImageSet, Wanted, one_line
from deformrs.data.labels import (
    BY_IMAGENET_NAME,
    BY_ORDER,
    BY_WNID,
    BY_WORDS,
    check_labels,
    number_folders,
    number_words,
    own_words,
    unknown_class,
)
from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import InputError

SUFFIXES = (
    *(".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)

# Named, because Pillow would hand what looks like PostScript to an interpreter.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


@dataclass(frozen=True, eq=False, repr=False)
class FileSet(ImageSet):
    """Image files under one folder, named relative to it with forward slashes."""

    folder: Path
    files: tuple[str, ...]

    def source(self, index: int) -> str:
        return one_line(self.files[index])

    def _prepared(self, index: int) -> Pixels:
        return load_image(self.folder / self.files[index], self.preparation)


def load_image(path: Path, preparation: Preparation) -> Pixels:
    """The image in that file, prepared: [c, h, w] in [0, 1].

    Guarantee: a file that breaks off before its end raises; nothing is filled in for the rest.
    """
    name = f"the image {one_line(str(path))}"
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise InputError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES",
            True,
            "must be False, or images that are cut off would be filled up in grey",
            "do not set it in your code, nor use a package that does",
        )
    try:
        image = _decoded(path)
    # A damaged file makes Pillow fail in many ways: struct.error, IndexError, SyntaxError, ...
    except Exception as error:
        raise InputError(
            name,
            _reason(error),
            "must be a whole image",
            "replace the file, or leave it out",
        ) from error
    try:
        return preparation.prepare(image)
    except InputError as error:
        raise InputError(name, error.value, error.rule, error.remedy) from None


def _decoded(path: Path) -> Image.Image:
    data = path.read_bytes()
    if not data:
        raise EOFError("it has no bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        # Many cameras write EXIF data that breaks off; what can be read of it is used.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")
        with Image.open(BytesIO(data), formats=_FORMATS) as image:
            image.load()
            image.getexif()  # so that it fails here if it cannot be read at all
            if image.format in ("JPEG", "MPO") and not _has_end(data):
                raise EOFError("a JPEG without its end")
    return image


def _has_end(jpeg: bytes) -> bool:
    """Does the marker of the end follow the pixels?

    Where a copy broke off and left zeros behind, the decoder takes them for pixels. Segments
    before the pixels are stepped over: a thumbnail in them has an end of its own.
    """
    place = 2
    while jpeg[place : place + 2] != b"\xff\xda":
        if place + 4 > len(jpeg):
            return False
        if jpeg[place] != 0xFF or jpeg[place + 1] in (0xFF, 0x01):
            place += 1  # filling between segments
        else:
            place += 2 + int.from_bytes(jpeg[place + 2 : place + 4])
    return b"\xff\xd9" in jpeg[place:]


def _reason(error: Exception) -> str:
    match error:
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            return f"of more than {Image.MAX_IMAGE_PIXELS:,} pixels"
        case FileNotFoundError():
            return "missing"
        case PermissionError():
            return "closed to you (permission denied)"
        case IsADirectoryError():
            return "a folder"
        case UnidentifiedImageError():
            return "none that is known (" + ", ".join(_FORMATS) + ")"
        case _:
            return f"damaged ({one_line(str(error)) or type(error).__name__})"


LABELS = "labels.csv"
HEADER = ["file", "label"]


@dataclass(frozen=True)
class Listed:
    """Files and labels in the order of the list, and the rule that gave the labels.

    `class_names` are those that the list itself brings, None where it brings none.
    """

    files: tuple[str, ...]
    labels: tuple[int, ...]
    rule: str
    class_names: tuple[str, ...] | None


def read_list(folder: Path, wanted: Wanted) -> Listed:
    """The list in that folder.

    A label is an integer, a class name of the model, or a WordNet id or a class name of
    ImageNet; all labels of a list are of one kind. To train a model whose classes are not known
    yet, words of one's own will do: they are numbered in sorted order.
    """
    rows = _rows(folder / LABELS)
    lines: dict[str, int] = {}
    for line, file, _ in rows:
        path = _inside(folder, file, f"the file on line {line} of {LABELS}")
        if path in lines:
            raise InputError(
                f"the file on line {line} of {LABELS}",
                repr(file),
                f"must be listed once, but is on line {lines[path]} too",
                "remove one of the two",
            )
        lines[path] = line
    words = list(dict.fromkeys(word for _, _, word in rows))
    numbers, rule = number_words(words, wanted.class_names, wanted.num_classes)
    own = None
    if rule is None and wanted.split == "train" and wanted.num_classes is None:
        own = own_words(words)
    if own is not None:
        numbers, rule = {word: number for number, word in enumerate(own)}, BY_WORDS
    if rule is None:
        line, word = next((line, word) for line, _, word in rows if word not in numbers)
        what = f"the label on line {line} of {LABELS}"
        raise unknown_class(what, word, numbers, wanted.class_names)
    labels = tuple(numbers[word] for _, _, word in rows)
    return Listed(tuple(lines), labels, f"{LABELS}: {rule}", own)


def _rows(path: Path) -> list[tuple[int, str, str]]:
    """Line number, file and label."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            one_line(str(path)),
            f"not readable ({one_line(str(error))})",
            "must be a text of lines file,label in UTF-8",
            "save it as CSV",
        ) from None
    if [cell.strip() for cell in header] != HEADER:
        raise InputError(
            f"line 1 of {one_line(str(path))}",
            repr(",".join(header)),
            "must be the header file,label",
            "write it above the list",
        )
    for line, row in rows:
        if len(row) != len(HEADER):
            raise InputError(
                f"line {line} of {LABELS}",
                f"of {len(row)} value{'s' * (len(row) != 1)}",
                "must be a file and its label",
                "put quotes around a name that has commas",
            )
    if not rows:
        raise InputError(one_line(str(path)), "empty", "must list images", "add one a line")
    return [(line, file, label.strip()) for line, (file, label) in rows]


def _inside(folder: Path, file: str, what: str) -> str:
    """The file's path relative to the folder, in which it must lie."""
    path = Path(os.path.normpath(file))
    if not file.strip() or path.is_absolute() or path.drive or ".." in path.parts:
        raise InputError(
            what,
            repr(file),
            "must be the name of a file in that folder or below",
            f"give it relative to the folder of {LABELS}",
        )
    try:
        there = (folder / path).is_file()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if not there:
        raise InputError(what, repr(file), "must be there", "add the file, or remove the line")
    return path.as_posix()


_SPLITS = {"test": ("test", "val", "validation"), "train": ("train",)}
_PUBLISHED = ("digits", "mnist", "cifar10", "imagenet")


def load_folder(folder: Path, wanted: Wanted) -> FileSet:
    """The set in that folder: listed in labels.csv, or sorted into class folders."""
    if (folder / LABELS).is_file():
        listed = read_list(folder, wanted)
        names = listed.class_names or wanted.class_names
        return _file_set(folder, wanted, listed.files, listed.labels, listed.rule, names)
    folders, images = _contents(folder)
    splits = [name for names in _SPLITS.values() for name in names]
    if folders and not images and set(folders) <= set(splits):
        return _load_split(folder, folders, wanted)
    both = [any(name in folders for name in names) for names in _SPLITS.values()]
    if all(both):
        raise InputError(
            f"the folder {one_line(str(folder))}",
            f"split, with {sorted(set(folders) - set(splits))[:3] or images[:3]} beside",
            "must hold nothing but " + ", ".join(splits) + " where there are two of these",
            "move the rest elsewhere, or name the folder to be used itself",
        )
    if folders and images:
        raise InputError(
            f"the image {one_line(str(folder / images[0]))}",
            "beside the class folders",
            "must lie in one of them to have a label",
            f"move it, or list all images in a {LABELS}",
        )
    if not folders:
        raise _no_labels(folder, images)
    return _load_classes(folder, folders, wanted)


def _load_split(folder: Path, folders: list[str], wanted: Wanted) -> FileSet:
    chosen = [name for name in _SPLITS[wanted.split] if name in folders]
    if not chosen:
        raise InputError(
            f"the folder {one_line(str(folder))}",
            "split into " + ", ".join(folders),
            "must hold " + " or ".join(_SPLITS[wanted.split]),
            "name the folder to be used itself",
        )
    found = load_folder(folder / chosen[0], wanted)
    name = found.name if found.name == "imagenet" else _name(folder)
    about = found.about | {"name": name, "split": wanted.split, "folder": chosen[0]}
    return dataclasses.replace(found, name=name, about=about)


def _load_classes(folder: Path, folders: list[str], wanted: Wanted) -> FileSet:
    numbers, rule = number_folders(folders, wanted.class_names, wanted.num_classes)
    files: list[str] = []
    labels: list[int] = []
    for name in folders:
        inside = sorted(_images_below(folder / name, (name,), ()))
        files += ["/".join(parts) for parts in inside]
        labels += [numbers[name]] * len(inside)
    if not files:
        raise InputError(
            f"the folder {one_line(str(folder))}",
            "without an image",
            "must hold images in its class folders",
            "images end in " + ", ".join(SUFFIXES),
        )
    names = tuple(folders) if rule == BY_ORDER else wanted.class_names
    return _file_set(folder, wanted, tuple(files), tuple(labels), rule, names)


def _file_set(
    folder: Path,
    wanted: Wanted,
    files: tuple[str, ...],
    labels: tuple[int, ...],
    rule: str,
    class_names: tuple[str, ...] | None,
) -> FileSet:
    check_labels(labels, wanted.num_classes, lambda index: one_line(str(folder / files[index])))
    official = all(imagenet.is_validation_file(Path(file).name) for file in files)
    in_order = wanted.num_classes in (None, imagenet.COUNT) and max(labels) < imagenet.COUNT
    sorted_names = rule.endswith((BY_ORDER, BY_WORDS))
    is_imagenet = rule == BY_WNID or (official and in_order and not sorted_names)
    name = "imagenet" if is_imagenet else _name(folder)
    digest = hashlib.sha256()
    for file, label in zip(files, labels, strict=True):
        digest.update(os.fsencode(file) + f"\0{label}\0".encode())
    about = wanted.about(name, None, len(files), digest.hexdigest(), rule)
    if class_names is None and (is_imagenet or rule.endswith((BY_WNID, BY_IMAGENET_NAME))):
        class_names = imagenet.class_names()
    return FileSet(name, class_names, labels, about, wanted.preparation, folder, files)


def _name(folder: Path) -> str:
    """The folder's name, but not one that promises a published set."""
    name = one_line(folder.resolve().name)
    return f"{name} (folder)" if name in _PUBLISHED else name


def _contents(folder: Path) -> tuple[list[str], list[str]]:
    """The folders and the images directly in a folder, both sorted; hidden ones are not seen."""
    folders, images = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.name.lower().endswith(SUFFIXES):
                    images.append(entry.name)
    except OSError as error:
        raise InputError(
            f"the folder {one_line(str(folder))}",
            f"not readable ({error.strerror})",
            "must be open to you",
            "change its permissions",
        ) from None
    return sorted(folders), sorted(images)


def _images_below(
    folder: Path, parts: tuple[str, ...], above: tuple[Path, ...]
) -> Iterator[tuple[str, ...]]:
    """The images in a class folder and in the folders below it, as parts of their paths."""
    real = folder.resolve()
    if real in above:
        raise InputError(
            f"the folder {one_line(str(folder))}",
            "a link to a folder above it",
            "must not lead in a circle",
            "remove the link",
        )
    folders, images = _contents(folder)
    yield from ((*parts, name) for name in images)
    for name in folders:
        yield from _images_below(folder / name, (*parts, name), (*above, real))


def _no_labels(folder: Path, images: list[str]) -> InputError:
    what = f"the folder {one_line(str(folder))}"
    if not images:
        return InputError(
            what,
            "without images and class folders",
            f"must hold class folders, or images and a {LABELS}",
            "check the path",
        )
    if all(imagenet.is_validation_file(name) for name in images):
        return InputError(
            what,
            "ImageNet's validation images without their labels",
            "must say which class each image is of",
            f"sort them into folders called by WordNet id (n01440764), or add a {LABELS} with the"
            " header file,label",
        )
    return InputError(
        what,
        f"without labels for its {len(images)} image{'s' * (len(images) > 1)}",
        "must say which class each image is of",
        f"sort them into one folder a class, or add a {LABELS} with the header file,label",
    )
