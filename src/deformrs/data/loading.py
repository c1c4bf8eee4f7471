"""From the words a person types to a set of images."""

from __future__ import annotations

import difflib
from pathlib import Path

from deformrs.data import cifar10, mnist
from deformrs.data.arrays import ArraySet, array_set, load_npz
from deformrs.data.base import HELD_OUT, HeldOut, ImageSet, Split, SplitAsked, Wanted
from deformrs.data.digits import read_digits
from deformrs.data.download import Report, default_root
from deformrs.data.folders import SUFFIXES, load_folder
from deformrs.data.preparation import Pixels, Preparation, digest_of_pixels
from deformrs.errors import DeformRSError, InputError
from deformrs.runs import Result, StoredRun
from deformrs.runs.folder import located

WORDS = ("digits", "mnist", "cifar10")


def load_data(
    source: str | Path,
    preparation: Preparation | None = None,
    *,
    split: SplitAsked = "test",
    held_out: HeldOut | None = None,
    class_names: tuple[str, ...] | None = None,
    num_classes: int | None = None,
    root: Path | None = None,
    report: Report | None = None,
) -> ImageSet:
    """The labelled images that `source` names, prepared when they are asked for.

    `source` is digits, mnist, cifar10, mnist:FOLDER or cifar10:FOLDER, an .npz file, or a folder
    with a labels.csv or with one folder a class. Without `preparation` images stay as they are
    stored. `class_names` and `num_classes` are the model's; labels are numbered as it does. The
    split "held-out" is the part of the training split that `held_out` says. Downloads are kept
    under `root`, else in the folder that DEFORMRS_DATA names or the user's cache, and told of to
    `report`.

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
            "name a model that deformrs train --hold-out made; in Python give held_out",
        )
    if held_out is not None and split != HELD_OUT:
        raise InputError(
            "split", repr(split), f"must be {HELD_OUT!r} where held_out is given", "leave one out"
        )
    stored: Split = "train" if split == "held-out" else split
    wanted = Wanted(source, preparation or Preparation(), stored, class_names, num_classes)
    found = _found(source, wanted, root, report)
    return found if held_out is None else held_out.of(found)


def _found(source: str, wanted: Wanted, root: Path | None, report: Report | None) -> ImageSet:
    word, colon, rest = source.partition(":")
    if word in WORDS:
        if colon and (word == "digits" or not rest):
            raise InputError(
                "the data",
                repr(source),
                "must be digits alone" if word == "digits" else "must name a folder",
                f"e.g. {word}" if word == "digits" else f"e.g. {word}:FOLDER, or {word} alone",
            )
        folder = _path(rest) if colon else None
        return _published(word, folder, root or default_root(), wanted, report)
    path = _path(source)
    if path.is_dir() and source:
        return load_folder(path, wanted)
    if path.suffix.lower() == ".npz" and path.exists():
        return load_npz(path, wanted)
    raise _unknown(source, path)


def _published(
    word: str, folder: Path | None, root: Path, wanted: Wanted, report: Report | None
) -> ArraySet:
    split = wanted.split
    if word == "digits":
        return array_set(wanted, word, split, *read_digits(split), mnist.CLASS_NAMES)
    if word == "mnist":
        if folder is None:
            folder = root / word
            mnist.fetch_mnist(folder, split, report)
        return array_set(wanted, word, split, *mnist.read_mnist(folder, split), mnist.CLASS_NAMES)
    if folder is None:
        folder = root / word
        cifar10.fetch_cifar10(folder, split, report)
    names = cifar10.CLASS_NAMES
    return array_set(wanted, word, split, *cifar10.read_cifar10(folder, split), names)


def _path(text: str) -> Path:
    """The path that is meant; asking whether it is there cannot fail any more."""
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # too long, closed, or the home of nobody
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            "the data", repr(text), f"cannot be looked for ({reason})", "check the path"
        ) from None
    return path


def _unknown(source: str, path: Path) -> InputError:
    """Why there are no data under that name."""
    shown = repr(source)
    if path.is_file():
        if path.suffix.lower() in SUFFIXES:
            remedy = "to classify single images use deformrs predict"
        elif path.name == "labels.csv":
            remedy = "give the folder it lies in"
        else:
            remedy = "give a folder, or write the images with numpy.savez"
        return InputError("the data", shown, "must be a folder or an .npz file", remedy)
    word = source.partition(":")[0]
    near = difflib.get_close_matches(word.lower(), WORDS, n=1)
    if word.lower() == "imagenet":
        remedy = "ImageNet is not downloaded: give its validation folder"
    elif near:
        remedy = f"did you mean {near[0] + source[len(word) :]!r}?"
    else:
        remedy = "check the path"
    return InputError(
        "the data",
        f"{shown}, which is not there",
        "must be digits, mnist, cifar10, mnist:FOLDER, cifar10:FOLDER, a folder or an .npz file",
        remedy,
    )


def data_of(run: StoredRun) -> ImageSet:
    """The images that a run's configuration names."""
    options, data = run.config.get("options"), run.config.get("data")
    if not isinstance(options, dict) or not isinstance(data, dict):
        raise InputError(
            "the run", "silent about its images", "must name them", "make it by deformrs certify"
        )
    names, root = data["class_names"], options["data_root"]
    return load_data(
        located(str(options["data"]), run.folder, options),
        Preparation.from_config(data["preparation"]),  # type: ignore[arg-type]
        split=options["split"],  # type: ignore[arg-type]
        held_out=HeldOut.from_about(data),
        class_names=None if names is None else tuple(map(str, names)),  # type: ignore[arg-type]
        num_classes=run.config["num_classes"],  # type: ignore[arg-type]
        root=None if root is None else Path(located(str(root), run.folder, options)),
    )


class StoredImages:
    """Hands over the image of a result, or None, and remembers in `missing` why it could not."""

    def __init__(self) -> None:
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
        if digest_of_pixels(pixels) != result.pixels:
            self.missing.append(f"{result.source} is not shown: it changed since it was certified")
            return None
        return pixels

    def _open(self, run: StoredRun) -> ImageSet | None:
        try:
            return data_of(run)
        except (DeformRSError, OSError) as error:
            self.missing.append(f"the images of {run.folder} are not shown: {error}")
            return None
