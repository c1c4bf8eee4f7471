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
    """A whole number, or `auto`, which is None."""

    name = "auto|n"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value is None or value == "auto":
            return None
        return int(click.IntRange(min=1).convert(value, param, ctx))


def bundle(argument: str, kind: str, *options: Any) -> Callable[[Command], Command]:
    """Hand several options to a command as one argument, of a class in `deformrs.tasks`."""
    module, _, name = kind.partition(".")

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            # It imports torch: not before a command runs.
            build = getattr(import_module(f"deformrs.tasks.{module}"), name)
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
    """How pictures are made ready for a network, and normalised."""
    return [
        click.option("--resize", type=int, help="Length of the shorter side.  [as the model says]"),
        click.option("--crop", type=int, help="Side of the centre that is kept."),
        click.option("--interpolation", type=Word("nearest", "bilinear", "bicubic", "lanczos")),
        click.option("--channels", type=int, help="1 for grey, 3 for colour."),
        click.option("--mean", type=Numbers(), help="Subtracted from each channel of [0, 1]."),
        click.option("--std", type=Numbers(), help="What each channel is divided by then."),
    ]


def model_options(*, required: bool) -> Callable[[Command], Command]:
    """`--model` and how it is executed: the argument `model`, a `tasks.options.ModelOptions`."""
    return bundle(
        "model",
        "options.ModelOptions",
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
    """`--data` and its split: the argument `data`, a `tasks.options.DataOptions`."""
    return bundle(
        "data",
        "options.DataOptions",
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
        help="What lies outside a picture.",
    )
    return option(command)


def smoothing_options(*, required: bool) -> Callable[[Command], Command]:
    """`--deformation`, `--noise`, `--padding`: the argument `smoothing`."""
    return bundle(
        "smoothing",
        "options.SmoothingOptions",
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


def whole_numbers(option: str, text: str | None) -> tuple[int, ...]:
    """`0,5,17` as numbers."""
    parts = split_list(text)
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} must be whole numbers, e.g. 0,5,17", param_hint=option)
    return tuple(map(int, parts))


def check_writable(option: str, path: Path | None) -> None:
    """Before the work, not after it: can this file be written?"""
    if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
        raise click.BadParameter(
            f"{str(path)!r} must be a file in a folder that exists", param_hint=option
        )
