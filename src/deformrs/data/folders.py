"""Pictures in class folders, perhaps under a folder for each split."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from deformrs.data import imagenet
from deformrs.data.base import Wanted, one_line
from deformrs.data.labels import (
    BY_IMAGENET_NAME,
    BY_ORDER,
    BY_WNID,
    BY_WORDS,
    check_labels,
    number_folders,
)
from deformrs.data.listed import LABELS, read_list
from deformrs.data.pictures import SUFFIXES, FileSet
from deformrs.errors import InputError

_SPLITS = {"test": ("test", "val", "validation"), "train": ("train",)}
_PUBLISHED = ("digits", "mnist", "cifar10", "imagenet")


def load_folder(folder: Path, wanted: Wanted) -> FileSet:
    """The set in that folder: listed in labels.csv, or sorted into class folders."""
    if (folder / LABELS).is_file():
        listed = read_list(folder, wanted)
        names = listed.class_names or wanted.class_names
        return _file_set(folder, wanted, listed.files, listed.labels, listed.rule, names)
    folders, pictures = _contents(folder)
    splits = [name for names in _SPLITS.values() for name in names]
    if folders and not pictures and set(folders) <= set(splits):
        return _load_split(folder, folders, wanted)
    both = [any(name in folders for name in names) for names in _SPLITS.values()]
    if all(both):
        raise InputError(
            f"the folder {one_line(str(folder))}",
            f"split, with {sorted(set(folders) - set(splits))[:3] or pictures[:3]} beside",
            "must hold nothing but " + ", ".join(splits) + " where there are two of these",
            "move the rest elsewhere, or name the folder to be used itself",
        )
    if folders and pictures:
        raise InputError(
            f"the picture {one_line(str(folder / pictures[0]))}",
            "beside the class folders",
            "must lie in one of them to have a label",
            f"move it, or list all pictures in a {LABELS}",
        )
    if not folders:
        raise _no_labels(folder, pictures)
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
        inside = sorted(_pictures_below(folder / name, (name,), ()))
        files += ["/".join(parts) for parts in inside]
        labels += [numbers[name]] * len(inside)
    if not files:
        raise InputError(
            f"the folder {one_line(str(folder))}",
            "without a picture",
            "must hold pictures in its class folders",
            "pictures end in " + ", ".join(SUFFIXES),
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
    """The folders and the pictures directly in a folder, both sorted; hidden ones are not seen."""
    folders, pictures = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.name.lower().endswith(SUFFIXES):
                    pictures.append(entry.name)
    except OSError as error:
        raise InputError(
            f"the folder {one_line(str(folder))}",
            f"not readable ({error.strerror})",
            "must be open to you",
            "change its permissions",
        ) from None
    return sorted(folders), sorted(pictures)


def _pictures_below(
    folder: Path, parts: tuple[str, ...], above: tuple[Path, ...]
) -> Iterator[tuple[str, ...]]:
    """The pictures in a class folder and in the folders below it, as parts of their paths."""
    real = folder.resolve()
    if real in above:
        raise InputError(
            f"the folder {one_line(str(folder))}",
            "a link to a folder above it",
            "must not lead in a circle",
            "remove the link",
        )
    folders, pictures = _contents(folder)
    yield from ((*parts, name) for name in pictures)
    for name in folders:
        yield from _pictures_below(folder / name, (*parts, name), (*above, real))


def _no_labels(folder: Path, pictures: list[str]) -> InputError:
    what = f"the folder {one_line(str(folder))}"
    if not pictures:
        return InputError(
            what,
            "without pictures and class folders",
            f"must hold class folders, or pictures and a {LABELS}",
            "check the path",
        )
    if all(imagenet.is_validation_file(name) for name in pictures):
        return InputError(
            what,
            "ImageNet's validation pictures without their labels",
            "must say which class each picture is of",
            f"sort them into folders called by WordNet id (n01440764), or add a {LABELS} with the"
            " header file,label",
        )
    return InputError(
        what,
        f"without labels for its {len(pictures)} picture{'s' * (len(pictures) > 1)}",
        "must say which class each picture is of",
        f"sort them into one folder a class, or add a {LABELS} with the header file,label",
    )
