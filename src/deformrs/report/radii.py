"""Radii in displayed units: as given by the user, rounded down from certificates, or round."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from deformrs.checks import is_real
from deformrs.errors import InputError
from deformrs.rounding import float_down as float_down
from deformrs.runs import Result
from deformrs.space import Block
from deformrs.units import Size, Unit, parse_quantity

_FINE = 9
_NOUNS = {"affine": "affine map", "dct": "DCT deformation"}


@dataclass(frozen=True)
class Radius:
    """A radius as given by the user: `10deg`, `5px`, `20%`, `0.065`.

    >>> from deformrs.space import Block
    >>> Radius("5px", Block("translation", 2, Unit.LENGTH)).label
    '5 px'
    """

    text: str
    block: Block

    @classmethod
    def from_displayed(cls, radius: Fraction, block: Block) -> Radius:
        """Return the radius of that number of degrees, pixels or per cent."""
        return cls(f"{float(radius):.10g}{block.unit.suffix}", block)

    @classmethod
    def from_value(cls, value: float, block: Block, size: Size) -> Radius:
        """Return a radius in the package's own unit, as text to ten digits."""
        if block.unit is Unit.LENGTH:  # of half sides, which are pixels of one size only
            return cls(f"{value:.10g}", block)
        return cls.from_displayed(Fraction(value * block.unit.factor(size)), block)

    def value(self, size: Size) -> float:
        """Return the radius in the package's own unit, on images of that size."""
        return self.block.reach(parse_quantity(self.text, self.block.unit, size))

    def displayed(self, size: Size) -> Fraction:
        """Return the radius in degrees, pixels or per cent, exactly as given in that unit."""
        text, suffix = self.text.replace("°", "deg").strip(), self.block.unit.suffix
        number = text.removesuffix(suffix).strip()
        if suffix and number != text:
            return Fraction(number)
        return Fraction(self.value(size) * self.block.unit.factor(size)).limit_denominator(10**9)

    @property
    def label(self) -> str:
        """The radius as given, with the symbol of its unit."""
        text = " ".join(self.text.split())
        text = re.sub(r"\s*deg$", "°", text)
        return re.sub(r"\s*(px|%|rad)$", r" \1", text)

    def holds(self, result: Result) -> bool:
        """Return whether the prediction is correct and certified at this radius."""
        return result.holds(self.value(result.certificate.space.size))


def parse_radii(texts: Iterable[str], block: Block, size: Size) -> tuple[Radius, ...]:
    """Return those of the texts that are radii in the unit of `block`."""
    radii = []
    for text in texts:
        try:
            value = parse_quantity(text, block.unit, size)
        except InputError:
            continue  # it may fit another deformation
        if is_real(value) and value >= 0:
            radii.append(Radius(text, block))
    return tuple(radii)


def sort_radii(radii: Iterable[Radius], size: Size) -> tuple[Radius, ...]:
    """Return the radii in rising order, equal ones once."""
    by_value = {radius.value(size): radius for radius in reversed(tuple(radii))}
    return tuple(by_value[value] for value in sorted(by_value))


@lru_cache(maxsize=2**16)
def displayed_radius(block: Block, radius: float, size: Size) -> Fraction:
    """Return a certified radius in the displayed unit.

    Guarantee: never above `radius`; exactly 180 degrees where every angle is covered.

    >>> import math
    >>> rotation = Block("rotation", 1, Unit.ANGLE, 2 * math.pi)
    >>> displayed_radius(rotation, math.pi, (28, 28))
    Fraction(180, 1)
    """
    if block.unit is Unit.ANGLE and is_full_turn(block, radius):
        return Fraction(180)
    text = block.unit.show_down(radius, size, decimals=_FINE)
    return Fraction(text.removesuffix(block.unit.symbol))


def radius_of(result: Result, k: int = 0) -> Fraction:
    """Return the certified radius of block `k` of a result in the displayed unit, rounded down."""
    certificate = result.certificate
    block, size = certificate.space.blocks[k], certificate.space.size
    return displayed_radius(block, certificate.radii[k], size)


def is_full_turn(block: Block, radius: float) -> bool:
    """Return whether the radius covers half a period both ways, and so every angle."""
    return block.is_whole(radius)


def family_noun(family: str) -> str:
    """Return the noun for one deformation of a family.

    >>> family_noun("affine")
    'affine map'
    """
    return _NOUNS.get(family, family.replace("_", " "))
