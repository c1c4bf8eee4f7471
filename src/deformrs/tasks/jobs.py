"""From options as people type them to a smoothed classifier and its pictures."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor

from deformrs.config import Config, ConfigValue
from deformrs.data import PictureSet, load_data
from deformrs.engines.identity import network_identity
from deformrs.errors import InputError
from deformrs.geometry import Padding, size_of
from deformrs.models import LoadedModel, check_fixed, load_model
from deformrs.preparation import Interpolation, Preparation
from deformrs.runs import read_config
from deformrs.smoothing import SmoothedClassifier, scores_of
from deformrs.specs import parse_deformation, parse_noise
from deformrs.units import Size

Precision = Literal["float32", "bfloat16", "float16"]
Options = TypeVar("Options")


@dataclass(frozen=True)
class ModelOptions:
    """Which network, how its pictures are made ready, how it is executed. None: as it expects."""

    model: str
    weights: str | None = None
    resize: int | None = None
    crop: int | None = None
    interpolation: Interpolation | None = None
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    precision: Precision = "float32"
    device: str = "auto"
    batch_size: int | None = None

    def load(self) -> LoadedModel:
        """The network on its device, and the pictures it wants."""
        loaded = load_model(
            self.model,
            weights=None if self.weights is None else Path(self.weights),
            preparation=self.prepared(None) if self._shapes_pictures else None,
            mean=self.mean,
            std=self.std,
            precision=self.precision,
            device=chosen_device(self.device),
        )
        return dataclasses.replace(loaded, preparation=self.prepared(loaded.preparation))

    @property
    def _shapes_pictures(self) -> bool:
        given = (self.resize, self.crop, self.interpolation, self.channels)
        return any(value is not None for value in given)

    def prepared(self, expected: Preparation | None) -> Preparation:
        """What the model expects, but for what was asked."""
        preparation = expected or Preparation()
        if self.resize is not None:
            preparation = dataclasses.replace(preparation, resize=self.resize)
        if self.crop is not None:
            preparation = dataclasses.replace(preparation, crop=(self.crop, self.crop))
        if self.interpolation is not None:
            preparation = dataclasses.replace(preparation, interpolation=self.interpolation)
        if self.channels is not None:
            preparation = dataclasses.replace(preparation, channels=self.channels)
        return preparation


@dataclass(frozen=True)
class DataOptions:
    """Which pictures, and where downloads are kept."""

    data: str
    split: Literal["test", "train"] = "test"
    data_root: str | None = None

    def load(
        self,
        preparation: Preparation,
        num_classes: int | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> PictureSet:
        return load_data(
            self.data,
            preparation,
            split=self.split,
            class_names=class_names,
            num_classes=num_classes,
            root=None if self.data_root is None else Path(self.data_root),
        )


@dataclass(frozen=True)
class SmoothingOptions:
    """How pictures move, and how far at random."""

    deformation: str
    noise: str
    padding: Padding = "zeros"

    def __post_init__(self) -> None:
        if bool(self.deformation) != bool(self.noise):
            lacking = "--noise" if self.deformation else "--deformation"
            raise InputError(
                lacking, "missing", "is needed", "e.g. --deformation rotation --noise uniform:30deg"
            )


@dataclass(frozen=True)
class Job:
    """What there is to certify."""

    classifier: SmoothedClassifier
    pictures: PictureSet
    size: Size
    """Of the first picture: pixels in options are counted on it."""
    noise_in_pixels: bool
    about: Config
    """What reproduces the job, beside what the engine writes down of itself."""


def prepare(
    model: ModelOptions, data: DataOptions, smoothing: SmoothingOptions, out: Path | None = None
) -> Job:
    """Load the network and the pictures, and see that they fit.

    `out` is the run folder, if there is one: an automatic batch size stays what it was there.
    """
    loaded = model.load()
    image = torch.from_numpy(data.load(loaded.preparation, None, loaded.class_names)[0][0])
    classifier = smooth(loaded, model, smoothing, image, _batch_size_there(out))
    pictures = data.load(loaded.preparation, classifier.num_classes, loaded.class_names)
    names = loaded.class_names or pictures.class_names or ()
    about: Config = {
        "command": "certify",
        "options": _plain(model) | _plain(data) | _plain(smoothing),
        "model": _without_source(loaded.about),
        "data": _without_source(pictures.about)
        | {"name": pictures.name, "class_names": list(names) or None},
    }
    return Job(classifier, pictures, size_of(image), "px" in smoothing.noise, about)


def smooth(
    loaded: LoadedModel,
    model: ModelOptions,
    smoothing: SmoothingOptions,
    image: Tensor,
    batch_size: int | None = None,
) -> SmoothedClassifier:
    """The smoothed classifier, tried on one picture. `batch_size` stands for an automatic one."""
    device = chosen_device(model.device)
    batch = torch.stack([image, image.flip(-1), 0.5 * image, 1 - image]).to(device)
    with torch.inference_mode():
        num_classes = scores_of(loaded.module, batch[:1]).shape[1]
        check_fixed(loaded.module, batch)
    deformation = parse_deformation(smoothing.deformation)
    noise = parse_noise(smoothing.noise, deformation.space(size_of(image)))
    size = model.batch_size or batch_size or automatic_batch_size(loaded, image, device)
    return SmoothedClassifier(
        loaded.module,
        deformation,
        noise,
        num_classes,
        padding=smoothing.padding,
        batch_size=size,
        device=device,
    )


def chosen_device(text: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=text).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            "the device", repr(text), f"cannot be used here ({reason})", "e.g. cpu, cuda or auto"
        ) from error


def automatic_batch_size(loaded: LoadedModel, image: Tensor, device: torch.device) -> int:
    """A power of two that keeps the device busy and, on a GPU, is seen to fit its memory."""
    numbers, least, most = (2**27, 32, 4096) if device.type == "cuda" else (2**23, 32, 256)
    fitting = numbers // image.numel()
    size = min(most, max(least, 1 << max(0, fitting.bit_length() - 1)))
    if device.type != "cuda":
        return size
    while True:
        try:
            with torch.inference_mode():
                # Beside the network's own, warped copies and their field take memory.
                pictures = image.to(device).expand(size, *image.shape).clone()
                loaded.module(pictures + pictures)
            return size
        except torch.OutOfMemoryError:
            if size <= 1:
                raise
            size //= 2


def options_from_config(config: Config) -> tuple[ModelOptions, DataOptions, SmoothingOptions]:
    """The options of a run that `deformrs certify` made."""
    given = config.get("options")
    if not isinstance(given, dict):
        raise InputError(
            "the run", "without its options", "must be made by deformrs certify", "give --model"
        )
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}

    def built(kind: type[Options]) -> Options:
        names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        return kind(**{key: value for key, value in values.items() if key in names})

    return built(ModelOptions), built(DataOptions), built(SmoothingOptions)


def options_of(
    run: Path | None, model: ModelOptions, smoothing: SmoothingOptions
) -> tuple[ModelOptions, SmoothingOptions]:
    """What was given; a model or a deformation that was not is taken from a run."""
    if run is not None:
        there, _, how = options_from_config(read_config(run))
        if not model.model:
            _check_bare(model)
            model = dataclasses.replace(there, device=model.device, batch_size=model.batch_size)
        smoothing = smoothing if smoothing.deformation else how
    for option, value in (("--model", model.model), ("--deformation", smoothing.deformation)):
        if not value:
            raise InputError(option, "missing", "is needed", "or name a run that has it by --run")
    return model, smoothing


def check_same_model(config: Config, loaded: LoadedModel) -> None:
    """Raise if the network is no longer the one that a run was made with."""
    there = config.get("model")
    here = network_identity(loaded.module)
    if not isinstance(there, dict) or any(there.get(key) != here[key] for key in here):
        raise InputError(
            "the model of the run",
            "not the one found there now",
            "must have the weights that were certified",
            "restore them, or certify again",
        )


def _check_bare(model: ModelOptions) -> None:
    """Options of a model make no sense where the model is a run's."""
    bare = ModelOptions("", device=model.device, batch_size=model.batch_size)
    for field in dataclasses.fields(model):
        if getattr(model, field.name) != getattr(bare, field.name):
            raise InputError(
                f"--{field.name}",
                "given without --model",
                "belongs to a model",
                "a run's model is used as it was",
            )


def _without_source(about: Config) -> Config:
    """What binds a run is what was in the files, not where they lie: that is in its options."""
    return {key: value for key, value in about.items() if key != "source"}


def _plain(options: object) -> Config:
    """Options as they were given; where they were automatic, what came of it is written apart."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(options).items()  # type: ignore[call-overload]
        if key not in ("device", "batch_size")
    }


def _batch_size_there(out: Path | None) -> int | None:
    if out is None or not (out / "config.json").exists():
        return None
    found: ConfigValue = read_config(out).get("batch_size")
    return found if isinstance(found, int) else None
