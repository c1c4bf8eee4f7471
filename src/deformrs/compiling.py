"""torch.compile, for a function that is called with tensors of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Literal, ParamSpec, TypeVar, get_args

import torch

from deformrs.errors import InputError

Compiled = Literal["no", "default", "max-autotune"]
"""How a function is compiled."""

P = ParamSpec("P")
R = TypeVar("R")

# CUDA graphs would copy every batch of pictures once more; batches are too large to need them.
_MODES = {"default": None, "max-autotune": "max-autotune-no-cudagraphs"}


def check_compiled(compiled: object) -> None:
    """One of the names that `Compiled` lists."""
    if compiled not in get_args(Compiled):
        names = ", ".join(get_args(Compiled))
        raise InputError("compiled", repr(compiled), f"must be one of {names}", "choose one")


def compiled(function: Callable[P, R], how: Compiled) -> Callable[P, R]:
    """The same function, to be compiled when it is first called; RuntimeError if it cannot be.

    torch.compile remembers by the code that a function has, and gives up in silence after eight
    shapes and models: so each function gets a copy of its code. (Where a model breaks the graph,
    the functions within share theirs with all models, and the limit holds for them.) On a GPU cuDNN
    tries its convolutions on the first call and takes the fastest.
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
    """cuDNN measures instead of guessing, which pays where all batches are of one size.

    What was set before is set again.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
