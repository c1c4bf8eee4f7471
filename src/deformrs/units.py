"""Units that people use: degrees, pixels and per cent, in and out.

Inside the package an angle is in radians, a length in units of half the shorter image side,
a zoom or a shear is a fraction.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from fractions import Fraction

from deformrs.errors import InputError
from deformrs.rounding import format_down

Size = tuple[int, int]
"""Height and width of an image in pixels."""

# Pi lies between these two, so degrees can be rounded in either direction.
PI_BELOW, PI_ABOVE = Fraction(3141592653589793238, 10**18), Fraction(3141592653589793239, 10**18)


def unit_px(size: Size) -> float:
    """Pixels in one unit of length: half the shorter side of the image."""
    return min(size) / 2


class Unit(Enum):
    """What a deformation parameter measures, and how it is shown."""

    ANGLE = "angle"
    LENGTH = "length"
    FRACTION = "fraction"
    COEFFICIENT = "coefficient"

    @property
    def words(self) -> str:
        """The unit people use, spelt out."""
        return _SHOWN[self][0]

    def factor(self, size: Size) -> float:
        """What a parameter is multiplied with to be shown."""
        match self:
            case Unit.ANGLE:
                return 180 / math.pi
            case Unit.LENGTH:
                return unit_px(size)
            case Unit.FRACTION:
                return 100.0
            case Unit.COEFFICIENT:
                return 1.0

    def show(self, value: float, size: Size) -> str:
        """A setting in the unit people use, to four digits. Guarantees use `show_down`.

        >>> Unit.ANGLE.show(math.pi / 2, (28, 28))
        '90°'
        """
        return f"{value * self.factor(size):.4g}{_SHOWN[self][1]}"

    def show_down(self, value: float, size: Size, decimals: int = 2) -> str:
        """`value` in the unit people use, never above the true figure.

        >>> Unit.ANGLE.show_down(math.radians(30), (28, 28))
        '29.99°'
        """
        exact = Fraction(value)
        match self:
            case Unit.ANGLE:
                exact *= 180 / (PI_ABOVE if value >= 0 else PI_BELOW)
            case Unit.LENGTH:
                exact *= Fraction(min(size), 2)
            case Unit.FRACTION:
                exact *= 100
            case Unit.COEFFICIENT:
                decimals += 2
        return format_down(exact, decimals) + _SHOWN[self][1]


_SHOWN = {
    Unit.ANGLE: ("degrees", "°"),
    Unit.LENGTH: ("pixels", " px"),
    Unit.FRACTION: ("per cent", " %"),
    Unit.COEFFICIENT: ("coefficient", ""),
}

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(deg|°|rad|px|%|)\s*")
_SUFFIXES = {
    Unit.ANGLE: ("deg", "°", "rad"),
    Unit.LENGTH: ("px", ""),
    Unit.FRACTION: ("%", ""),
    Unit.COEFFICIENT: ("",),
}
_EXAMPLES = {
    Unit.ANGLE: "'54deg' or '0.94rad'",
    Unit.LENGTH: "'4px', or '0.25' of half the shorter side",
    Unit.FRACTION: "'20%' or '0.2'",
    Unit.COEFFICIENT: "'0.1'",
}


def parse_quantity(text: str, unit: Unit, size: Size | None = None) -> float:
    """Read `54deg`, `0.94rad`, `4px` or `20%` as a number in the package's own units.

    Pixels need the `size` of the image they are counted on.

    >>> parse_quantity("4px", Unit.LENGTH, (28, 28))
    0.2857142857142857
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _SUFFIXES[unit]:
        raise InputError(
            f"the {unit.value}", repr(text), "must be a number with its unit", _EXAMPLES[unit]
        )
    number, suffix = float(match[1]), match[2]
    if suffix in ("deg", "°"):
        return math.radians(number)
    if suffix == "%":
        return number / 100
    if suffix == "px":
        if size is None:
            raise InputError(
                "the length",
                repr(text),
                "needs an image size to count pixels on",
                "pass size=(h, w)",
            )
        return number / unit_px(size)
    return number
