"""Datasets by name: what `--data` accepts, and the images of a stored run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deformrs.data import cifar10, mnist
from deformrs.data.arrays import ArraySet, array_set, load_npz
from deformrs.data.download import DownloadProgress, default_root
from deformrs.data.folders import LABELS, SUFFIXES, load_folder
from deformrs.data.image_set import HELD_OUT, DataRequest, HeldOut, ImageSet, Split, StoredSplit
from deformrs.data.preparation import Pixels, Preparation, pixels_digest
from deformrs.errors import DeformRSError, InputError, damaged, nearest
from deformrs.limits import MAX_PIXELS
from deformrs.runs import CONFIG, Result, StoredRun
from deformrs.runs.folder import located


@dataclass(frozen=True)
class PublishedSet:
    """A dataset that is downloaded: how its files are fetched into a folder and read from it."""

    class_names: tuple[str, ...]
    fetch: Callable[[Path, StoredSplit, DownloadProgress | None], None]
    read: Callable[[Path, StoredSplit], tuple[NDArray[np.uint8], NDArray[np.int64]]]


PUBLISHED = {
    "mnist": PublishedSet(mnist.CLASS_NAMES, mnist.fetch_mnist, mnist.read_mnist),
    "cifar10": PublishedSet(cifar10.CLASS_NAMES, cifar10.fetch_cifar10, cifar10.read_cifar10),
}


def load_data(
    source: str | Path,
    preparation: Preparation | None = None,
    *,
    split: Split = "test",
    held_out: HeldOut | None = None,
    class_names: Sequence[str] | None = None,
    num_classes: int | None = None,
    root: Path | None = None,
    report: DownloadProgress | None = None,
    download: bool = True,
) -> ImageSet:
    """Return the labelled images of a dataset, each prepared when it is accessed.

    `source` is digits, mnist, cifar10, mnist:FOLDER or cifar10:FOLDER, an .npz file, or a folder
    with a labels.csv or with one folder per class. Without `preparation` images stay as stored.
    `class_names` and `num_classes` are the model's: labels are its class indices. The split
    "held-out" is the part of the training split that `held_out` describes. Downloads are kept
    under `root`, by default the folder that DEFORMRS_DATA names or the user's cache; `report` is
    called with their progress. Without `download`, as for what a run names, nothing is fetched.

    >>> digits = load_data("digits", Preparation(channels=3), num_classes=10)
    >>> pixels, label = digits[17]
    >>> pixels.shape, label, digits.source(17)
    ((3, 28, 28), 7, 'digits test 17')
    """
    source = str(source)
    if split == HELD_OUT and held_out is None:
        raise InputError(
            "split",
            repr(split),
            "is known only of a training that held images out",
            "give a model made by deformrs train --hold-out; in Python give held_out",
        )
    if held_out is not None and split != HELD_OUT:
        raise InputError(
            "split", repr(split), f"must be {HELD_OUT!r} if held_out is given", "leave one out"
        )
    stored: StoredSplit = "train" if split == "held-out" else split
    names = None if class_names is None else tuple(class_names)
    request = DataRequest(source, preparation or Preparation(), stored, names, num_classes)
    if source.partition(":")[0] in ("digits", *PUBLISHED):
        images: ImageSet = _load_published(request, root, report, download)
    else:
        images = _load_files(request)
    return images if held_out is None else held_out.of(images)


def _load_published(
    request: DataRequest, root: Path | None, progress: DownloadProgress | None, download: bool
) -> ArraySet:
    name, colon, given = request.source.partition(":")
    if colon and (name == "digits" or not given):
        raise InputError(
            "the data",
            repr(request.source),
            "must be digits alone" if name == "digits" else "must name a folder",
            f"e.g. {name}" if name == "digits" else f"e.g. {name}:FOLDER, or {name} alone",
        )
    split = request.split
    if name == "digits":
        return array_set(request, name, split, *mnist.read_digits(split), mnist.CLASS_NAMES)
    published = PUBLISHED[name]
    folder = _path(given) if colon else (root or default_root()) / name
    if not colon and download:
        published.fetch(folder, split, progress)
    try:
        arrays = published.read(folder, split)
    except InputError as error:
        if colon or download:
            raise
        remedy = f"only you start downloads: name the data yourself, as --data {name}"
        raise InputError(error.name, error.value, error.rule, remedy) from None
    return array_set(request, name, split, *arrays, published.class_names)


def _load_files(request: DataRequest) -> ImageSet:
    source = request.source
    path = _path(source)
    if path.is_dir() and source:
        return load_folder(path, request)
    if path.is_file():
        if path.suffix.lower() == ".npz":
            return load_npz(path, request)
        if path.suffix.lower() in SUFFIXES:
            remedy = "to classify single images use deformrs predict"
        elif path.name == LABELS:
            remedy = "give the folder it lies in"
        else:
            remedy = "give a folder, or write the images with numpy.savez"
        raise InputError("the data", repr(source), "must be a folder or an .npz file", remedy)
    word = source.partition(":")[0]
    near = nearest(word.lower(), ("digits", *PUBLISHED))
    if word.lower() == "imagenet":
        remedy = "ImageNet is not downloaded: give its validation folder"
    elif near is not None:
        remedy = f"did you mean {near + source[len(word) :]!r}?"
    else:
        remedy = "check the path"
    raise InputError(
        "the data",
        f"{source!r}, which does not exist",
        "must be digits, mnist, cifar10, mnist:FOLDER, cifar10:FOLDER, a folder or an .npz file",
        remedy,
    )


def _path(text: str) -> Path:
    """Return the path; raise unless the system can tell whether it exists."""
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # too long, not permitted, or no such user's home
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            "the data", repr(text), f"cannot be found ({reason})", "check the path"
        ) from None
    return path


def data_of(run: StoredRun, moved: Path | None = None, max_pixels: int = MAX_PIXELS) -> ImageSet:
    """Return the dataset that the configuration of a run names, or its images where they moved.

    Guarantee: nothing is downloaded and no folder is made, whatever the configuration says.
    """
    options, data = run.config.get("options"), run.config.get("data")
    if not isinstance(options, dict) or not isinstance(data, dict):
        raise InputError(
            "the run",
            "made in Python from objects as images",
            "must name them to have them shown",
            "give certify the path of the data: 'photos/'",
        )
    try:
        names, root = data["class_names"], options["data_root"]
        preparation = Preparation.from_config(data["preparation"])  # type: ignore[arg-type]
        source = located(str(options["data"]), run.folder, options)
        split, num_classes = options["split"], run.config["num_classes"]
    except KeyError as error:
        raise damaged(run.folder / CONFIG, error) from None
    if not isinstance(names, list | None):
        raise damaged(run.folder / CONFIG, "class_names is no list")
    if moved is not None:
        name = source.partition(":")[0]
        source = f"{name}:{moved}" if name in PUBLISHED else str(moved)
    return load_data(
        source,
        dataclasses.replace(preparation, max_pixels=max_pixels),
        split=split,  # type: ignore[arg-type]
        held_out=HeldOut.from_about(data),
        class_names=None if names is None else tuple(map(str, names)),
        num_classes=num_classes,  # type: ignore[arg-type]
        root=None if root is None else Path(located(str(root), run.folder, options)),
        download=False,
    )


def certified_data(run: StoredRun, moved: Path | None = None) -> ImageSet:
    """Return the dataset of a run; raise unless it is the one that was certified.

    The digest of a folder covers file names and labels, not pixels: those are bound image by image.
    """
    images = data_of(run, moved)
    stored: Any = run.config["data"]
    for key, value in (("pictures", len(images)), ("sha256", images.about["sha256"])):
        if stored.get(key) != value:
            raise InputError(
                f"the dataset of {run.folder}",
                f"not the one certified ({key}: {stored.get(key)} there, {value} here)",
                "must have the same images and labels",
                f"restore {images.about['source']}, or correct where {CONFIG} says that it is",
            )
    return images


class StoredImages:
    """Returns the image of a stored result, or None; `missing` collects the reasons.

    `moved` is where the images are now, if no longer where the runs found them. An image that is
    not the certified one is never returned.
    """

    def __init__(self, moved: Path | None = None, max_pixels: int = MAX_PIXELS) -> None:
        self._moved, self._max_pixels = moved, max_pixels
        self._sets: dict[Path, ImageSet | None] = {}
        self.missing: list[str] = []

    def __call__(self, run: StoredRun, result: Result) -> Pixels | None:
        if run.folder not in self._sets:
            self._sets[run.folder] = self._open(run)
        images = self._sets[run.folder]
        if images is None:
            return None
        try:
            pixels, _ = images[result.index]
        except (DeformRSError, OSError, IndexError) as error:
            self.missing.append(f"{result.source} cannot be shown: {error}")
            return None
        if pixels_digest(pixels) != result.pixels:
            self.missing.append(f"{result.source} is not shown: it changed since it was certified")
            return None
        return pixels

    def _open(self, run: StoredRun) -> ImageSet | None:
        try:
            return data_of(run, self._moved, self._max_pixels)
        except (DeformRSError, OSError) as error:
            self.missing.append(f"the images of {run.folder} are not shown: {error}")
            return None
