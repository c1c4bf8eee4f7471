"""Running a model: its logits, compilation, and errors that say what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from deformrs.errors import (
    DeformRSError,
    InputError,
    ModelError,
    NoMemoryError,
    first_line,
    nearest,
    reason_of,
)

Compiled = Literal["no", "default", "max-autotune"]
"""How torch.compile is used."""

P = ParamSpec("P")
R = TypeVar("R")

# CUDA graphs would copy every batch of images once more; batches are too large to need them.
_MODES = {"default": None, "max-autotune": "max-autotune-no-cudagraphs"}


_TWO_SCORES = (
    "return torch.cat([-z, z], 1) for a logit z of class 1, [n, 1], or torch.cat([1 - p, p], 1) "
    "for its probability p"
)


class ReadyModel:
    """Base of what holds a model that is ready to run, in `module`."""

    module: nn.Module

    def __call__(self, images: Tensor) -> Tensor:
        logits: Tensor = self.module(images)
        return logits


def usable_device(device: torch.device | str) -> torch.device:
    """Return the device, with its index; raise unless tensors can be computed on it.

    >>> usable_device("cpu")
    device(type='cpu')
    """
    try:
        usable = torch.empty(0, device=device).device
        if usable.type == "meta":
            raise RuntimeError("it computes nothing")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = first_line(error).split(". ")[0].rstrip(".")
        if reason.startswith("Expected one of"):
            reason = "torch knows no such device"
        kind = str(device).partition(":")[0].strip().lower().replace("gpu", "cuda")
        close = nearest(kind, ("cuda", "cpu", "auto"))
        remedy = "e.g. 'cpu' or 'cuda'" if close in (None, kind) else f"did you mean {close!r}?"
        if close == "cuda" and not torch.cuda.is_available():
            remedy = "torch finds no GPU here: use 'cpu'"
        raise InputError(
            "the device",
            repr(str(device)),
            f"cannot be used here ({reason[:120]})",
            remedy,
        ) from error
    return usable


def chosen_device(text: str) -> torch.device:
    """Return the device of that name; `auto` is the GPU where there is one."""
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return usable_device(text)


def compiled(function: Callable[P, R], how: Compiled) -> Callable[P, R]:
    """Compile a function at its first call; RuntimeError if that fails.

    torch.compile caches by code object and silently gives up after eight shapes and models, so each
    function gets a copy of its code. (Where a model breaks the graph, its inner functions share
    their code with all models, and the limit holds for them.) On a GPU cuDNN benchmarks its
    convolutions at the first call.
    """

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    copy = FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)
    together: Callable[P, R] = torch.compile(copy, dynamic=False, mode=_MODES[how])

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with fastest_convolutions():
            return together(*args, **kwargs)

    return run


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let cuDNN benchmark its convolutions, which pays off where all batches have one size.

    The previous setting is restored.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def scores_of(model: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Return the model's logits for images, [n, k]; raise an error that names what went wrong."""
    try:
        logits = read_logits(model(images))
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise no_memory(images) from error
    except (DeformRSError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a model may raise anything, and even call sys.exit()
        if "allocate memory" in first_line(error):  # a CPU has no exception of its own for it
            raise no_memory(images) from error
        raise ModelError(
            "the model's output",
            f"an error ({reason_of(error)})",
            f"must be logits for {images.dtype} images of shape {tuple(images.shape)} "
            f"on {images.device}",
            "give the image the precision, channels and size that the model wants (files: by "
            "--resize, --crop and --channels, or the preparation of a NetworkSpec)",
        ) from error
    if len(logits) != len(images):
        raise ModelError(
            "the model's output",
            f"{logits.dtype} of shape {tuple(logits.shape)}",
            f"must be floating-point logits of shape ({len(images)}, number of classes)",
            "wrap the model so that it returns them",
        )
    if logits.shape[1] < 2:
        raise ModelError(
            "the model's output",
            f"{logits.shape[1]} score(s) per image, of shape {tuple(logits.shape)}",
            "must have one for each class, two for a binary classifier",
            _TWO_SCORES,
        )
    return logits


def read_logits(output: object) -> Tensor:
    """Return the logits in a network's output; raise if it is ambiguous which they are."""
    logits = output
    if isinstance(output, Mapping) and "logits" in output:
        logits = output["logits"]
    elif isinstance(getattr(output, "logits", None), Tensor):
        logits = output.logits  # type: ignore[attr-defined]
    elif isinstance(output, Mapping) and len(output) == 1:
        logits = next(iter(output.values()))
    elif isinstance(output, Sequence) and len(output) == 1:
        logits = output[0]
    if not isinstance(logits, Tensor):
        length = f" of {len(output)}" if isinstance(output, Mapping | Sequence) else ""
        raise ModelError(
            "the model's output",
            f"a {type(output).__name__}{length}",
            "must be logits, or hold them as its only entry or as 'logits'",
            "return the logits alone",
        )
    # Fully convolutional networks return N x K x 1 x 1.
    if logits.dim() > 2 and set(logits.shape[2:]) == {1}:
        logits = logits.flatten(1)
    if logits.dim() != 2 or not logits.is_floating_point():
        raise ModelError(
            "the model's output",
            f"{logits.dtype} of shape {tuple(logits.shape)}",
            "must be N x K floating-point logits",
            _TWO_SCORES if logits.dim() == 1 else "use a classifier of whole images",
        )
    return logits


def no_memory(images: Tensor) -> NoMemoryError:
    """Return the error for a batch that does not fit into memory."""
    count, channels, height, width = images.shape
    return NoMemoryError(
        "the memory of the device",
        f"too small for {count} images of {channels} x {height} x {width} at once",
        "must hold a batch",
        "choose a smaller batch size, or resize the images",
    )
