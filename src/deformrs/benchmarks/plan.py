"""What is measured: networks, families, and how much of each."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from deformrs.checks import check_integer
from deformrs.deformations import (
    DCT,
    Affine,
    Deformation,
    Rotation,
    Scaling,
    Translation,
    VectorField,
)
from deformrs.errors import InputError
from deformrs.execution import Compiled
from deformrs.models import Precision
from deformrs.models.registry import of_library
from deformrs.noise import Gaussian, NoiseLaw, Uniform

Part = Literal["rows", "samples", "cost", "paths"]
PARTS: tuple[Part, ...] = ("rows", "samples", "cost", "paths")

FAMILIES: dict[str, tuple[Deformation, NoiseLaw]] = {
    "rotation": (Rotation(), Uniform(math.radians(54))),
    "scaling": (Scaling(), Uniform(0.5)),
    "translation": (Translation(), Gaussian(0.4)),
    "affine": (Affine(), Gaussian(0.1)),
    "dct": (DCT(2), Gaussian(0.1)),
    "vector_field": (VectorField(), Gaussian(0.1)),
}
"""The six of the paper, with scales from the middle of its ablations."""


@dataclass(frozen=True)
class Case:
    """A network, the families it is measured with, and how much is sampled at once.

    `n` samples for each of `images`, which share their batches; `naive_samples` in all for the
    plain loop.
    """

    network: str
    side: int
    channels: int
    batch_size: int
    n: int
    images: int
    naive_samples: int
    families: tuple[str, ...] = tuple(FAMILIES)


@dataclass(frozen=True)
class Size:
    """How much is done. A repetition takes about a second on the machine it is meant for."""

    name: str
    cases: tuple[Case, ...]
    repeats: int
    fixed_n: int
    subset: int
    cost_case: Case
    cost_n: tuple[int, ...]
    cost_sides: tuple[int, ...]
    cost_images: tuple[int, ...]
    paths_images: int
    paths_n: int


SMALL = Size(
    "small",
    (
        Case("small_cnn", 28, 1, 256, 500, 5, 800),
        Case("resnet18:width=16", 32, 3, 256, 100, 3, 400),
        Case("resnet18", 32, 3, 100, 100, 1, 100),
    ),
    repeats=5,
    fixed_n=1000,
    subset=100,
    cost_case=Case("small_cnn", 28, 1, 256, 2048, 1, 400),
    cost_n=(512, 1024, 2048, 4096, 8192),
    cost_sides=(28, 32, 64),
    cost_images=(10, 20, 40, 80, 160),
    paths_images=20,
    paths_n=1000,
)
LARGE = Size(
    "large",
    (
        Case("resnet18", 32, 3, 8192, 100_000, 5, 40_000),
        Case("resnet50", 224, 3, 512, 100_000, 1, 2_000, ("rotation",)),
        Case("timm:efficientnet_lite0", 224, 3, 512, 100_000, 1, 2_000, ("rotation",)),
    ),
    repeats=3,
    fixed_n=100_000,
    subset=500,
    cost_case=Case("resnet18", 32, 3, 8192, 20_480, 1, 4_000),
    cost_n=(25_000, 50_000, 100_000, 200_000, 400_000),
    cost_sides=(28, 32, 64, 224),
    cost_images=(100, 200, 500, 1000, 2000),
    paths_images=100,
    paths_n=20_000,
)
SIZES = {size.name: size for size in (SMALL, LARGE)}


@dataclass(frozen=True)
class Execution:
    """How the network is executed, in all that is measured."""

    device: str
    precision: Precision
    compiled: Compiled
    repeats: int

    def __post_init__(self) -> None:
        check_integer("repeats", self.repeats, least=1)


def chosen_cases(
    size: Size,
    *,
    networks: Sequence[str] = (),
    families: Sequence[str] = (),
    batch_size: int | None = None,
    n: int | None = None,
    images: int | None = None,
) -> list[Case]:
    """The cases of a size, narrowed to these networks and families and changed where asked.

    A network of a library that is not installed is left out unless it is named.
    """
    for name, value in (("batch_size", batch_size), ("n", n), ("pictures", images)):
        if value is not None:
            check_integer(name, value, least=1)
    known = [case.network for case in size.cases]
    for network in networks:
        _check_word("the network", network, known)
    for family in families:
        _check_word("the family", family, list(FAMILIES))
    cases = [
        dataclasses.replace(
            case,
            families=tuple(f for f in case.families if not families or f in families),
            batch_size=batch_size or case.batch_size,
            n=n or case.n,
            images=images or case.images,
            naive_samples=min(case.naive_samples, 10 * (n or case.n) * (images or case.images)),
        )
        for case in size.cases
        if case.network in networks or (not networks and _at_hand(case.network))
    ]
    left = [case for case in cases if case.families]
    if not left:
        raise InputError(
            "what is asked for",
            f"{', '.join(networks)} with {', '.join(families)}",
            "must be measured in this size",
            "choose another network or family",
        )
    return left


def chosen_parts(words: Sequence[str]) -> tuple[Part, ...]:
    """The parts that were named; all without any."""
    for word in words:
        _check_word("the part", word, list(PARTS))
    return tuple(part for part in PARTS if not words or part in words)


def _at_hand(network: str) -> bool:
    return not of_library(network) or find_spec(network.partition(":")[0]) is not None


def _check_word(name: str, word: str, known: list[str]) -> None:
    if word not in known:
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
        raise InputError(
            name,
            repr(word),
            "must be one of " + ", ".join(known),
            f"did you mean {near[0]!r}?" if near else "choose one",
        )
