"""Options as people type them, and as a run's configuration keeps them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar, cast

import torch

from deformrs.checks import check_integer, check_seed
from deformrs.config import Config
from deformrs.data import HeldOut, ImageSet, load_data
from deformrs.data.download import DownloadProgress
from deformrs.data.image_set import Split, check_share
from deformrs.data.preparation import Interpolation, Preparation
from deformrs.errors import InputError
from deformrs.execution import Compiled, usable_device
from deformrs.geometry import Padding
from deformrs.models import InitialNetwork, LoadedModel, PrecisionAsked, initial_network, load_model
from deformrs.runs import CONFIG, read_config
from deformrs.runs.folder import located, located_code
from deformrs.training.recipes import Recipe, read_recipe


class Prepared(Protocol):
    """Options on how images are made ready. None: as the model expects."""

    @property
    def resize(self) -> int | None: ...

    @property
    def crop(self) -> int | None: ...

    @property
    def interpolation(self) -> Interpolation | None: ...

    @property
    def channels(self) -> int | None: ...


def prepared(asked: Prepared, expected: Preparation) -> Preparation:
    """What is expected, but for what was asked."""
    return Preparation(
        resize=expected.resize if asked.resize is None else asked.resize,
        crop=expected.crop if asked.crop is None else (asked.crop, asked.crop),
        interpolation=asked.interpolation or expected.interpolation,
        channels=expected.channels if asked.channels is None else asked.channels,
    )


@dataclass(frozen=True)
class StartOptions:
    """Which network training begins with, and how its images are made ready."""

    model: str
    weights: str | None = None
    pretrained: bool = False
    resize: int | None = None
    crop: int | None = None
    interpolation: Interpolation | None = None
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def load(self, num_classes: int, channels: int, seed: int) -> InitialNetwork:
        """The network as it begins."""
        start = initial_network(
            self.model,
            num_classes,
            self.channels or channels,
            weights=None if self.weights is None else Path(self.weights),
            pretrained=self.pretrained,
            seed=seed,
        )
        preparation = prepared(self, start.spec.preparation)
        built = dataclasses.replace(start.spec, preparation=preparation)
        if self.mean is not None or self.std is not None:
            built = dataclasses.replace(built, mean=self.mean, std=self.std)
        return dataclasses.replace(start, spec=built)


@dataclass(frozen=True)
class TrainingOptions:
    """How it is trained, and with which machines. None: as the recipe says."""

    recipe: str = "fast"
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    copies: int | None = None
    tilt: float | None = None
    consistency: float | None = None
    entropy: float | None = None
    augment: str = "auto"
    hold_out: float = 0.0
    seed: int = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "yes", "no"] = "auto"
    hold: Literal["auto", "yes", "no"] = "auto"
    workers: int | None = None
    device: str = "auto"
    devices: int = 1
    checkpoint_seconds: float = 60.0
    tensorboard: bool = True

    def __post_init__(self) -> None:
        # Before data and network are loaded, not after it.
        self.recipe_for(pretrained=False)
        check_share(self.hold_out)
        check_seed("seed", self.seed)
        if self.workers is not None:
            check_integer("workers", self.workers, least=0)
        check_integer("devices", self.devices, least=1)

    def recipe_for(self, *, pretrained: bool, images: int | None = None) -> Recipe:
        """The recipe with what was asked in place of its own, fitted to so many images.

        It is not fitted where batch size or learning rate were asked for.
        """
        recipe = read_recipe(self.recipe, pretrained=pretrained)
        if images is not None and self.batch_size is None and self.learning_rate is None:
            recipe = recipe.fitted(images)
        return recipe.changed(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            copies=self.copies,
            tilt=self.tilt,
            consistency=self.consistency,
            entropy=self.entropy,
        )


Options = TypeVar("Options")
EXECUTION = ("compile", "device", "batch_size")
"""Options of a model that another machine, or another command, may choose otherwise."""


@dataclass(frozen=True)
class ModelOptions:
    """Which network, how its images are made ready, how it is executed. None: as it expects."""

    model: str
    weights: str | None = None
    resize: int | None = None
    crop: int | None = None
    interpolation: Interpolation | None = None
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    precision: PrecisionAsked = "auto"
    compile: Compiled = "no"
    device: str = "auto"
    batch_size: int | None = None

    def load(self) -> LoadedModel:
        """The network on its device, and the images it wants."""
        loaded = load_model(
            self.model,
            weights=None if self.weights is None else Path(self.weights),
            preparation=self.prepared(None) if self._stands_in else None,
            mean=self.mean,
            std=self.std,
            precision=self.precision,
            device=chosen_device(self.device),
        )
        return dataclasses.replace(loaded, preparation=self.prepared(loaded.preparation))

    @property
    def _stands_in(self) -> bool:
        """Do the options say all that an image processor would, should it not be understood?"""
        shaped = self.resize is not None or self.crop is not None
        return self.model.startswith("hf:") and shaped and self.mean is not None

    def as_in(self, run: Path | None) -> ModelOptions:
        """In the precision of the run that is in that folder already, if its choice is left open.

        On another machine an automatic one could come to something else.
        """
        if self.precision != "auto" or run is None or not (run / CONFIG).exists():
            return self
        return dataclasses.replace(self, precision=_precision_of(read_config(run)))

    def prepared(self, expected: Preparation | None) -> Preparation:
        """What the model expects, but for what was asked."""
        return prepared(self, expected or Preparation())


@dataclass(frozen=True)
class DataOptions:
    """Which images, and where downloads are kept. `held_out` follows from a training."""

    data: str
    split: Split = "test"
    data_root: str | None = None
    held_out: HeldOut | None = None

    def load(
        self,
        preparation: Preparation,
        num_classes: int | None = None,
        class_names: tuple[str, ...] | None = None,
        report: DownloadProgress | None = None,
    ) -> ImageSet:
        """The images, made ready for a model; `report` is told of what is fetched for it."""
        return load_data(
            self.data,
            preparation,
            split=self.split,
            held_out=self.held_out,
            class_names=class_names,
            num_classes=num_classes,
            root=None if self.data_root is None else Path(self.data_root),
            report=report,
        )


@dataclass(frozen=True)
class SmoothingOptions:
    """How images move, and how far at random."""

    deformation: str
    noise: str
    padding: Padding = "zeros"


def chosen_device(text: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return usable_device(text)


def options_from_run(folder: Path) -> tuple[ModelOptions, DataOptions, SmoothingOptions]:
    """The options of a run that `deformrs certify` made, its files as they are found from here."""
    config = read_config(folder)
    given = config.get("options")
    if not isinstance(given, dict):
        raise InputError(
            f"the run in {folder}",
            "without its options",
            "must be made by deformrs certify",
            "give --model and so on instead",
        )
    values: dict[str, object]
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    for key in ("model", "weights", "data", "data_root", "deformation"):
        text = values.get(key)
        if isinstance(text, str):
            find = located_code if key == "deformation" else located
            values[key] = find(text, folder, given)

    values["precision"] = _precision_of(config)
    values["held_out"] = HeldOut.from_about(config.get("data"))

    def built(kind: type[Options]) -> Options:
        names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        return kind(**{key: value for key, value in values.items() if key in names})

    return built(ModelOptions), built(DataOptions), built(SmoothingOptions)


def _precision_of(config: Config) -> PrecisionAsked:
    """What a run is executed in: what an automatic precision came to is said by its model."""
    model = config.get("model")
    found = model.get("precision", "auto") if isinstance(model, dict) else "auto"
    return cast("PrecisionAsked", found)


def options_of(
    run: Path | None, model: ModelOptions, smoothing: SmoothingOptions
) -> tuple[ModelOptions, SmoothingOptions]:
    """A run's model, deformation and noise; without a run, what was given.

    Beside a run, only where the model is executed may be chosen. Python code that a run names is
    executed only if it is named again: the folder may come from someone else.
    """
    if run is not None:
        there, _, how = options_from_run(run)
        _check_confirms(model, there)
        _check_confirms(smoothing, how)
        for option, named, given in (
            ("--model", there.model, model.model),
            ("--deformation", how.deformation, smoothing.deformation),
        ):
            if ".py:" in named and not given:
                raise InputError(
                    f"the run's {option}",
                    named,
                    "is Python code, which is executed only if you name it",
                    f"add {option} {named}",
                )
        chosen = {name: getattr(model, name) for name in EXECUTION}
        return dataclasses.replace(there, **chosen), how
    for option, value in (
        ("--model", model.model),
        ("--deformation", smoothing.deformation),
        ("--noise", smoothing.noise),
    ):
        if not value:
            raise InputError(option, "missing", "is needed", "or name a run that has it by --run")
    return model, smoothing


def _check_confirms(given: ModelOptions | SmoothingOptions, there: object) -> None:
    """What is given beside a run must be what the run has."""
    for field in dataclasses.fields(given):
        value, own = getattr(given, field.name), getattr(there, field.name)
        unset = ("", None, field.default)
        if field.name not in EXECUTION and value not in unset and value != own:
            raise InputError(
                f"--{field.name.replace('_', '-')}",
                value,
                f"must be the run's ({own})",
                "leave it out, or leave --run out",
            )


def plain_options(options: object) -> Config:
    """Options as they were given; what came of automatic ones, or of a training, stands apart."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(options).items()  # type: ignore[call-overload]
        if key not in (*EXECUTION, "held_out")
    }


def class_names_of(config: Config) -> tuple[str, ...] | None:
    """The names of the classes that a run knows, the model's own or those of its data."""
    data = config.get("data")
    names = data.get("class_names") if isinstance(data, dict) else None
    return tuple(map(str, names)) if isinstance(names, list) else None
