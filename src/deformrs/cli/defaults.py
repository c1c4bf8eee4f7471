"""Options that a folder supplies: those of a trained model, or of a certification run."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from deformrs.cli.options import (
    EXECUTION,
    DataOptions,
    ModelOptions,
    SmoothingOptions,
    options_from,
)
from deformrs.config import Config
from deformrs.data import HeldOut, ImageSet
from deformrs.data.folders import ImageFolder
from deformrs.data.image_set import HELD_OUT
from deformrs.errors import InputError, damaged, quoted
from deformrs.job import plugin_digests, stored_precision
from deformrs.models.saved import BEST, MODEL, TRAINING, folder_of_weights
from deformrs.models.sources import check_source
from deformrs.models.types import require_trust
from deformrs.runs import CONFIG, StoredRun, read_config, read_run
from deformrs.runs.folder import difference, located, located_code
from deformrs.runs.records import read_sealed
from deformrs.specs import noise_text, parse_deformation, parse_noise, python_files


@dataclass(frozen=True)
class TrainedModel:
    """A model that `deformrs train` wrote, and what it was trained on.

    `place` holds the model: `folder`, or best/ in it. Paths are relative to the working directory.
    `split` is None where the data have no splits; `seen` is what training.json says of the data,
    and `held_out` names the images of that split that were not trained on.
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
        """Return the given images; by default those of the same data that it was not trained on.

        Guarantee: these are not downloaded, nor is anything into a folder that the training names.
        """
        root = given.data_root if given.data else self.data_root
        named = bool(given.data)
        if given.split == HELD_OUT:
            self._check_held_out(given)
            data = given.data or self.data
            return DataOptions(data, given.split, root, self.held_out, download=named)
        if not given.data and self.split != "train":
            raise no_test_images(self.data, "give other images by --data")
        return DataOptions(given.data or self.data, given.split, root, download=named)

    def smoothing_for(
        self, given: SmoothingOptions, *, padding_given: bool, trust_code: bool = False
    ) -> SmoothingOptions:
        """Return the given deformation and noise; by default those that it was trained with.

        Guarantee: without `trust_code`, Python code is returned only if it was given.
        """
        own = self.smoothing
        if not given.deformation and python_files(own.deformation):
            require_trust(
                trust_code,
                f"the deformation of {self.folder}",
                f"{own.deformation}, a Python file that is executed",
                f"or name the file yourself: --deformation {quoted(own.deformation)}",
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

    def has_seen(self, images: ImageSet) -> bool:
        """Return whether these are the images that it was trained on."""
        if self.seen.get("sha256") != images.about["sha256"]:
            return False
        if not isinstance(images, ImageFolder):
            return True
        # The digest of files is one of names, which the files of another folder may have too.
        place = Path(self.data, _text(self.seen, "folder") or ".").expanduser()
        if place.is_dir():
            return place.resolve() == images.folder.resolve()
        return all(self.seen.get(key) == images.about[key] for key in ("name", "split"))

    def _check_held_out(self, given: DataOptions) -> None:
        if self.held_out is None:
            raise InputError(
                "--split",
                HELD_OUT,
                f"needs images that were held out; {self.folder} was trained on all of them",
                "train with --hold-out 0.1, or certify the test split",
            )
        # The digest of a folder is one of names: the place tells more.
        ours, theirs = Path(self.data).expanduser(), Path(given.data).expanduser()
        if given.data and ours.is_dir() and theirs.is_dir() and not ours.samefile(theirs):
            raise InputError(
                "--data",
                given.data,
                f"must be {self.data}, which {self.folder} was trained on and held images out of",
                "leave it out",
            )


@dataclass(frozen=True)
class Certification:
    """Complete options of a certification; `trained` is the model's training, if known."""

    data: DataOptions
    smoothing: SmoothingOptions
    out: Path
    trained: TrainedModel | None


def certification(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None,
    *,
    padding_given: bool,
) -> Certification:
    """Return the given options, completed by those of the model's training."""
    trained = find_trained(model.model, model.weights)
    if trained is not None:
        data = trained.data_for(data)
        smoothing = trained.smoothing_for(
            smoothing, padding_given=padding_given, trust_code=model.trust_code
        )
        # A run folder holds the certificates of one split.
        out = out or (trained.place / HELD_OUT if data.split == HELD_OUT else trained.place)
    else:
        check_source(model.model)  # a misspelt model is why options seem to be missing
        if data.split == HELD_OUT:
            raise InputError(
                "--split",
                HELD_OUT,
                f"is for networks of deformrs train --hold-out, and {model.model} is no folder "
                "that it wrote",
                "name such a folder by --model, or leave --split out",
            )
    if out is None or not (data.data and smoothing.deformation and smoothing.noise):
        given = {
            "--data": data.data,
            "--deformation": smoothing.deformation,
            "--noise": smoothing.noise,
            "--out": out,
        }
        option = next(name for name, value in given.items() if not value)
        raise InputError(
            option,
            "missing",
            f"is needed, as {model.model} is not a folder that deformrs train wrote",
            f"add {option}, or name such a folder by --model",
        )
    return Certification(data, smoothing, out, trained)


def no_test_images(data: str, remedy: str) -> InputError:
    """Return the error for data whose only images were trained on."""
    return InputError(
        "the data",
        f"{data}, without a test split",
        "must hold images that the network was not trained on",
        remedy,
    )


def find_trained(model: str, weights: str | None = None) -> TrainedModel | None:
    """Return the training of a model, given by RUN or RUN/best; None if training did not write it.

    A network from FILE.py:FUNCTION is found by its weights. An unfinished training is an error.
    """
    place = None if weights is None else folder_of_weights(model, Path(weights))
    place = place or Path(model)
    if not model or not place.is_dir():
        return None
    folder = place
    if not (place / TRAINING).is_file() and place.resolve().name == BEST:
        folder = place.parent if place.name == BEST else place.resolve().parent
    config = _read_training(folder / TRAINING)
    if config is None:
        return None
    if not (place / MODEL).is_file():
        raise InputError(
            f"the training in {folder}",
            "not finished",
            f"must be, for {place} to hold a network",
            "run the same deformrs train command again to go on",
        )
    options, data = config["options"], config["data"]
    assert isinstance(options, dict)
    assert isinstance(data, dict)
    root = _text(options, "data_root")
    return TrainedModel(
        folder,
        place,
        located(str(options["data"]), folder, options),
        None if root is None else located(root, folder, options),
        _text(data, "split"),
        data,
        _held_out(folder / TRAINING, config, data),
        SmoothingOptions(
            located_code(str(options["deformation"]), folder, options),
            str(options["noise"]),
            _text(options, "padding") or "zeros",  # type: ignore[arg-type]
        ),
    )


def _read_training(path: Path) -> Config | None:
    """Return what `deformrs train` wrote into that file; None if there is no such file."""
    if not path.is_file():
        return None
    config = read_sealed(path)
    if config.get("command") != "train":
        return None
    options = config.get("options")
    if not isinstance(options, dict) or not isinstance(config.get("data"), dict):
        raise damaged(path, "options and data are needed")
    for key in ("data", "deformation", "noise"):
        if _text(options, key) is None:
            raise damaged(path, f"the option {key} is needed")
    return config


def _held_out(path: Path, config: Config, data: Config) -> HeldOut | None:
    share, seed, digest = data.get("hold_out", 0), config.get("seed"), _text(data, "sha256")
    if share == 0:
        return None
    if not isinstance(seed, int) or digest is None:
        raise damaged(path, "images were held out, but seed or sha256 is missing")
    try:
        return HeldOut(share, seed, digest)  # type: ignore[arg-type]  # it checks that itself
    except InputError as error:
        raise damaged(path, error) from None


def _text(config: Config, key: str) -> str | None:
    """Return the text under that key; None if there is none, or an empty one."""
    value = config.get(key)
    return value if isinstance(value, str) and value else None


def _same(given: str, own: str) -> bool:
    """Return whether two texts name one deformation; a Python file may lie at another path."""
    if not python_files(own):
        return given == own
    ours, theirs = own.split("+"), given.split("+")
    return [os.path.basename(part) for part in ours] == [os.path.basename(part) for part in theirs]


def named_options(config: Config) -> Config | None:
    """Return the options of a run if they name model, deformation and noise as text, else None."""
    given = config.get("options")
    if isinstance(given, dict) and {"model", "deformation", "noise"} <= given.keys():
        return given
    return None


def options_from_run(folder: Path) -> tuple[ModelOptions, DataOptions, SmoothingOptions]:
    """Return the options of a run of `deformrs certify`, with paths from the working directory."""
    config = read_config(folder)
    given = named_options(config)
    if given is None:
        raise InputError(
            f"the run in {folder}",
            "made in Python from objects",
            "must name its model, deformation and noise as text, as deformrs certify does",
            "leave --run out, and give --model, --deformation and --noise",
        )
    values: dict[str, object] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in given.items()
        if key not in EXECUTION  # these are the user's to choose, above all whether to trust code
    }
    usual = {"split": "test", "padding": "zeros"}
    for key in ("model", "data", "deformation", "noise", *usual):
        if not isinstance(text := values.get(key, usual.get(key)), str):
            raise damaged(folder / CONFIG, f"the option {key} is a {type(text).__name__}, not text")
    for key in ("model", "weights", "data", "data_root", "deformation"):
        text = values.get(key)
        if isinstance(text, str):
            find = located_code if key == "deformation" else located
            values[key] = find(text, folder, given)
        elif text is not None:
            raise damaged(folder / CONFIG, f"the option {key} is a {type(text).__name__}, not text")
    values["precision"] = stored_precision(config)
    values["held_out"] = HeldOut.from_about(config.get("data"))
    values["download"] = False
    return (
        options_from(ModelOptions, values),
        options_from(DataOptions, values),
        options_from(SmoothingOptions, values),
    )


def options_of(
    run: Path, model: ModelOptions, smoothing: SmoothingOptions, *, moved: bool = False
) -> tuple[ModelOptions, SmoothingOptions]:
    """Return the model, deformation and noise of a run; only the model's execution may differ.

    With `moved`, so may the place of the model and its weights, whose content is compared later.

    Guarantee: deformation, noise and padding are those of the run's certificates, or an error says
    that its options were edited. Without `model.trust_code`, Python code that the run names is
    executed only if it was named on the command line too, and a model is downloaded only if it was.
    """
    own_model, _, own_smoothing = options_from_run(run)
    if moved:
        own_model = dataclasses.replace(
            own_model,
            model=model.model or own_model.model,
            weights=model.weights or own_model.weights,
        )
    _check_equal(model, own_model)
    _check_equal(smoothing, own_smoothing)
    for option, own, given in (
        ("--model", own_model.model, model.model),
        ("--deformation", own_smoothing.deformation, smoothing.deformation),
    ):
        if ".py:" in own and not given:
            require_trust(
                model.trust_code,
                f"the {option.removeprefix('--')} of {run}",
                f"{own}, a Python file that is executed",
                f"or name the file yourself: {option} {quoted(own)}",
            )
    execution = {name: getattr(model, name) for name in EXECUTION}
    execution["download"] = bool(model.model)
    return dataclasses.replace(own_model, **execution), _bound(read_run(run), own_smoothing)


def _bound(run: StoredRun, options: SmoothingOptions) -> SmoothingOptions:
    """Return the options if they are what the run's results are bound to; raise otherwise.

    Options may be edited, as files move, and a configuration without results binds nothing.
    """
    if not run.results:
        raise InputError(
            f"the run in {run.folder}",
            f"without a result, so nothing tells whether its {CONFIG} was changed",
            "must hold at least one certified image",
            "repeat deformrs certify to go on, or give --model, --deformation and --noise",
        )
    files = plugin_digests(options.deformation)  # compared before their code is executed
    _check_bound(run, {"plugins": files or None})
    deformation = parse_deformation(options.deformation)
    _check_bound(run, {"deformation": deformation.to_config(), "padding": options.padding})
    space = deformation.space(run[0].certificate.space.size)
    law = parse_noise(options.noise, space)
    _check_bound(run, {"noise": law.to_config()})
    noise = run.config.get("noise_in_pixels")
    if not isinstance(noise, str):
        # Earlier versions did not bind pixels: on images of another size they prove nothing.
        noise = noise_text(law, space) if "px" in options.noise else options.noise
    return dataclasses.replace(options, noise=noise)


def _check_bound(run: StoredRun, ours: Config) -> None:
    theirs = {key: run.config.get(key) for key in ours}
    if ours != theirs:
        raise InputError(
            f"options in {run.folder / CONFIG}",
            f"not what the results are bound to ({difference(theirs, ours)})",
            "must be those of the certificates",
            "restore them and the files they name, or certify again",
        )


def _check_equal(given: ModelOptions | SmoothingOptions, own: object) -> None:
    """Raise if an option that was given beside a run is not what the run has."""
    for field in dataclasses.fields(given):
        value, expected = getattr(given, field.name), getattr(own, field.name)
        unset = ("", None, field.default)
        if field.name not in EXECUTION and value not in unset and value != expected:
            raise InputError(
                f"--{field.name.replace('_', '-')}",
                value,
                f"must be the run's ({expected})",
                "leave it out, or leave --run out",
            )
