"""Units: quantities with their unit, and sizes in words."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest

from deformrs.errors import InputError
from deformrs.units import PI_ABOVE, Unit, check_scale, scaled_size, shown_size


@pytest.mark.parametrize("radius", [0.0, 1e-9, 0.003, 0.0123, 0.2, 1 / 3, 0.75, 0.999, 1.0, 1.7])
def test_guarantee_shown_size_lies_inside_the_range(radius: float) -> None:
    low, high = 1 - Fraction(radius), 1 + Fraction(radius)
    words = shown_size(low, high)
    assert words == scaled_size(radius)
    if "about" in words:
        assert radius < 1e-4
        return
    figures = [Fraction(figure) / 100 for figure in re.findall(r"[\d.]+", words)]
    assert all(low <= 1 / size <= high for size in figures)
    assert words.endswith("or larger") == (radius >= 1)
    assert (len(figures) == 1) == (radius in (0.0, 1.0, 1.7))


def test_sizes_in_words() -> None:
    """100/1.2 = 83.33, 100/0.8 = 125; 100/1.01 = 99.0099, 100/0.99 = 101.0101."""
    assert shown_size(Fraction("0.8"), Fraction("1.2")) == "shown at 84 to 125 % of its size"
    assert shown_size(1, Fraction("1.5")) == "shown at 67 to 100 % of its size"
    assert scaled_size(Fraction("0.01")) == "shown at 99.1 to 101.0 % of its size"
    assert scaled_size(0) == "shown at 100 % of its size"
    assert shown_size(Fraction("1.1"), Fraction("1.1")) == "shown at about 90.91 % of its size"
    assert scaled_size(float("inf")) == "shown at any size"


def test_scales_of_noise_are_at_most_what_makes_sense() -> None:
    """Half a turn, the shorter side, 100 %: a number in the wrong unit is usually above."""
    spelt: dict[tuple[float | str, Unit], str] = {
        (20, Unit.ANGLE): "is 20 (1,146°); it must be at most π (180°): a number is in radians; "
        "write Law('20deg')",
        (400.0, Unit.ANGLE): "write Law('10deg')",
        ("200deg", Unit.ANGLE): "is 200deg (200°); it must be at most π (180°): e.g. Law('10deg')",
        (4, Unit.LENGTH): "is 4 (128 px); it must be at most 2 half sides (64 px): a number is in "
        "halves of the shorter image side; write Law('4px')",
        (30, Unit.FRACTION): "is 30 (3,000 %); it must be at most 1 (100 %): a number is a "
        "fraction; write Law('30%')",
        (5, Unit.COEFFICIENT): "is 5; it must be at most 2: displacements are in halves of the "
        "shorter image side; write Law(0.1)",
    }
    for (scale, unit), words in spelt.items():
        with pytest.raises(InputError, match=re.escape(words)):
            check_scale("the scale", scale, unit, (64, 100), "Law('{}')")
    limits: list[tuple[float | str, Unit]] = [
        *((math.pi, Unit.ANGLE), ("180deg", Unit.ANGLE), ("64px", Unit.LENGTH)),
        *(("100%", Unit.FRACTION), (2.0, Unit.LENGTH), (2, Unit.COEFFICIENT)),
    ]
    for most, unit in limits:
        check_scale("the scale", most, unit, (64, 100), "Law('{}')")


@pytest.mark.parametrize("radius", [1e-12, 0.1, 0.3, math.radians(30), 1.0, math.pi, 7.7])
def test_guarantee_radius_in_never_rounds_up(radius: float) -> None:
    exact = Fraction(radius)
    assert Fraction(Unit.ANGLE.radius_in("deg", radius, (9, 9))) <= exact * 180 / PI_ABOVE
    assert Fraction(Unit.LENGTH.radius_in("px", radius, (9, 11))) <= exact * Fraction(9, 2)
    assert Fraction(Unit.FRACTION.radius_in("%", radius, (9, 9))) <= exact * 100
    assert Unit.ANGLE.radius_in("rad", radius, (9, 9)) == radius
