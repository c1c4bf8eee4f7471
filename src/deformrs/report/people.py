"""Radii in degrees, pixels and per cent, never above the true figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from deformrs.rounding import format_down
from deformrs.runs import Result
from deformrs.space import Block
from deformrs.units import Size, Unit, unit_px

SIGNS = {Unit.ANGLE: "°", Unit.LENGTH: " px", Unit.FRACTION: " %", Unit.COEFFICIENT: ""}
COLUMNS = {
    Unit.ANGLE: "degrees",
    Unit.LENGTH: "px",
    Unit.FRACTION: "percent",
    Unit.COEFFICIENT: "coefficient",
}
_NOUNS = {"affine": "affine map", "dct": "DCT deformation"}
_FINE = 9


@lru_cache(maxsize=2**16)
def reach(block: Block, radius: float, size: Size) -> Fraction:
    """Guarantee: never above `radius` in the unit people use, 180 where every angle is covered.

    >>> import math
    >>> rotation = Block("rotation", 1, Unit.ANGLE, 2 * math.pi)
    >>> reach(rotation, math.pi, (28, 28))
    Fraction(180, 1)
    """
    if everywhere(block, radius) and block.unit is Unit.ANGLE:
        return Fraction(180)
    shown = block.unit.show_down(radius, size, decimals=_FINE)
    return Fraction(shown.removesuffix(SIGNS[block.unit]))


def everywhere(block: Block, radius: float) -> bool:
    """Is this half of the circle both ways, and so all of it?"""
    return block.period is not None and block.dim == 1 and radius >= block.period / 2


def float_down(value: Fraction) -> float:
    """Guarantee: the float is not above `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def decimals_of(unit: Unit) -> int:
    """How many decimals people are shown."""
    return 4 if unit is Unit.COEFFICIENT else 2


def shown_down(value: Fraction, unit: Unit) -> str:
    """A value that is already in the unit people use, rounded down, with its sign.

    >>> shown_down(Fraction(299999, 10000), Unit.ANGLE)
    '29.99°'
    """
    return format_down(value, decimals_of(unit)) + SIGNS[unit]


def noun(family: str) -> str:
    """What one deformation of the family is called."""
    return _NOUNS.get(family, family.replace("_", " "))


def noise_words(results: Sequence[Result]) -> str:
    """The noise of a run in words; a length is in pixels where all images agree on one."""
    first = results[0].certificate
    lengths = any(block.unit is Unit.LENGTH for block in first.space.blocks)
    sizes = {unit_px(result.certificate.space.size) for result in results}
    if lengths and len(sizes) > 1:
        return f"{first.law!r} noise, lengths in half the shorter side"
    return first.law.describe(first.space)
