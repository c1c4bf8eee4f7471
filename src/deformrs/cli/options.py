"""Options that several verbs share, bundled into one argument each."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

Command = Callable[..., None]


class Word(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """One of a few words; a wrong one is answered with the nearest."""

    name = "word"

    def __init__(self, *words: str) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "|".join(self.words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.words:
            near = difflib.get_close_matches(str(value), self.words, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.fail(f"{value!r} must be one of {', '.join(self.words)}{hint}", param, ctx)
        return str(value)


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """Numbers with commas between them: 0.485,0.456,0.406."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} must be numbers with commas between them", param, ctx)


class BatchSize(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """An integer, or `auto`, which is None."""

    name = "auto|n"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value is None or value == "auto":
            return None
        return int(click.IntRange(min=1).convert(value, param, ctx))


def bundle(argument: str, kind: str, *options: Any) -> Callable[[Command], Command]:
    """Hand several options to a command as one argument, of a class in `deformrs.cli.arguments`."""
    module, _, name = kind.partition(".")

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            # It imports torch: not before a command runs.
            build = getattr(import_module(f"deformrs.cli.{module}"), name)
            names = [field.name for field in dataclasses.fields(build)]
            own = {name: values.pop(name) for name in names if name in values}
            command(**{argument: build(**own)}, **values)

        for option in reversed(options):
            call = option(call)
        return call

    return decorate


def needed(required: bool) -> dict[str, Any]:
    """Without a default where it must be given: even None would count as one."""
    return {"required": True} if required else {"default": ""}


def preparation_options() -> list[Any]:
    """How images are made ready for a network, and normalised."""
    return [
        click.option("--resize", type=int, help="Length of the shorter side.  [as the model says]"),
        click.option("--crop", type=int, help="Side of the centre that is kept."),
        click.option("--interpolation", type=Word("nearest", "bilinear", "bicubic", "lanczos")),
        click.option("--channels", type=int, help="1 for grey, 3 for colour."),
        click.option("--mean", type=Numbers(), help="Subtracted from each channel of [0, 1]."),
        click.option("--std", type=Numbers(), help="What each channel is divided by then."),
    ]


def model_options(*, required: bool) -> Callable[[Command], Command]:
    """`--model` and how it is executed: the argument `model`, a `cli.arguments.ModelOptions`."""
    return bundle(
        "model",
        "arguments.ModelOptions",
        click.option(
            "--model",
            **needed(required),
            help="A run folder, net.py:build, net.onnx, net.pt2, timm:NAME, torchvision:NAME or "
            "hf:NAME.",
        ),
        click.option("--weights", help="A .safetensors or .pth state dict for the network."),
        *preparation_options(),
        click.option(
            "--precision",
            type=Word("auto", "float32", "bfloat16", "float16"),
            default="auto",
            show_default=True,
            help="In which the network is executed: part of what is certified. auto is bfloat16 "
            "where the device computes in it.",
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
            "--batch-size", type=BatchSize(), default="auto", show_default=True, help="Samples."
        ),
    )


def data_options(*, required: bool) -> Callable[[Command], Command]:
    """`--data` and its split: the argument `data`, a `cli.arguments.DataOptions`."""
    return bundle(
        "data",
        "arguments.DataOptions",
        click.option(
            "--data",
            **needed(required),
            help="digits, mnist, cifar10 (mnist:FOLDER where they lie), a folder of class folders, "
            "a folder with labels.csv, or pictures.npz.",
        ),
        click.option(
            "--split",
            type=Word("test", "train", "held-out"),
            default="test",
            show_default=True,
            help="held-out: what the training of the model held out.",
        ),
        click.option("--data-root", help="Where downloads are kept.  [$DEFORMRS_DATA]"),
    )


def padding_option(command: Command) -> Command:
    """`--padding`."""
    option = click.option(
        "--padding",
        type=Word("zeros", "border", "reflection"),
        default="zeros",
        show_default=True,
        help="What lies outside an image.",
    )
    return option(command)


def smoothing_options(*, required: bool) -> Callable[[Command], Command]:
    """`--deformation`, `--noise`, `--padding`: the argument `smoothing`."""
    return bundle(
        "smoothing",
        "arguments.SmoothingOptions",
        click.option(
            "--deformation",
            **needed(required),
            help="rotation, translation, scaling, shear, affine, dct:3, vector_field, your own "
            "lens.py:Lens, or several: rotation+scaling.",
        ),
        click.option(
            "--noise",
            **needed(required),
            help="uniform:30deg, gaussian:4px, gaussian:0.1; one for each part of a composition: "
            "uniform:30deg+uniform:20%.",
        ),
        padding_option,
    )


def run_option(command: Command) -> Command:
    """`--run`: a run whose model, deformation and noise are used."""
    option = click.option(
        "--run",
        type=click.Path(path_type=Path),
        help="A run of deformrs certify, whose model, deformation and noise are taken.",
    )
    return option(command)


def typed(option: str) -> bool:
    """Was it given by the user, rather than left as it is by default?"""
    source = click.get_current_context().get_parameter_source(option)
    return source not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def split_list(text: str | None) -> tuple[str, ...]:
    """`10deg,30deg` as its parts."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def integers(option: str, text: str | None) -> tuple[int, ...]:
    """`0,5,17` as numbers."""
    parts = split_list(text)
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} must be integers, e.g. 0,5,17", param_hint=option)
    return tuple(map(int, parts))


def check_writable(option: str, path: Path | None) -> None:
    """Before the work, not after it: can this file be written?"""
    if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
        raise click.BadParameter(
            f"{str(path)!r} must be a file in a folder that exists", param_hint=option
        )


def sampling_options(
    n: int, alpha: float = 1e-3, *, seed: bool = True
) -> Callable[[Command], Command]:
    """`--n`, `--n0`, `--alpha` and perhaps `--seed`, one argument each."""

    def decorate(command: Command) -> Command:
        own = click.option("--seed", default=0, show_default=True, help="Seed of the noise.")
        for option in (
            *([own] if seed else []),
            click.option(
                "--alpha", default=alpha, show_default=True, help="Failure probability an image."
            ),
            click.option("--n", default=n, show_default=True, help="Samples that bound it."),
            click.option(
                "--n0", default=100, show_default=True, help="Samples that choose the class."
            ),
        ):
            command = option(command)
        return command

    return decorate


def choosing_options(command: Command) -> Command:
    """`--method`, `--skip` and `--max` (the argument `most`)."""
    for option in (
        click.option("--max", "most", type=int, help="Look at the first N images only."),
        click.option("--skip", default=1, show_default=True, help="Certify every K-th image."),
        click.option(
            "--method",
            type=Word("clopper_pearson", "bonferroni", "anytime"),
            help="The bound on probabilities.  [clopper_pearson; where sampling stops early "
            "anytime with a sharp last look at --n]",
        ),
    ):
        command = option(command)
    return command


def _some(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Given, it must not be empty: a shell variable that is not set would mean something else."""
    if text is not None and not text.strip(" ,"):
        raise click.BadParameter("it is empty; leave it out, or say e.g. 10deg", context, option)
    return text


def stopping_options(command: Command) -> Command:
    """`--radii`, `--region` (the argument `regions`), `--adaptive` and `--fixed`."""
    for option in (
        click.option("--fixed", is_flag=True, help="All n samples for every image."),
        click.option(
            "--adaptive",
            metavar="TOLERANCE",
            callback=_some,
            help="Stop where more samples can raise the radius by less than that, e.g. 1deg.",
        ),
        click.option(
            "--region",
            "regions",
            multiple=True,
            help="A region to settle: 'rotation<=10deg, scale=0.8..1.2'.",
        ),
        click.option("--radii", callback=_some, help="Radii to settle, e.g. 10deg,30deg."),
    ):
        command = option(command)
    return command


def start_options(*, required: bool) -> Callable[[Command], Command]:
    """`--model` and its images: the argument `start`, a `StartOptions`."""
    return bundle(
        "start",
        "arguments.StartOptions",
        click.option(
            "--model",
            **needed(required),
            help="small_cnn, resnet18, resnet18:width=32 (small images), resnet50, timm:NAME, "
            "torchvision:NAME, net.py:build, or a run folder to go on from.",
        ),
        click.option("--weights", help="A .safetensors or .pth state dict to begin with."),
        click.option("--pretrained", is_flag=True, help="Begin with the published weights."),
        *preparation_options(),
    )


def training_options() -> Callable[[Command], Command]:
    """How it is trained: the argument `training`, a `TrainingOptions`."""
    return bundle(
        "training",
        "arguments.TrainingOptions",
        click.option(
            "--recipe", default="fast", show_default=True, help="fast, paper, or your own .toml."
        ),
        click.option("--epochs", type=int, help="In place of the recipe's."),
        click.option("--batch-size", type=int, help="Likewise; over all processes."),
        click.option("--learning-rate", type=float, help="Likewise."),
        click.option("--weight-decay", type=float, help="Likewise."),
        click.option("--copies", type=int, help="Deformed copies of an image in a step."),
        click.option(
            "--tilt",
            type=float,
            help="Let copies that go wrong count more, e.g. 2; 0 is the plain mean.",
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
            help="Share of the training images that chooses the best epoch, e.g. 0.05.",
        ),
        click.option("--seed", default=0, show_default=True, help="Of weights, order and noise."),
        click.option(
            "--precision",
            type=Word("auto", "float32", "bfloat16"),
            default="auto",
            show_default=True,
            help="In which it computes; weights are kept in float32.",
        ),
        click.option(
            "--compile",
            type=Word("auto", "yes", "no"),
            default="auto",
            show_default=True,
            help="By torch.compile.",
        ),
        click.option(
            "--hold",
            type=Word("auto", "yes", "no"),
            default="auto",
            show_default=True,
            help="All images in memory, or read from the disk as they are needed.",
        ),
        click.option("--workers", type=int, help="Processes that read them.  [one a core]"),
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


def trust_code_option(command: Command) -> Command:
    """`--trust-code`."""
    option = click.option(
        "--trust-code",
        is_flag=True,
        help="Execute the Python code or .pt2 program that a file or folder names.",
    )
    return option(command)
