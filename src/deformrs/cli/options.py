"""Option groups that several verbs share, each handed over as one frozen dataclass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import click
import torch

from deformrs.checks import check_alpha, check_integer, check_seed
from deformrs.cli.parameters import BatchSize, NonEmpty, Numbers, Word
from deformrs.config import Config
from deformrs.data import HeldOut, ImageSet, load_data
from deformrs.data.download import DownloadProgress
from deformrs.data.image_set import Split, check_share
from deformrs.data.preparation import Interpolation, Preparation
from deformrs.errors import InputError
from deformrs.execution import Compiled, usable_device
from deformrs.geometry import Padding
from deformrs.models import (
    InitialNetwork,
    LoadedModel,
    PrecisionChoice,
    initial_network,
    load_model,
)
from deformrs.statistics import check_method
from deformrs.stopping import Query, RadiusQuery, RegionQuery, Stopping
from deformrs.training.recipes import Recipe, read_recipe

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

EXECUTION = ("compile", "device", "batch_size", "trust_code")
"""Options of a model that a later command may choose anew; a run does not store them."""


@dataclass(frozen=True)
class ModelOptions:
    """A model, the preparation of its images and its execution. None: as the model says."""

    model: str
    weights: str | None = None
    resize: int | None = None
    crop: int | None = None
    interpolation: Interpolation | None = None
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    precision: PrecisionChoice = "auto"
    compile: Compiled = "no"
    device: str = "auto"
    batch_size: int | None = None
    trust_code: bool = False

    def load(self) -> LoadedModel:
        """Load the model onto its device; its preparation is what the options leave of its own."""
        # An image processor that is not understood can be replaced by options that say it all.
        shaped = self.resize is not None or self.crop is not None
        described = self.model.startswith("hf:") and shaped and self.mean is not None
        loaded = load_model(
            self.model,
            weights=None if self.weights is None else Path(self.weights),
            preparation=self.preparation(Preparation()) if described else None,
            mean=self.mean,
            std=self.std,
            precision=self.precision,
            device=chosen_device(self.device),
            trust_code=self.trust_code,
        )
        return dataclasses.replace(loaded, preparation=self.preparation(loaded.preparation))

    def preparation(self, expected: Preparation) -> Preparation:
        """Return the expected preparation, changed as the options say."""
        return _changed(expected, self)


@dataclass(frozen=True)
class DataOptions:
    """Labelled images. `held_out` follows from the training of the model."""

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
        """Load the images, prepared for a model; `report` is called as files are downloaded."""
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
    """A deformation and the noise on its parameters, as text."""

    deformation: str
    noise: str
    padding: Padding = "zeros"


@dataclass(frozen=True)
class SamplingOptions:
    """The number of samples, the level, and which images of a dataset are certified.

    With queries or `adaptive`, an image is sampled until they are decided, unless `fixed`.
    """

    n: int = 100_000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = 0
    method: str | None = None
    skip: int = 1
    max: int | None = None
    adaptive: str | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        # Before a model is loaded or trained, not after it.
        check_integer("n", self.n, least=1)
        check_integer("n0", self.n0, least=1)
        check_integer("skip", self.skip, least=1)
        if self.max is not None:
            check_integer("max", self.max, least=1)
        check_alpha(self.alpha)
        check_seed("seed", self.seed)
        if self.method is not None:
            check_method(self.method)
        if self.fixed and self.adaptive is not None:
            raise InputError(
                "adaptive",
                repr(self.adaptive),
                "cannot be combined with a fixed number of samples",
                "leave one of the two out",
            )

    def stopping(self, queries: Sequence[Query]) -> Stopping | None:
        """Return when sampling stops; None: after n samples."""
        if self.fixed or (not queries and self.adaptive is None):
            return None
        return Stopping(
            radii=tuple(q.text for q in queries if isinstance(q, RadiusQuery)),
            regions=tuple(q.text for q in queries if isinstance(q, RegionQuery)),
            tolerance=self.adaptive,
        )


@dataclass(frozen=True)
class StartOptions:
    """The network that training starts from, and how its images are prepared."""

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
        """Return the initial network."""
        start = initial_network(
            self.model,
            num_classes,
            self.channels or channels,
            weights=None if self.weights is None else Path(self.weights),
            pretrained=self.pretrained,
            seed=seed,
        )
        spec = dataclasses.replace(start.spec, preparation=_changed(start.spec.preparation, self))
        if self.mean is not None or self.std is not None:
            spec = dataclasses.replace(spec, mean=self.mean, std=self.std)
        return dataclasses.replace(start, spec=spec)


@dataclass(frozen=True)
class TrainingOptions:
    """The recipe of a training, and the devices it runs on. None: as the recipe says."""

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
    workers: int | None = None
    device: str = "auto"
    devices: int = 1
    checkpoint_seconds: float = 60.0
    tensorboard: bool = True

    def __post_init__(self) -> None:
        # Checked here, before data and network are loaded.
        self.recipe_for(pretrained=False)
        check_share(self.hold_out)
        check_seed("seed", self.seed)
        if self.workers is not None:
            check_integer("workers", self.workers, least=0)
        check_integer("devices", self.devices, least=1)

    def recipe_for(self, *, pretrained: bool, images: int | None = None) -> Recipe:
        """Return the recipe with these options in place of its own, fitted to so many images.

        It is not fitted if batch size or learning rate are given.
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


def _changed(expected: Preparation, options: ModelOptions | StartOptions) -> Preparation:
    return Preparation(
        resize=expected.resize if options.resize is None else options.resize,
        crop=expected.crop if options.crop is None else (options.crop, options.crop),
        interpolation=options.interpolation or expected.interpolation,
        channels=expected.channels if options.channels is None else options.channels,
    )


def chosen_device(text: str) -> torch.device:
    """Return the device of that name; `auto` is the GPU where there is one."""
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return usable_device(text)


def plain_options(options: DataclassInstance) -> Config:
    """Return the options as `config.json` keeps them: as they were given."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(options).items()
        if key not in (*EXECUTION, "held_out")
    }


def grouped(
    argument: str, build: Callable[..., DataclassInstance], *options: Decorator
) -> Decorator:
    """Return a decorator that hands these options to a command as one argument, a dataclass."""
    names = [field.name for field in dataclasses.fields(build)]  # type: ignore[arg-type]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            own = {name: values.pop(name) for name in names if name in values}
            command(**{argument: build(**own)}, **values)

        return chained(*options)(call)

    return decorate


def chained(*options: Decorator) -> Decorator:
    """Return a decorator that applies these, so that --help lists them in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Requirement(TypedDict, total=False):
    """Arguments of `click.option`. A required option must not have a default, not even None."""

    required: bool
    default: str


def _requirement(required: bool) -> Requirement:
    return {"required": True} if required else {"default": ""}


_preparation_options = (
    click.option("--resize", type=int, help="Length of the shorter side.  [as the model says]"),
    click.option("--crop", type=int, help="Side of the central crop."),
    click.option("--interpolation", type=Word("nearest", "bilinear", "bicubic", "lanczos")),
    click.option("--channels", type=int, help="1 for grey, 3 for colour."),
    click.option("--mean", type=Numbers(), help="Subtracted from each channel of [0, 1]."),
    click.option("--std", type=Numbers(), help="Each channel is then divided by it."),
)

trust_code_option: Decorator = click.option(
    "--trust-code",
    is_flag=True,
    help="Run code that comes with a file: a .pt2 program, or Python files that a run folder "
    "or a sweep names. Only for files from people you trust.",
)


def model_options(*, required: bool) -> Decorator:
    """Add `--model` and its execution: the argument `model`, a `ModelOptions`."""
    return grouped(
        "model",
        ModelOptions,
        click.option(
            "--model",
            **_requirement(required),
            help="A run folder, net.py:build, net.onnx, net.pt2, timm:NAME, torchvision:NAME or "
            "hf:NAME.",
        ),
        click.option("--weights", help="A .safetensors or .pth state dict for the network."),
        trust_code_option,
        *_preparation_options,
        click.option(
            "--precision",
            type=Word("auto", "float32", "bfloat16", "float16"),
            default="auto",
            show_default=True,
            help="Number format of the network, which is part of what is certified. auto is "
            "bfloat16 where the device supports it.",
        ),
        click.option(
            "--compile",
            type=Word("no", "default", "max-autotune"),
            default="no",
            show_default=True,
            help="Compile noise, warp and network: faster after a minute or so.",
        ),
        click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1."),
        click.option(
            "--batch-size",
            type=BatchSize(),
            default="auto",
            show_default=True,
            help="Samples per batch.",
        ),
    )


def data_options(*, required: bool) -> Decorator:
    """Add `--data` and its split: the argument `data`, a `DataOptions`."""
    return grouped(
        "data",
        DataOptions,
        click.option(
            "--data",
            **_requirement(required),
            help="digits, mnist, cifar10 (mnist:FOLDER for a copy of yours), a folder of class "
            "folders, a folder with labels.csv, or images.npz.",
        ),
        click.option(
            "--split",
            type=Word("test", "train", "held-out"),
            default="test",
            show_default=True,
            help="held-out: the images that the training of the model held out.",
        ),
    )


padding_option = click.option(
    "--padding",
    type=Word("zeros", "border", "reflection"),
    default="zeros",
    show_default=True,
    help="Pixels outside the image.",
)


def smoothing_options(*, required: bool) -> Decorator:
    """Add `--deformation`, `--noise` and `--padding`: the argument `smoothing`."""
    return grouped(
        "smoothing",
        SmoothingOptions,
        click.option(
            "--deformation",
            **_requirement(required),
            help="rotation, translation, scaling, shear, affine, dct:3, vector_field, your own "
            "lens.py:Lens, or several: rotation+scaling.",
        ),
        click.option(
            "--noise",
            **_requirement(required),
            help="uniform:30deg, gaussian:4px, gaussian:0.1; one for each part of a composition: "
            "uniform:30deg+uniform:20%.",
        ),
        padding_option,
    )


run_option = click.option(
    "--run",
    type=click.Path(path_type=Path),
    help="A run of deformrs certify that gives model, deformation and noise.",
)


def sampling_options(n: int, *others: Decorator) -> Decorator:
    """Add `--n`, `--n0`, `--alpha`, `--seed` and others: the argument `sampling`."""
    return grouped(
        "sampling",
        SamplingOptions,
        click.option(
            "--n", default=n, show_default=True, help="Samples that bound the probability."
        ),
        click.option("--n0", default=100, show_default=True, help="Samples that choose the class."),
        click.option(
            "--alpha", default=1e-3, show_default=True, help="Failure probability per image."
        ),
        click.option("--seed", default=0, show_default=True, help="Seed of the noise."),
        *others,
    )


def certification_options(n: int) -> Decorator:
    """Add the options of certifying a dataset: the arguments `sampling`, `radii`, `regions`."""
    return chained(
        click.option("--radii", type=NonEmpty(), help="Radii to decide, e.g. 10deg,30deg."),
        click.option(
            "--region",
            "regions",
            multiple=True,
            help="A region to decide: 'rotation<=10deg, scale=0.8..1.2'.",
        ),
        sampling_options(
            n,
            click.option(
                "--adaptive",
                type=NonEmpty(),
                metavar="TOLERANCE",
                help="Stop where more samples can raise the radius by less than that, e.g. 1deg.",
            ),
            click.option(
                "--method",
                type=Word("clopper_pearson", "bonferroni", "anytime"),
                help="The bound on probabilities.  [clopper_pearson; anytime where sampling stops "
                "early, with a sharp last look at --n]",
            ),
            click.option("--skip", default=1, show_default=True, help="Certify every K-th image."),
            click.option("--max", type=int, help="Use only the first N images."),
        ),
    )


def start_options(*, required: bool) -> Decorator:
    """`--model` and its preparation: the argument `start`, a `StartOptions`."""
    return grouped(
        "start",
        StartOptions,
        click.option(
            "--model",
            **_requirement(required),
            help="small_cnn, resnet18, resnet18:width=32 (small images), resnet50, timm:NAME, "
            "torchvision:NAME, net.py:build, or a run folder to continue from.",
        ),
        click.option("--weights", help="A .safetensors or .pth state dict to start from."),
        click.option("--pretrained", is_flag=True, help="Start from the published weights."),
        *_preparation_options,
    )


def training_options() -> Decorator:
    """The recipe and the devices: the argument `training`, a `TrainingOptions`."""
    return grouped(
        "training",
        TrainingOptions,
        click.option(
            "--recipe", default="fast", show_default=True, help="fast, paper, or your own .toml."
        ),
        click.option("--epochs", type=int, help="Replaces that of the recipe."),
        click.option("--batch-size", type=int, help="Likewise; summed over all processes."),
        click.option("--learning-rate", type=float, help="Likewise."),
        click.option("--weight-decay", type=float, help="Likewise."),
        click.option("--copies", type=int, help="Deformed copies of an image in a step."),
        click.option(
            "--tilt",
            type=float,
            help="Weight misclassified copies more, e.g. 2; 0 is the plain mean.",
        ),
        click.option(
            "--consistency",
            type=float,
            help="Weight of consistency regularisation; 10 raises accuracy at large radii.",
        ),
        click.option("--entropy", type=float, help="Weight of its entropy term."),
        click.option(
            "--augment",
            default="auto",
            show_default=True,
            help="auto, none, crop:4+flip, zoom:0.25+flip.",
        ),
        click.option(
            "--hold-out",
            default=0.0,
            show_default=True,
            help="Share of the training images kept out to choose the best epoch, e.g. 0.05.",
        ),
        click.option("--seed", default=0, show_default=True, help="Seed of everything random."),
        click.option(
            "--precision",
            type=Word("auto", "float32", "bfloat16"),
            default="auto",
            show_default=True,
            help="Precision of the computation; weights stay in float32.",
        ),
        click.option(
            "--compile",
            type=Word("auto", "yes", "no"),
            default="auto",
            show_default=True,
            help="Whether to use torch.compile.",
        ),
        click.option("--workers", type=int, help="Processes that read images.  [one per core]"),
        click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1."),
        click.option(
            "--devices", default=1, show_default=True, help="GPUs (or CPU processes) to train on."
        ),
        click.option(
            "--checkpoint-seconds",
            default=60.0,
            show_default=True,
            help="Seconds between checkpoints: what a kill may cost at most.",
        ),
        click.option("--tensorboard/--no-tensorboard", default=True, show_default=True),
    )
