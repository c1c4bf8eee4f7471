"""Units of deformation parameters: how quantities are read and displayed.

Inside the package an angle is in radians, a length in units of half the shorter image side, and a
scaling or a shear is a fraction. They are displayed in degrees, pixels and per cent.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from deformrs.errors import InputError
from deformrs.rounding import float_down, format_down, format_up

Size = tuple[int, int]
"""Height and width of an image in pixels."""

# Pi lies between these two, so degrees can be rounded in either direction.
PI_BELOW, PI_ABOVE = Fraction(3141592653589793238, 10**18), Fraction(3141592653589793239, 10**18)


def unit_px(size: Size) -> float:
    """Return the pixels in one unit of length, half the shorter side of the image."""
    return min(size) / 2


@dataclass(frozen=True)
class _Form:
    """How a unit is written, read and rounded."""

    words: str
    symbol: str
    suffix: str
    column: str
    decimals: int
    example: str
    accepted: tuple[str, ...]
    accepted_examples: str
    most: float
    """The largest scale of noise that makes sense: half a turn, the shorter side, 100 %."""
    most_words: str
    plain: str
    """What a plain number is."""
    article: str


class Unit(Enum):
    """The unit of a deformation parameter, and how it is displayed: 30°, 4.2 px, 20 %, 0.1."""

    ANGLE = "angle"
    LENGTH = "length"
    FRACTION = "fraction"
    COEFFICIENT = "coefficient"

    @property
    def words(self) -> str:
        """The displayed unit in words: "degrees"."""
        return _FORMS[self].words

    @property
    def symbol(self) -> str:
        """The sign after a displayed number: "°", " px", " %" or nothing."""
        return _FORMS[self].symbol

    @property
    def suffix(self) -> str:
        """The suffix of a quantity on the command line: "deg", "px", "%" or nothing."""
        return _FORMS[self].suffix

    @property
    def column(self) -> str:
        """The unit as part of a column name: "degrees", "px", "percent" or "coefficient"."""
        return _FORMS[self].column

    @property
    def example(self) -> str:
        """A quantity as given on the command line: "10deg"."""
        return _FORMS[self].example

    @property
    def decimals(self) -> int:
        """The number of decimals of a displayed radius."""
        return _FORMS[self].decimals

    def factor(self, size: Size) -> float:
        """Return the factor from a parameter to its displayed value."""
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
        """Return a setting in the displayed unit, to four digits. Guarantees use `show_down`.

        >>> Unit.ANGLE.show(math.pi / 2, (28, 28))
        '90°'
        """
        return f"{value * self.factor(size):.4g}{self.symbol}"

    def show_down(self, value: float, size: Size, decimals: int = 2) -> str:
        """Return `value` in the displayed unit, never above the true figure.

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
        return format_down(exact, decimals) + self.symbol

    def radius_in(self, suffix: str, radius: float, size: Size) -> float:
        """Return a radius in "deg", "rad", "px" or "%", rounded down.

        >>> Unit.LENGTH.radius_in("px", 0.5, (28, 28))
        7.0
        """
        known = {"deg": Unit.ANGLE, "°": Unit.ANGLE, "rad": Unit.ANGLE}
        known |= {"px": Unit.LENGTH, "%": Unit.FRACTION}
        if known.get(suffix) is not self:
            fitting = [repr(s) for s, unit in known.items() if unit is self]
            raise InputError(
                "the unit",
                repr(suffix),
                f"must be a unit of the {self.value}",
                ", ".join(fitting) if fitting else "it has none: use radius",
            )
        if suffix == "rad" or math.isinf(radius):
            return radius
        if suffix == "px":
            return float_down(Fraction(radius) * Fraction(min(size), 2))
        if suffix == "%":
            return float_down(Fraction(radius) * 100)
        return float_down(Fraction(radius) * 180 / PI_ABOVE)

    @property
    def article(self) -> str:
        """The kind of quantity with its article: "an angle with its unit"."""
        return _FORMS[self].article

    def format_down(self, displayed: Fraction) -> str:
        """Return a value that is already in the displayed unit, rounded down, with its symbol.

        >>> Unit.ANGLE.format_down(Fraction(299999, 10000))
        '29.99°'
        """
        return format_down(displayed, self.decimals) + self.symbol


def shown_size(low: float | Fraction, high: float | Fraction) -> str:
    """Return in words at which sizes scaling by every α from `low` to `high` shows the content.

    The content is magnified by 1/α: α > 1 shows it smaller.

    Guarantee: every size in the words is that of an α in the range. A single α, which has no such
    figure in general, is rounded to nearest ("about").

    >>> shown_size(Fraction("0.8"), Fraction("1.2"))
    'shown at 84 to 125 % of its size'
    >>> shown_size(Fraction(10, 11), 1)
    'shown at 100 to 110 % of its size'
    >>> shown_size(-0.2, 2.2)
    'shown at 46 % of its size or larger'
    """
    least = 100 / Fraction(high)
    if low <= 0:
        return f"shown at {format_up(least, 0)} % of its size or larger"
    most = 100 / Fraction(low)
    decimals = next((d for d in range(3) if most - least >= 20 / 10**d), 3)
    if math.ceil(least * 10**decimals) > math.floor(most * 10**decimals):
        return f"shown at about {float(least):.4g} % of its size"
    if least == most:
        return f"shown at {format_down(most, 0)} % of its size"
    ends = [format_up(least, decimals), format_down(most, decimals)]
    if decimals and all(end.endswith("." + "0" * decimals) for end in ends):
        ends = [end.partition(".")[0] for end in ends]
    return f"shown at {' to '.join(ends)} % of its size"


def scaled_size(radius: float | Fraction) -> str:
    """Return in words at which sizes the content is shown for every |α - 1| up to a radius.

    >>> scaled_size(0.2)
    'shown at 84 to 125 % of its size'
    """
    if radius == math.inf:
        return "shown at any size"
    return shown_size(1 - Fraction(radius), 1 + Fraction(radius))


_FORMS = {
    Unit.ANGLE: _Form(
        "degrees",
        "°",
        "deg",
        "degrees",
        2,
        "10deg",
        ("deg", "°", "rad"),
        "'54deg' or '0.94rad'",
        math.pi,
        "π",
        "a number is in radians",
        "an angle with its unit",
    ),
    Unit.LENGTH: _Form(
        "pixels",
        " px",
        "px",
        "px",
        2,
        "5px",
        ("px", ""),
        "'4px', or '0.25' of half the shorter side",
        2.0,
        "2 half sides",
        "a number is in halves of the shorter image side",
        "a length",
    ),
    Unit.FRACTION: _Form(
        "per cent",
        " %",
        "%",
        "percent",
        2,
        "20%",
        ("%", ""),
        "'20%' or '0.2'",
        1.0,
        "1",
        "a number is a fraction",
        "a fraction",
    ),
    Unit.COEFFICIENT: _Form(
        "coefficient",
        "",
        "",
        "coefficient",
        4,
        "0.1",
        ("",),
        "'0.1'",
        2.0,
        "2",
        "displacements are in halves of the shorter image side",
        "a plain number",
    ),
}

_QUANTITY = re.compile(
    r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(deg|°|rad|px|%|)\s*", re.ASCII
)


def has_unit(text: str) -> bool:
    """Return whether a text is a number with a unit, whichever it is.

    >>> has_unit("30deg"), has_unit("30"), has_unit("deg")
    (True, False, False)
    """
    match = _QUANTITY.fullmatch(text)
    return match is not None and match[2] != ""


def check_scale(name: str, given: float | str, unit: Unit, size: Size, law: str) -> None:
    """Raise if a scale of noise makes no sense for parameters of that unit.

    `law` is how the scale is to be written, with "{}" for the quantity: "Gaussian('{}')".

    >>> check_scale("the scale of Gaussian", 20, Unit.ANGLE, (28, 28), "Gaussian('{}')")
    Traceback (most recent call last):
    deformrs.errors.InputError: the scale of Gaussian is 20 (1,146°); it must be at most π (180°): \
a number is in radians; write Gaussian('20deg')
    """
    value = parse_quantity(given, unit, size, name) if isinstance(given, str) else given
    form = _FORMS[unit]
    if not value > form.most:
        return
    meant, with_unit = unit.example, isinstance(given, str) and has_unit(given)
    if not with_unit and parse_quantity(f"{value:.10g}{unit.suffix}", unit, size) <= form.most:
        meant = f"{value:.10g}{unit.suffix}"
    written = law.format(meant)
    if not unit.suffix:
        written = written.replace("'", "")  # a number without a unit is no text

    def displayed(number: float) -> str:
        figure = number * unit.factor(size)
        return (
            f" ({figure:,.0f}{unit.symbol})" if figure >= 100 else f" ({figure:.4g}{unit.symbol})"
        )

    raise InputError(
        name,
        (given if isinstance(given, str) else f"{given:g}") + displayed(value) * bool(unit.symbol),
        f"must be at most {form.most_words}" + displayed(form.most) * bool(unit.symbol),
        f"e.g. {written}" if with_unit else f"{form.plain}; write {written}",
    )


def parse_quantity(
    text: str, unit: Unit, size: Size | None = None, name: str | None = None
) -> float:
    """Return the number that `54deg`, `0.94rad`, `4px` or `20%` stands for inside the package.

    Pixels need the `size` of the image. `name` is what errors call the quantity.

    >>> parse_quantity("4px", Unit.LENGTH, (28, 28))
    0.2857142857142857
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _FORMS[unit].accepted:
        raise InputError(
            name or f"the {unit.value}",
            repr(text),
            "must be a number with its unit" if name is None else f"must be {unit.article}",
            _FORMS[unit].accepted_examples if name is None else f"e.g. {unit.example}",
        )
    number, suffix = float(match[1]), match[2]
    if suffix in ("deg", "°"):
        return math.radians(number)
    if suffix == "%":
        return number / 100
    if suffix == "px":
        if size is None:
            raise InputError(
                name or "the length",
                repr(text),
                "needs an image size to count pixels on",
                "pass size=(h, w)",
            )
        return number / unit_px(size)
    return number


FEW = 6
"""Radii that a table has room for."""


def round_radii(largest: Fraction, unit: Unit) -> list[Fraction]:
    """Return a few multiples of a round number, none above `largest`.

    >>> [float(number) for number in round_radii(Fraction("29.9"), Unit.ANGLE)]
    [5.0, 10.0, 15.0, 20.0, 25.0]
    """
    if largest <= 0:
        return []
    power = Fraction(10) ** (math.floor(math.log10(largest)) - 1)
    steps = [power * factor for factor in (1, 2, 5, 10, 20, 50)]
    if unit is Unit.ANGLE and largest > 60:
        steps = [Fraction(15), Fraction(30), Fraction(45)]
    step = next(step for step in steps if largest / step < FEW)
    return [step * k for k in range(1, math.floor(largest / step) + 1)]
