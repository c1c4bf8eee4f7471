"""Units: quantities with their unit, and sizes in words."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from deformrs.units import scaled_size, shown_size


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
