"""Every registered family of deformations, and what it is shown with if nobody says otherwise."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.checks import check_integer, check_seed
from deformrs.deformations import Compose, Deformation
from deformrs.errors import InputError
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.space import Block, Space
from deformrs.units import Size, parse_quantity


@dataclass(frozen=True)
class Habit:
    """A law and its scale, and the strongest deformation shown without a classifier.

    `strongest` is the root mean square over the parameters. Both are quantities with their unit.
    """

    law: type[Uniform] | type[Gaussian]
    scale: str
    strongest: str


HABITS = {
    "rotation": Habit(Uniform, "30deg", "60deg"),
    "translation": Habit(Gaussian, "0.1", "0.3"),
    "scaling": Habit(Uniform, "30%", "40%"),
    "shear": Habit(Uniform, "30%", "60%"),
    "affine": Habit(Gaussian, "0.06", "0.15"),
    "dct": Habit(Gaussian, "0.06", "0.12"),
    "vector_field": Habit(Gaussian, "0.5px", "0.04"),
}
"""Noise under which classifiers of digits and of photographs mostly keep their answer, and
deformations under which people do."""

UNKNOWN, UNKNOWN_STRONGEST = Gaussian(0.1), 0.2
"""The same for families that the table does not know, in whatever their parameters measure."""


def suggested_noise(space: Space) -> NoiseLaw:
    """The noise of the table, one law a block for a composition.

    >>> from deformrs import Compose, Shear, Translation
    >>> suggested_noise(Compose(Shear(), Translation()).space((28, 28)))
    Independent(Uniform(scale=0.3), Gaussian(scale=0.1))
    """
    laws = [_suggested(block, space.size) for block in space.blocks]
    return laws[0] if len(laws) == 1 else Independent(*laws)


def default_families() -> list[Deformation]:
    """The first example of every registered family, the user's own among them.

    The families of the table come first, then compositions, then those of other authors.
    """
    order = [*HABITS, Compose.name]
    names = [name for name in order if name in Deformation.registry]
    names += sorted(set(Deformation.registry) - set(order))
    return [_first_example(name) for name in names]


def family_title(deformation: Deformation) -> str:
    """How a family is called in a heading.

    >>> from deformrs import Compose, DCT, Rotation, VectorField
    >>> family_title(DCT(3))
    'dct (k = 3, basis = dct)'
    >>> family_title(Compose(Rotation(), VectorField()))
    'rotation, then vector field'
    """
    if isinstance(deformation, Compose):
        return ", then ".join(family_title(part) for part in deformation.parts)
    fields = [(f.name, getattr(deformation, f.name)) for f in dataclasses.fields(deformation)]  # type: ignore[arg-type]
    words = ", ".join(f"{name} = {value}" for name, value in fields)
    return deformation.name.replace("_", " ") + (f" ({words})" if words else "")


def growing_params(deformation: Deformation, size: Size, count: int, seed: int = 0) -> Tensor:
    """Parameters of growing strength: [count, d], the last of the table's strongest.

    A single parameter is positive, several go in one random direction.
    """
    check_integer("the number of deformations", count, least=1)
    steps = np.arange(1, count + 1) / count
    return torch.from_numpy(steps[:, None] * _directions(deformation, size, 1, seed))


def varied_params(deformation: Deformation, size: Size, count: int, seed: int = 0) -> Tensor:
    """Parameters as different as possible: [count, d], the first two of the strongest.

    A single parameter goes one way and the other in turn, several in random directions.
    """
    check_integer("the number of deformations", count, least=1)
    pairs = np.arange(count) // 2
    strengths = 1 - pairs / (pairs[-1] + 1)
    signs = np.where(np.arange(count) % 2, -1.0, 1.0)
    directions = _directions(deformation, size, count, seed)
    return torch.from_numpy((signs * strengths)[:, None] * directions)


def _directions(deformation: Deformation, size: Size, count: int, seed: int) -> NDArray[np.float64]:
    """Of the strongest of the table, in the root mean square over each block: [count, d]."""
    check_seed("seed", seed)
    space = deformation.space(size)
    generator = np.random.default_rng(seed)
    directions = np.ones((count, space.dim))
    for block, part in zip(space.blocks, space.slices, strict=True):
        if block.dim > 1:
            draws = generator.standard_normal((count, block.dim))
            directions[:, part] = draws / np.sqrt(np.mean(draws**2, axis=1, keepdims=True))
        directions[:, part] *= _strongest(block, size)
    return directions


def _suggested(block: Block, size: Size) -> Uniform | Gaussian:
    habit = HABITS.get(block.family)
    if habit is None:
        return UNKNOWN
    return habit.law(parse_quantity(habit.scale, block.unit, size))


def _strongest(block: Block, size: Size) -> float:
    habit = HABITS.get(block.family)
    if habit is None:
        return UNKNOWN_STRONGEST
    return parse_quantity(habit.strongest, block.unit, size)


def _first_example(name: str) -> Deformation:
    family = Deformation.registry[name]
    try:
        examples = family.examples()  # type: ignore[attr-defined]
    except TypeError as error:
        raise InputError(
            f"the family {name!r}",
            f"without an example ({error})",
            "must give one to be drawn",
            "override examples(), or say which deformations to draw",
        ) from error
    if not (isinstance(examples, tuple | list) and examples):
        raise InputError(
            f"the family {name!r}",
            "without an example",
            "must give one to be drawn",
            "override examples(), or say which deformations to draw",
        )
    example: Deformation = examples[0]
    return example
