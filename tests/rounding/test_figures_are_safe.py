"""Every printed figure rounds to the safe side, exactly.

The references are exact (tests/exact.py). Nothing here is statistical: the seeds are fixed, no
input is allowed to fail, and each test says how many it generates.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deformrs.rounding import (
    array_down,
    array_up,
    format_down,
    percent_down,
    round_down,
    round_up,
)
from deformrs.units import Unit
from exact import (
    HP,
    high,
)

FINITE = st.floats(-1e15, 1e15)


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(st.floats(-1e300, 1e300), st.sampled_from([2.0**-40, 2.0**-47, 2.0**-52, 1e-9, 0.1]))
def test_guarantee_round_down_and_round_up_leave_the_stated_margin(
    value: float, relative: float
) -> None:
    """1,000 inputs, zero and denormals among them."""
    exact, margin = Fraction(value), abs(Fraction(value)) * Fraction(relative)
    spare = margin / 10**6 + abs(exact) / 2**51 + Fraction(1, 2**1073)
    down, up = Fraction(round_down(value, relative)), Fraction(round_up(value, relative))
    assert exact - margin - spare <= down <= exact - margin
    assert exact + margin <= up <= exact + margin + spare
    assert array_down(np.array([value]), relative)[0] == round_down(value, relative)
    assert array_up(np.array([value]), relative)[0] == round_up(value, relative)


def test_arrays_round_in_the_direction_of_their_names_at_infinity() -> None:
    ends = np.array([-np.inf, np.inf])
    assert array_down(ends)[0] == -np.inf
    assert array_down(ends)[1] > 1e300
    assert array_up(ends)[0] < -1e300
    assert array_up(ends)[1] == np.inf


NUMBERS = st.one_of(FINITE, st.fractions(-(10**9), 10**9))


@settings(deadline=None, derandomize=True, max_examples=2000)
@given(NUMBERS, st.integers(0, 9))
@example(0.3, 1)
@example(-0.001, 2)
def test_format_down_is_exact(value: float | Fraction, decimals: int) -> None:
    """2,000 floats and fractions: the nearest printable number on the safe side."""
    exact, step = Fraction(value), Fraction(1, 10**decimals)
    text = format_down(value, decimals)
    assert exact - step < Fraction(text) <= exact
    assert len(text.partition(".")[2]) == decimals
    assert "E" not in text


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(st.integers(1, 10**7), st.data())
def test_percent_down_is_exact(whole: int, data: st.DataObject) -> None:
    """1,000 inputs. 100.0 is printed only for all of them."""
    part = data.draw(st.integers(0, whole) | st.just(whole - 1))
    decimals = data.draw(st.integers(0, 4))
    exact, step = Fraction(100 * part, whole), Fraction(1, 10**decimals)
    text = percent_down(part, whole, decimals)
    assert exact - step < Fraction(text) <= exact
    assert (Fraction(text) == 100) == (part == whole)


def shown_unit(unit: Unit, size: tuple[int, int]) -> tuple[Any, str, int]:
    """One unit inside the package in the unit shown, how that is written, and extra decimals."""
    match unit:
        case Unit.ANGLE:
            return 180 / HP.pi, "°", 0
        case Unit.LENGTH:
            return HP.mpf(min(size)) / 2, " px", 0
        case Unit.FRACTION:
            return HP.mpf(100), " %", 0
        case Unit.COEFFICIENT:
            return HP.mpf(1), "", 2


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(
    st.sampled_from(Unit),
    st.floats(0, 1000) | st.integers(0, 1800).map(lambda k: math.radians(k / 10)),
    st.tuples(st.integers(1, 600), st.integers(1, 600)),
    st.integers(0, 6),
)
@example(Unit.ANGLE, math.pi, (28, 28), 2)
def test_units_are_shown_rounded_down(
    unit: Unit, value: float, size: tuple[int, int], decimals: int
) -> None:
    """1,000 figures, whole tenths of degrees (which no double hits) among them."""
    factor, suffix, extra = shown_unit(unit, size)
    text = unit.show_down(value, size, decimals)
    assert text.endswith(suffix)
    shown, exact = HP.mpf(text.removesuffix(suffix)), high(value) * factor
    assert exact - HP.mpf(10) ** -(decimals + extra) < shown <= exact
