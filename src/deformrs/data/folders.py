"""Image files in class folders or listed in a labels.csv."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from threading import Lock

from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from deformrs.data.image_set import DataRequest, ImageSet
from deformrs.data.labels import (
    BY_FOLDER_ORDER,
    BY_IMAGENET_NAME,
    BY_WNID,
    BY_WORD_ORDER,
    IMAGENET_COUNT,
    ClassIndices,
    check_labels,
    imagenet_names,
    label_folders,
    label_words,
    own_classes,
    unknown_class,
)
from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import InputError, printable
from deformrs.limits import IMAGE_BYTES, MAX_IMAGES, TABLE_BYTES, open_file, read_file, read_text
from deformrs.units import Size

LABELS = "labels.csv"
SUFFIXES = (
    *(".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)

_HEADER = ["file", "label"]
_SPLITS = {"test": ("test", "val", "validation"), "train": ("train",)}
_PUBLISHED = ("digits", "mnist", "cifar10", "imagenet")
_IMAGENET_FILE = re.compile(r"ILSVRC2012_val_[0-9]{8}\.JPEG", re.IGNORECASE)
_LIMIT = Lock()

# Listed, because Pillow would pass what looks like PostScript to an interpreter.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


@dataclass(frozen=True, eq=False, repr=False)
class ImageFolder(ImageSet):
    """Image files below one folder, named relative to it with forward slashes."""

    folder: Path
    files: tuple[str, ...]

    @property
    def reads_files(self) -> bool:
        return True

    def source(self, index: int) -> str:
        return printable(self.files[index])

    def _load(self, index: int) -> Pixels:
        return load_image(self.folder / self.files[index], self.preparation)


def load_folder(folder: Path, request: DataRequest) -> ImageFolder:
    """Load a folder with a labels.csv, with class folders, or with a folder for each split."""
    if (folder / LABELS).is_file():
        return _load_listed(folder, request)
    folders, images = _list(folder)
    splits = [name for names in _SPLITS.values() for name in names]
    if folders and not images and set(folders) <= set(splits):
        return _load_split(folder, folders, request)
    what = f"the folder {folder}"
    if all(any(name in folders for name in names) for names in _SPLITS.values()):
        others = sorted(set(folders) - set(splits)) or images
        raise InputError(
            what,
            f"split, but also has {others[:3]}",
            "must hold nothing but " + ", ".join(splits) + " if it has two of these",
            "move the rest elsewhere, or give the folder of one split",
        )
    if folders and images:
        raise InputError(
            f"the image {folder / images[0]}",
            "beside the class folders",
            "must lie in one of them to have a label",
            f"move it, or list all images in a {LABELS}",
        )
    if images:
        raise InputError(
            what,
            f"without labels for its {len(images)} image{'s' * (len(images) > 1)}",
            "must say which class each image is of",
            "sort them into one folder per class (for ImageNet named by WordNet id, as n01440764), "
            f"or add a {LABELS} with the header file,label",
        )
    if not folders:
        raise InputError(
            what,
            "without images and class folders",
            f"must hold class folders, or images and a {LABELS}",
            "check the path",
        )
    return _load_classes(folder, folders, request)


def _load_split(folder: Path, folders: list[str], request: DataRequest) -> ImageFolder:
    chosen = next((name for name in _SPLITS[request.split] if name in folders), None)
    if chosen is None:
        raise InputError(
            f"the folder {folder}",
            "split into " + ", ".join(folders),
            "must hold " + " or ".join(_SPLITS[request.split]),
            "give the folder to be used itself",
        )
    images = load_folder(folder / chosen, request)
    name = images.name if images.name == "imagenet" else _dataset_name(folder)
    about = images.about | {"name": name, "split": request.split, "folder": chosen}
    return dataclasses.replace(images, name=name, about=about)


def _load_classes(folder: Path, folders: list[str], request: DataRequest) -> ImageFolder:
    indices, rule = label_folders(folders, request.class_names, request.num_classes)
    files: list[str] = []
    labels: list[int] = []
    for name in folders:
        below = sorted(_images_below(folder / name, (name,), ()))
        files += ["/".join(parts) for parts in below]
        labels += [indices[name]] * len(below)
    if not files:
        raise InputError(
            f"the folder {folder}",
            "without an image",
            "must hold images in its class folders",
            "images end in " + ", ".join(SUFFIXES),
        )
    class_names = tuple(folders) if rule == BY_FOLDER_ORDER else request.class_names
    return _image_folder(folder, request, files, labels, rule, indices, class_names)


def _load_listed(folder: Path, request: DataRequest) -> ImageFolder:
    """Load the images that labels.csv lists, in its order.

    A label is an integer, a class name of the model, or a WordNet id or a class name of ImageNet;
    all labels of a list are of one kind. To train a new model, other words will do: sorted, they
    are its classes.
    """
    rows = _read_rows(folder / LABELS)
    lines: dict[str, int] = {}
    for line, file, _ in rows:
        path = _listed_file(folder, file, f"the file on line {line} of {LABELS}")
        if path in lines:
            raise InputError(
                f"the file on line {line} of {LABELS}",
                repr(file),
                f"must be listed once, but is on line {lines[path]} too",
                "remove one of the two",
            )
        lines[path] = line
    words = list(dict.fromkeys(word for _, _, word in rows))
    class_names = request.class_names
    indices, rule = label_words(words, class_names, request.num_classes)
    if rule is None:
        trains = request.split == "train" and request.num_classes is None
        class_names = own_classes(words) if trains else None
        if class_names is None:
            line, word = next((line, word) for line, _, word in rows if word not in indices)
            what = f"the label on line {line} of {LABELS}"
            names, number = request.class_names, request.num_classes
            raise unknown_class(what, word, indices, names, number)
        indices, rule = {word: index for index, word in enumerate(class_names)}, BY_WORD_ORDER
    labels = [indices[word] for _, _, word in rows]
    rule = f"{LABELS}: {rule}"
    return _image_folder(folder, request, list(lines), labels, rule, indices, class_names)


def _read_rows(path: Path) -> list[tuple[int, str, str]]:
    """Return the line number, file and label of each row."""
    name = str(path)
    try:
        text = read_text(path, TABLE_BYTES, encoding="utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
        header = next(reader, [])
        filled = ((reader.line_num, row) for row in reader if row)
        rows = list(islice(filled, MAX_IMAGES + 1))
    except InputError:
        raise
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            name,
            f"not readable ({error})",
            "must be a text of lines file,label in UTF-8",
            "save it as CSV",
        ) from None
    if [cell.strip() for cell in header] != _HEADER:
        raise InputError(
            f"line 1 of {name}",
            repr(",".join(header)),
            "must be the header file,label",
            "write it above the list",
        )
    for line, row in rows:
        if len(row) != len(_HEADER):
            raise InputError(
                f"line {line} of {LABELS}",
                f"of {len(row)} value{'s' * (len(row) != 1)}",
                "must be a file and its label",
                "put quotes around a name that has commas",
            )
    if not rows:
        raise InputError(name, "empty", "must list images", "add one per line")
    if len(rows) > MAX_IMAGES:
        rule = f"must list at most {MAX_IMAGES:,} images"
        raise InputError(name, "longer than that", rule, "split it")
    return [(line, file, label.strip()) for line, (file, label) in rows]


def _listed_file(folder: Path, file: str, what: str) -> str:
    """Return the path of a listed file relative to the folder, below which it must lie."""
    path = Path(os.path.normpath(file))
    if not file.strip() or path.is_absolute() or path.drive or ".." in path.parts:
        raise InputError(
            what,
            repr(file),
            "must be the name of a file in that folder or below",
            f"give it relative to the folder of {LABELS}",
        )
    try:
        exists = (folder / path).is_file()
    except (OSError, ValueError):  # a name that no file can have
        exists = False
    if not exists:
        raise InputError(what, repr(file), "must be there", "add the file, or remove the line")
    return path.as_posix()


def _image_folder(
    folder: Path,
    request: DataRequest,
    files: list[str],
    labels: list[int],
    rule: str,
    indices: ClassIndices,
    class_names: tuple[str, ...] | None,
) -> ImageFolder:
    named = request.class_names is not None
    check_labels(labels, request.num_classes, lambda index: str(folder / files[index]), named=named)
    official = all(_IMAGENET_FILE.fullmatch(file.rpartition("/")[2]) for file in files)
    fits = request.num_classes in (None, IMAGENET_COUNT) and max(labels) < IMAGENET_COUNT
    own = rule.endswith((BY_FOLDER_ORDER, BY_WORD_ORDER))
    is_imagenet = rule == BY_WNID or (official and fits and not own)
    if class_names is None and (is_imagenet or rule.endswith((BY_WNID, BY_IMAGENET_NAME))):
        class_names = imagenet_names()
    name = "imagenet" if is_imagenet else _dataset_name(folder)
    digest = hashlib.sha256()
    for file, label in zip(files, labels, strict=True):
        digest.update(os.fsencode(file) + f"\0{label}\0".encode())
    about = request.about(name, None, len(files), digest.hexdigest(), rule)
    return ImageFolder(
        name,
        class_names,
        tuple(labels),
        about,
        request.preparation,
        folder,
        tuple(files),
        class_indices=indices,
    )


def _dataset_name(folder: Path) -> str:
    """Return the folder's name, marked if it could be taken for a published dataset."""
    name = printable(folder.resolve().name)
    return f"{name} (folder)" if name in _PUBLISHED else name


def _list(folder: Path) -> tuple[list[str], list[str]]:
    """Return the folders and the images directly in a folder, sorted, without hidden ones."""
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
            f"the folder {folder}",
            f"not readable ({error.strerror})",
            "must be readable",
            "check permissions",
        ) from None
    return sorted(folders), sorted(images)


def _images_below(
    folder: Path, parts: tuple[str, ...], parents: tuple[Path, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the images in a class folder and below it, as parts of their paths."""
    real = folder.resolve()
    if real in parents:
        raise InputError(
            f"the folder {folder}",
            "a link to a folder above it",
            "must not lead in a circle",
            "remove the link",
        )
    folders, images = _list(folder)
    yield from ((*parts, name) for name in images)
    for name in folders:
        yield from _images_below(folder / name, (*parts, name), (*parents, real))


def load_image(path: Path, preparation: Preparation) -> Pixels:
    """Load an image file and prepare it: [c, h, w] in [0, 1].

    Guarantee: a file that is cut off before its end raises; nothing is filled in for the rest.
    """
    name = f"the image {path}"
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise InputError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES",
            True,
            "must be False, or images that are cut off would be filled up with grey",
            "do not set it in your code, nor use a package that does",
        )
    try:
        image = _decode(path, preparation.max_pixels)
    except InputError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InputError(
            name,
            f"of more than {preparation.max_pixels:,} pixels",
            "must have no more, as they could fill the memory",
            "make it smaller; or, if you trust it, pass --max-pixels N (in Python "
            "Preparation(max_pixels=N))",
        ) from None
    # A damaged file makes Pillow fail in many ways: struct.error, IndexError, SyntaxError, ...
    except Exception as error:
        raise InputError(
            name, _reason(error), "must be a complete image", "replace the file, or leave it out"
        ) from error
    try:
        return preparation.prepare(image)
    except InputError as error:
        raise InputError(name, error.value, error.rule, error.remedy) from None


def is_image_file(path: Path) -> bool:
    """Return whether a file is an image, by its suffix or else by its content."""
    if path.suffix.lower() in SUFFIXES or not path.is_file():
        return path.suffix.lower() in SUFFIXES
    try:
        stored_size(path)
    except UnidentifiedImageError:
        return False
    return True


def stored_size(path: Path) -> Size:
    """Return the size of the image in a file, turned upright by its EXIF data. Decodes no pixels.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Image.new("L", (640, 480)).save(Path(folder, "photo.png"))
    ...     stored_size(Path(folder, "photo.png"))
    (480, 640)
    """
    with _pillow_limit(None), open_file(path) as file, Image.open(file, formats=_FORMATS) as image:
        width, height = image.size
        on_its_side = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
    return (width, height) if on_its_side else (height, width)


def _decode(path: Path, max_pixels: int) -> Image.Image:
    data = read_file(path, IMAGE_BYTES)
    if not data:
        raise EOFError("it has no bytes")
    with _pillow_limit(max_pixels), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        # Many cameras write EXIF data that is cut off; what can be read of it is used.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")
        with Image.open(BytesIO(data), formats=_FORMATS) as image:
            image.load()
            image.getexif()  # fails here if it cannot be read at all
            if image.format in ("JPEG", "MPO") and not _has_end_marker(data):
                raise EOFError("a JPEG without its end")
    return image


@contextmanager
def _pillow_limit(max_pixels: int | None) -> Iterator[None]:
    """Give Pillow this limit, and afterwards again the one that the process had set."""
    with _LIMIT:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, max_pixels
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _has_end_marker(jpeg: bytes) -> bool:
    """Return whether the end marker follows the pixels of a JPEG.

    If a copy was cut off and padded with zeros, the decoder takes them for pixels. The segments
    before the pixels are skipped: a thumbnail in them has an end marker of its own.
    """
    position = 2
    while jpeg[position : position + 2] != b"\xff\xda":
        if position + 4 > len(jpeg):
            return False
        if jpeg[position] != 0xFF or jpeg[position + 1] in (0xFF, 0x01):
            position += 1  # padding between segments
        else:
            position += 2 + int.from_bytes(jpeg[position + 2 : position + 4])
    return b"\xff\xd9" in jpeg[position:]


def _reason(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "missing"
        case PermissionError():
            return "not readable (permission denied)"
        case IsADirectoryError():
            return "a folder"
        case UnidentifiedImageError():
            return "of no known format (" + ", ".join(_FORMATS) + ")"
        case _:
            return f"damaged ({str(error) or type(error).__name__})"
