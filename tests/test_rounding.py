"""Every bound and every printed figure rounds to the safe side, and only a little.

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
    complement_down,
    complement_up,
    float_down,
    format_down,
    format_up,
    percent_down,
    percent_up,
    round_down,
    round_up,
)
from deformrs.statistics import (
    anytime_lower,
    anytime_upper,
    clopper_pearson_lower,
    clopper_pearson_upper,
    sign_test,
)
from deformrs.units import Unit
from exact import (
    HP,
    high,
    incomplete_beta,
    log_e,
    upper_tail,
)

FINITE = st.floats(-1e15, 1e15)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.floats(-1e300, 1e300), st.sampled_from([2.0**-40, 2.0**-47, 2.0**-52, 1e-9, 0.1]))
def test_guarantee_round_down_and_round_up_leave_the_stated_margin(
    value: float, relative: float
) -> None:
    """300 inputs, zero and denormals among them."""
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


NUMBERS = FINITE | st.builds(Fraction, st.integers(-(10**9), 10**9), st.integers(1, 10**6))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(NUMBERS, st.integers(0, 9))
@example(0.3, 1)
@example(-0.001, 2)
def test_format_down_is_exact(value: float | Fraction, decimals: int) -> None:
    """300 floats and fractions: the nearest printable number on the safe side."""
    exact, step = Fraction(value), Fraction(1, 10**decimals)
    text = format_down(value, decimals)
    assert exact - step < Fraction(text) <= exact
    assert len(text.partition(".")[2]) == decimals
    assert "E" not in text


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.integers(1, 10**7), st.data())
def test_percent_down_is_exact(whole: int, data: st.DataObject) -> None:
    """300 inputs. 100.0 is printed only for all of them."""
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


@settings(deadline=None, derandomize=True, max_examples=300)
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
    """300 figures, whole tenths of degrees (which no double hits) among them."""
    factor, suffix, extra = shown_unit(unit, size)
    text = unit.show_down(value, size, decimals)
    assert text.endswith(suffix)
    shown, exact = HP.mpf(text.removesuffix(suffix)), high(value) * factor
    assert exact - HP.mpf(10) ** -(decimals + extra) < shown <= exact


def test_the_reference_agrees_with_mpmath_itself() -> None:
    """20 inputs: the series above against mpmath's own incomplete beta function."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = (Fraction(int(k), 2) for k in rng.integers(1, 200, size=2))
        x = Fraction(float(rng.uniform(0.01, 0.99)))
        theirs = HP.betainc(high(a), high(b), 0, high(x), regularized=True)
        assert abs(incomplete_beta(a, b, x) - theirs) < HP.mpf(10) ** -45


ALPHAS = st.floats(math.log(1e-6), math.log(0.4)).map(math.exp)


@st.composite
def tallies(draw: st.DrawFn) -> tuple[int, int]:
    """(hits, trials): trials spread over six orders of magnitude, hits often near an end.

    Exactly 1000 is where the inverse beta function that SciPy takes from Boost changes methods.
    """
    trials = round(10 ** draw(st.floats(0, 6)))
    some = st.floats(0, 6).map(lambda exponent: round(10**exponent) - 1)
    few = min(trials, draw(some | st.sampled_from([998, 999, 1000, 1001])))
    return draw(st.sampled_from([few, trials - few])), trials


@settings(deadline=None, derandomize=True, max_examples=300)
@given(tallies(), ALPHAS)
@example((1_000_000, 1_000_000), 1e-6)
@example((1, 1_000_000), 0.4)
@example((1000, 703_722), 0.00017865569728922772)
@example((151_984, 152_983), 0.00014482891571133345)
@example((634_025, 635_024), 0.00010101599746783948)
@example((174_556, 175_555), 0.0007293832933016499)
def test_guarantee_clopper_pearson_lower_never_exceeds_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """300 inputs. The tail at the result is at most alpha; a part in 1e9 higher it is more."""
    hits, trials = tally
    lower = Fraction(clopper_pearson_lower(hits, trials, alpha))
    if hits == 0:
        assert lower == 0
        return
    assert upper_tail(hits, trials, lower) <= high(alpha)
    assert upper_tail(hits, trials, min(Fraction(1), lower * (1 + Fraction(1, 10**9)))) > alpha


@settings(deadline=None, derandomize=True, max_examples=300)
@given(tallies(), ALPHAS)
@example((0, 1_000_000), 1e-6)
@example((999_999, 1_000_000), 0.4)
@example((1, 1_000_000), math.exp(-1))
@example((999, 230_900), 2.192612974885905e-05)
@example((999, 82_133), 3.2460959691235624e-05)
@example((999, 43_196), 0.17311384969458557)
def test_guarantee_clopper_pearson_upper_never_falls_below_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """300 inputs. P(Bin <= hits) at the result is at most alpha; a part in 1e9 lower, more."""
    hits, trials = tally
    upper = Fraction(clopper_pearson_upper(hits, trials, alpha))
    assert upper <= 1
    if hits == trials:
        assert upper == 1
        return
    if upper < 1:
        assert 1 - upper_tail(hits + 1, trials, upper) <= high(alpha)
    assert 1 - upper_tail(hits + 1, trials, upper * (1 - Fraction(1, 10**9))) > alpha


@settings(deadline=None, derandomize=True, max_examples=300)
@given(tallies())
@example((1_000_000, 1_000_000))
@example((9, 1075))
@example((1054, 1075))
def test_guarantee_sign_test_never_falls_below_the_exact_p_value(tally: tuple[int, int]) -> None:
    """300 inputs of up to 1e6 answers, tails down to 1e-300000."""
    first, total = tally
    p_value = sign_test(first, total - first)
    exact = min(HP.mpf(1), 2 * upper_tail(max(first, total - first), total, Fraction(1, 2)))
    # The reference itself is good to 50 digits. Nobody asks for less than 1e-100.
    assert high(p_value) >= exact * (1 - HP.mpf(10) ** -40)
    assert high(p_value) <= exact * (1 + HP.mpf(10) ** -9) + 2 * HP.mpf(10) ** -100


@settings(deadline=None, derandomize=True, max_examples=200)
@given(tallies(), ALPHAS)
@example((1_000_000, 1_000_000), 1e-6)
@example((1, 1_000_000), 0.4)
def test_guarantee_anytime_lower_never_exceeds_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """200 inputs. The evidence against the result is at least 1/alpha; 1e-6 higher it is less."""
    hits, trials = tally
    lower = Fraction(anytime_lower(hits, trials, alpha))
    if hits == 0:
        assert lower == 0
        return
    assert 0 < lower < Fraction(hits, trials)
    assert log_e(hits, trials, lower) >= -HP.log(high(alpha))
    higher = lower + Fraction(1, 10**6)
    assert higher >= Fraction(hits, trials) or log_e(hits, trials, higher) < -HP.log(high(alpha))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(tallies(), ALPHAS)
def test_guarantee_anytime_upper_never_falls_below_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """200 inputs: it is the lower bound of the misses, complemented upwards."""
    hits, trials = tally
    exact = 1 - Fraction(anytime_lower(trials - hits, trials, alpha))
    assert exact <= Fraction(anytime_upper(hits, trials, alpha)) <= exact + Fraction(1, 2**52)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.floats(0, 1))
def test_complements_round_in_the_direction_of_their_names(p: float) -> None:
    """300 inputs."""
    exact = 1 - Fraction(p)
    assert exact <= Fraction(complement_up(p)) <= exact + Fraction(1, 2**52)
    assert exact - Fraction(1, 2**52) <= Fraction(complement_down(p)) <= exact


def test_complements_are_exact_where_they_can_be() -> None:
    for p in (0.5, 0.52, 0.75, 1.0):
        assert complement_up(p) == 1 - p
    assert (complement_up(0.0), complement_down(0.0), complement_down(1.0)) == (1, 1 - 2**-53, 0)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.fractions(-(10**6), 10**6) | FINITE.map(Fraction))
@example(Fraction(1, 3))
@example(Fraction(2, 3))
def test_guarantee_float_down_is_never_above(value: Fraction) -> None:
    """300 inputs: the next float is above."""
    found = float_down(value)
    assert Fraction(found) <= value < Fraction(math.nextafter(found, math.inf))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(NUMBERS, st.integers(0, 9))
@example(0.3, 1)
def test_format_up_mirrors_format_down(value: float | Fraction, decimals: int) -> None:
    """300 floats and fractions."""
    exact, step = Fraction(value), Fraction(1, 10**decimals)
    text = format_up(value, decimals)
    assert exact <= Fraction(text) < exact + step
    assert len(text.partition(".")[2]) == decimals
    assert Fraction(text) == -Fraction(format_down(-Fraction(value), decimals))


def test_percentages_have_one_decimal_unless_told() -> None:
    assert (percent_down(1, 3), percent_up(1, 3)) == ("33.3", "33.4")
    assert (percent_down(0, 3), percent_up(0, 3), percent_up(3, 3)) == ("0.0", "0.0", "100.0")
    assert (percent_down(2, 3, 0), percent_up(2, 3, 2)) == ("66", "66.67")


def test_guarantee_round_down_and_up_leave_infinity() -> None:
    for infinity in (math.inf, -math.inf):
        assert round_down(infinity) == round_up(infinity) == infinity
