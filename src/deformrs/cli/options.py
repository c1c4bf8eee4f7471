"""Option groups that several verbs share, each handed over as one frozen dataclass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import click

from deformrs.checks import check_integer
from deformrs.cli.parameters import (
    AutomaticNumber,
    NonEmpty,
    Numbers,
    Word,
    class_names_option,
    max_pixels_option,
)
from deformrs.config import Config
from deformrs.data import HeldOut, ImageSet, load_data
from deformrs.data.download import DownloadProgress
from deformrs.data.image_set import Split
from deformrs.data.preparation import Interpolation, Preparation
from deformrs.engines import Engine, RayEngine
from deformrs.engines.actor import Loader
from deformrs.errors import InputError
from deformrs.execution import Compiled, chosen_device
from deformrs.geometry import Padding
from deformrs.models import (
    LoadedModel,
    PrecisionChoice,
    load_model,
)
from deformrs.plan import SamplingPlan, seed_or_fresh
from deformrs.statistics import Method
from deformrs.stopping import Query, RadiusQuery, RegionQuery, Stopping

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = Callable[..., None]
Decorator = Callable[[Command], Command]
Options = TypeVar("Options")

EXECUTION = (
    *("compile", "device", "batch_size", "trust_code", "class_names"),
    *("max_pixels", "download"),
)
"""Options of a model that a later command may choose anew; a run does not store them.

It stores the class names themselves, with its images.
"""


class PreparationOptions:
    """Base of options that say how images are prepared. None: as the model says."""

    resize: int | None
    crop: int | None
    interpolation: Interpolation | None
    channels: int | None
    max_pixels: int | None

    def preparation(self, expected: Preparation) -> Preparation:
        """Return the expected preparation, changed as the options say."""
        return Preparation(
            resize=expected.resize if self.resize is None else self.resize,
            crop=expected.crop if self.crop is None else (self.crop, self.crop),
            interpolation=self.interpolation or expected.interpolation,
            channels=expected.channels if self.channels is None else self.channels,
            max_pixels=expected.max_pixels if self.max_pixels is None else self.max_pixels,
        )


@dataclass(frozen=True)
class ModelOptions(PreparationOptions):
    """A model, the preparation of its images and its execution. None: as the model says.

    `download` is False for a model that only a run names.
    """

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
    class_names: tuple[str, ...] | None = None
    max_pixels: int | None = None
    download: bool = True

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
            class_names=self.class_names,
            download=self.download,
        )
        return dataclasses.replace(loaded, preparation=self.preparation(loaded.preparation))


@dataclass(frozen=True)
class DataOptions:
    """Labelled images. `held_out` and `data_root` are known from the training of the model.

    `download` is False for data that only a run or a training names.
    """

    data: str
    split: Split = "test"
    data_root: str | None = None
    held_out: HeldOut | None = None
    download: bool = True

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
            download=self.download,
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
    seed: int | None = None
    """None: that of the run if there is one, else a random one."""
    method: str | None = None
    """None: that of the run if there is one, else "auto"."""
    skip: int = 1
    max: int | None = None
    adaptive: str | None = None
    fixed: bool = False
    simultaneous: bool = False

    def __post_init__(self) -> None:
        # Before a model is loaded or trained, not after it.
        SamplingPlan(self.n, self.n0, self.alpha, 0 if self.seed is None else self.seed)
        check_integer("skip", self.skip, least=1)
        if self.max is not None:
            check_integer("max", self.max, least=1)
        if self.method is not None:
            Method.parse(self.method)
        if self.fixed and self.adaptive is not None:
            raise InputError(
                "--adaptive",
                repr(self.adaptive),
                "cannot be combined with a fixed number of samples",
                "leave one of the two out",
            )

    def plan(self, queries: Sequence[Query]) -> SamplingPlan:
        """Return the sampling plan of an image."""
        stopping = self.stopping(queries)
        seed = seed_or_fresh(self.seed)
        method = self.method or "auto"
        return SamplingPlan(self.n, self.n0, self.alpha, seed, method, stopping)

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
class EngineOptions:
    """Where images are sampled. By default in this process; options of Ray choose Ray."""

    engine: Literal["process", "ray"] | None = None
    address: str | None = None
    workers: int | Literal["auto"] | None = None
    gpus_per_worker: float | None = None
    together: int | None = None
    """The number of images in a piece of work; None: as many as keep a device busy."""

    def __post_init__(self) -> None:
        if self.together is not None:
            check_integer("--together", self.together, least=1)
        given = {
            "--address": self.address,
            "--workers": self.workers,
            "--gpus-per-worker": self.gpus_per_worker,
        }
        for option, value in given.items():
            if value is not None and self.engine == "process":
                raise InputError(
                    option, value, "is an option of the engine ray", "add --engine ray"
                )

    @property
    def is_remote(self) -> bool:
        """Whether other processes than this one sample."""
        own = (self.address, self.workers, self.gpus_per_worker)
        return self.engine == "ray" or any(value is not None for value in own)

    def build(self, load: Loader) -> Engine | None:
        """Return the engine, whose workers make their classifier by `load`; None: this process."""
        if not self.is_remote:
            return None
        return RayEngine(self.address, self.workers or "auto", self.gpus_per_worker, load)


def plain_options(options: DataclassInstance) -> Config:
    """Return the options as `config.json` keeps them: as they were given."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(options).items()
        if key not in (*EXECUTION, "held_out")
    }


def options_from(kind: type[Options], values: Mapping[str, object]) -> Options:
    """Return the options of that kind among these values."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in values.items() if key in names})


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


def requirement(required: bool) -> Requirement:
    return {"required": True} if required else {"default": ""}


preparation_options = (
    click.option("--resize", type=int, help="Length of the shorter side.  [as the model says]"),
    click.option("--crop", type=int, help="Side of the central crop."),
    click.option("--interpolation", type=Word("nearest", "bilinear", "bicubic", "lanczos")),
    click.option("--channels", type=int, help="1 for grey, 3 for colour."),
    click.option("--mean", type=Numbers(), help="Subtracted from each channel of [0, 1]."),
    click.option("--std", type=Numbers(), help="Each channel is then divided by it."),
    max_pixels_option,
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
            **requirement(required),
            help="A run folder, net.py:build, net.onnx, net.pt2, timm:NAME, torchvision:NAME, "
            "hf:NAME or robustbench:NAME.",
        ),
        click.option("--weights", help="A .safetensors or .pth state dict for the network."),
        trust_code_option,
        class_names_option,
        *preparation_options,
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
            type=AutomaticNumber(),
            default="auto",
            show_default=True,
            help="Samples per batch.",
        ),
    )


def data_option(*, required: bool) -> Decorator:
    """Add `--data`."""
    return click.option(
        "--data",
        **requirement(required),
        help="digits, mnist, cifar10 (mnist:FOLDER for a copy of yours), a folder of class "
        "folders, a folder with labels.csv, or images.npz.",
    )


def data_options(*, required: bool) -> Decorator:
    """Add `--data` and its split: the argument `data`, a `DataOptions`."""
    return grouped(
        "data",
        DataOptions,
        data_option(required=required),
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
            **requirement(required),
            help="rotation, translation, scaling, shear, affine, dct:3, vector_field, your own "
            "lens.py:Lens, or several: rotation+scaling.",
        ),
        click.option(
            "--noise",
            **requirement(required),
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
        click.option(
            "--seed",
            type=int,
            help="Seed of the noise: only to repeat a result.  [a random one, which is recorded; "
            "that of the run where one is resumed]",
        ),
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
                "--fixed",
                is_flag=True,
                help="Draw all --n samples for every image, also where radii are requested. The "
                "paper does so, with --method clopper_pearson.",
            ),
            click.option(
                "--method",
                type=NonEmpty(),
                help="The bound on probabilities: auto, runner_up, anytime, or clopper_pearson "
                "for a fixed number of samples.  [auto, chosen for each image by its selection "
                "sample; that of the run where one is resumed]",
            ),
            click.option("--skip", default=1, show_default=True, help="Certify every K-th image."),
            click.option(
                "--max",
                type=int,
                help="Certify N images: the first ones, or of class "
                "folders the first of each class, the second of each, and so on.",
            ),
            click.option(
                "--simultaneous",
                is_flag=True,
                help="Share --alpha among all images: their certificates hold together with "
                "confidence 1 - alpha. No images can be added later.",
            ),
        ),
    )


def engine_options() -> Decorator:
    """Add where images are sampled: the argument `engine`, an `EngineOptions`."""
    return grouped(
        "engine",
        EngineOptions,
        click.option(
            "--engine",
            type=Word("process", "ray"),
            help="Sample in this process, or on Ray.  [process; ray if one of the next is given]",
        ),
        click.option(
            "--workers",
            type=AutomaticNumber(keep=True),
            help="Workers on Ray; auto: one for each GPU, or each core where there is none.",
        ),
        click.option(
            "--address",
            type=NonEmpty(),
            help="A Ray cluster: auto on one of its machines, or HOST:6379.  [started here]",
        ),
        click.option(
            "--gpus-per-worker",
            type=float,
            help="GPUs of each worker, 0.5 for two on one GPU, 0 for CPUs.  [1 if there are GPUs]",
        ),
        click.option(
            "--together",
            type=int,
            help="Images that share batches, and go to a worker in one piece.  [as many as keep "
            "a device busy]",
        ),
    )
