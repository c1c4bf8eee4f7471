"""A folder that `deformrs train` wrote says how its network is to be certified."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from deformrs.cli.arguments import DataOptions, ModelOptions, SmoothingOptions
from deformrs.config import Config
from deformrs.data import HeldOut, ImageSet
from deformrs.data.folders import ImageFolder
from deformrs.data.image_set import HELD_OUT
from deformrs.errors import InputError
from deformrs.geometry import Padding
from deformrs.models.saved import MODEL, folder_of_weights
from deformrs.models.sources import check_source
from deformrs.runs.folder import located, located_code
from deformrs.specs import python_files
from deformrs.training.output import BEST, TRAINING


@dataclass(frozen=True)
class TrainingNote:
    """The options of a training, what it says of its data, and what it held out of them."""

    options: Config
    data: Config
    held_out: HeldOut | None

    def option(self, key: str) -> str | None:
        """An option that is a text, and not an empty one."""
        return text_of(self.options, key)


def read_note(path: Path) -> TrainingNote | None:
    """The note in that file; None where there is no file, or something else wrote it."""
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, error) from None
    if not isinstance(found, dict):
        raise _damaged(path, "no mapping")
    if found.get("command") != "train":
        return None
    options, data = found.get("options"), found.get("data")
    if not isinstance(options, dict) or not isinstance(data, dict):
        raise _damaged(path, "options and data are needed")
    for key in ("data", "deformation", "noise"):
        if text_of(options, key) is None:
            raise _damaged(path, f"the option {key} is needed")
    return TrainingNote(options, data, _held_out(path, found, data))


def text_of(config: Config, key: str) -> str | None:
    """The text under that key; None where there is none, or an empty one."""
    value = config.get(key)
    return value if isinstance(value, str) and value else None


def _held_out(path: Path, found: Config, data: Config) -> HeldOut | None:
    share, seed, digest = data.get("hold_out", 0), found.get("seed"), text_of(data, "sha256")
    if share == 0:
        return None
    if not isinstance(seed, int) or digest is None:
        raise _damaged(path, "images were held out, but seed or sha256 is missing")
    try:
        return HeldOut(share, seed, digest)  # type: ignore[arg-type]  # it checks that itself
    except InputError as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, reason: object) -> InputError:
    return InputError(
        str(path), f"damaged ({reason})", "must be as deformrs train wrote it", "restore it"
    )


@dataclass(frozen=True)
class TrainedFolder:
    """What the network in a folder was trained on, its files as they are found from here.

    `place` holds the network: the folder itself, or its best/. `split` is the part of the data it
    has seen, None where the data have no parts; `seen` is all that is written down of them, and
    `held_out` which of them it has not seen after all.
    """

    folder: Path
    place: Path
    data: str
    data_root: str | None
    split: str | None
    seen: Config
    held_out: HeldOut | None
    smoothing: SmoothingOptions

    def data_for(self, given: DataOptions) -> DataOptions:
        """What was given; without any, the images of the same data that it has not seen."""
        root = given.data_root or self.data_root
        if given.split == HELD_OUT:
            return self._held_out_data(given, root)
        if given.data:
            return DataOptions(given.data, given.split, root)
        if self.split != "train":
            raise no_test_images(self.data, "give other images by --data")
        return DataOptions(self.data, given.split, root)

    def _held_out_data(self, given: DataOptions, root: str | None) -> DataOptions:
        if self.held_out is None:
            raise InputError(
                "--split",
                HELD_OUT,
                f"needs images that were held out; {self.folder} was trained on all of them",
                "train with --hold-out 0.1, or certify the test split",
            )
        if given.data and _are_two_folders(given.data, self.data):
            raise InputError(
                "--data",
                given.data,
                f"must be what {self.folder} was trained on, {self.data}, as it held out a part "
                "of that",
                "leave it out",
            )
        return DataOptions(given.data or self.data, given.split, root, self.held_out)

    def out_for(self, data: DataOptions) -> Path:
        """Where its certificates go unless told: a folder holds those of one split."""
        return self.place / HELD_OUT if data.split == HELD_OUT else self.place

    def has_seen(self, images: ImageSet) -> bool:
        """Are these the images it was trained on?"""
        if self.seen.get("sha256") != images.about["sha256"]:
            return False
        if not isinstance(images, ImageFolder):
            return True
        # The digest of files speaks of their names, which those of another folder may have too.
        below = text_of(self.seen, "folder")
        place = Path(self.data, below or ".").expanduser()
        if place.is_dir():
            return place.resolve() == images.folder.resolve()
        return all(self.seen.get(key) == images.about[key] for key in ("name", "split"))

    def smoothing_for(self, given: SmoothingOptions, *, padding_given: bool) -> SmoothingOptions:
        """What was given, and what it was trained with for the rest.

        Python code that the folder names is executed only if it is named again: the folder may
        come from someone else.
        """
        own = self.smoothing
        if not given.deformation and python_files(own.deformation):
            raise InputError(
                f"the deformation of {self.folder}",
                own.deformation,
                "is Python code, which is executed only if you name it",
                f"add --deformation {own.deformation}",
            )
        if not given.noise and given.deformation and not _same(given.deformation, own.deformation):
            raise InputError(
                "--noise",
                "missing",
                f"is needed: that of {self.folder} is for {own.deformation}",
                f"add the noise for {given.deformation}",
            )
        return SmoothingOptions(
            given.deformation or own.deformation,
            given.noise or own.noise,
            given.padding if padding_given else own.padding,
        )


@dataclass(frozen=True)
class Certification:
    """What is certified, against what, into which folder."""

    data: DataOptions
    smoothing: SmoothingOptions
    out: Path
    trained: TrainedFolder | None
    """The training of the network, where there is one."""


def certification(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None,
    *,
    padding_given: bool,
) -> Certification:
    """What was given; what is missing, from the training of the model's folder."""
    trained = find_trained(model.model, model.weights)
    if trained is None:
        check_source(model.model)  # a word that was mistyped explains what is missing
        if data.split == HELD_OUT:
            raise _no_training(model.model)
    else:
        data = trained.data_for(data)
        smoothing = trained.smoothing_for(smoothing, padding_given=padding_given)
        out = out or trained.out_for(data)
    if not data.data:
        raise _missing("--data", model.model)
    if not smoothing.deformation:
        raise _missing("--deformation", model.model)
    if not smoothing.noise:
        raise _missing("--noise", model.model)
    if out is None:
        raise _missing("--out", model.model)
    return Certification(data, smoothing, out, trained)


def find_trained(model: str, weights: str | None = None) -> TrainedFolder | None:
    """The training of the network in that folder, which may be RUN or RUN/best; None without one.

    A network from FILE.py:FUNCTION is in the folder of its weights, if training wrote them there.
    A training that is not finished has no network yet, and is an error.
    """
    beside = None if weights is None else folder_of_weights(model, Path(weights))
    place = Path(model) if beside is None else beside
    if not model or not place.is_dir():
        return None
    folder = place
    if not (place / TRAINING).is_file() and place.resolve().name == BEST:
        folder = place.parent if place.name == BEST else place.resolve().parent
    found = read_note(folder / TRAINING)
    if found is None:
        return None
    if not (place / MODEL).is_file():
        raise InputError(
            f"the training in {folder}",
            "not finished",
            f"must be, for {place} to hold a network",
            "run the same deformrs train command again to go on",
        )
    options, root = found.options, found.option("data_root")
    padding: Padding = found.option("padding") or "zeros"  # type: ignore[assignment]
    return TrainedFolder(
        folder,
        place,
        located(str(options["data"]), folder, options),
        None if root is None else located(root, folder, options),
        text_of(found.data, "split"),
        found.data,
        found.held_out,
        SmoothingOptions(
            located_code(str(options["deformation"]), folder, options),
            str(options["noise"]),
            padding,
        ),
    )


def no_test_images(data: str, remedy: str) -> InputError:
    """The error where there is nothing to certify but what was trained on."""
    return InputError(
        "the data",
        f"{data}, without a test split",
        "says nothing of a network that was trained on it",
        remedy,
    )


def _missing(option: str, model: str) -> InputError:
    return InputError(
        option,
        "missing",
        f"is needed, as {model} is not a folder that deformrs train wrote",
        f"add {option}, or name such a folder by --model",
    )


def _no_training(model: str) -> InputError:
    return InputError(
        "--split",
        HELD_OUT,
        f"is for networks of deformrs train --hold-out, and {model} is no folder that it wrote",
        "name such a folder by --model, or leave --split out",
    )


def _are_two_folders(given: str, own: str) -> bool:
    """A folder is known by the names in it, which may be those of another: its place tells more."""
    there, here = os.path.expanduser(given), os.path.expanduser(own)
    return os.path.isdir(there) and os.path.isdir(here) and not os.path.samefile(there, here)


def _same(given: str, own: str) -> bool:
    """Is it the same deformation? The file of one's own may be named by another path."""
    if not python_files(own):
        return given == own
    return [part.rpartition("/")[2] for part in given.split("+")] == [
        part.rpartition("/")[2] for part in own.split("+")
    ]
