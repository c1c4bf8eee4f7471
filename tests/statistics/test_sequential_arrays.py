"""The any-time bound for many tallies at once, and the questions that need no search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deformrs.errors import InputError
from deformrs.statistics import anytime_lower, anytime_upper
from deformrs.statistics.sequential import (
    anytime_lowers,
    anytime_uppers,
    log_e_value,
    log_e_values,
    may_reach,
    reaches,
)


@st.composite
def tallies(draw: st.DrawFn) -> tuple[int, int]:
    trials = draw(st.integers(1, 100_000))
    return draw(st.integers(0, trials)), trials


def one(value: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([value])


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(tallies(), min_size=1, max_size=20), st.floats(1e-6, 0.4))
def test_arrays_hold_what_each_gives_alone(pairs: list[tuple[int, int]], alpha: float) -> None:
    """To 1e-11: vectorised logarithms may differ in their last bits, never by a margin."""
    hits, trials = np.array(pairs).T
    lowers = [anytime_lower(h, t, alpha) for h, t in pairs]
    uppers = [anytime_upper(h, t, alpha) for h, t in pairs]
    np.testing.assert_allclose(anytime_lowers(hits, trials, alpha), lowers, rtol=1e-11, atol=0)
    np.testing.assert_allclose(anytime_uppers(hits, trials, alpha), uppers, rtol=1e-11, atol=0)
    values = [log_e_value(h, t, 0.3) for h, t in pairs]
    np.testing.assert_allclose(log_e_values(hits, trials, 0.3), values, rtol=1e-11, atol=1e-11)


def test_nothing_is_excluded_without_a_hit_and_nothing_above_without_a_miss() -> None:
    hits, trials = np.array([0, 7]), np.array([7, 7])
    assert anytime_lowers(hits, trials, 0.01)[0] == 0.0
    assert anytime_uppers(hits, trials, 0.01)[1] == 1.0


def test_evidence_too_small_for_a_float_is_no_evidence() -> None:
    """10 hits of 100,000 against "at most one half", which scalar logarithms refuse."""
    assert log_e_value(10, 100_000, 0.5) == -math.inf
    assert not reaches(one(10), one(100_000), 0.001, 0.5)[0]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(tallies(), st.floats(1e-6, 0.49), st.floats(-1e-6, 1e-6))
def test_guarantee_reaches_only_where_the_lower_bound_does(
    tally: tuple[int, int], alpha: float, beside: float
) -> None:
    """At points beside the bound itself, down to its last bits; and not much too late."""
    hits, trials = tally
    lower = anytime_lower(hits, trials, alpha)
    if lower == 0:
        return
    for offset in (beside, beside * 1e-5, beside * 1e-9, 0.0):
        p = lower * (1 + offset)
        if p < 1 and reaches(one(hits), one(trials), alpha, p)[0]:
            assert lower >= p
    early = anytime_lower(hits, trials, alpha * (1 - 1e-6))
    assert not early or reaches(one(hits), one(trials), alpha, early)[0]


@pytest.mark.parametrize("alpha", [0.01, 0.3])
@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_guarantee_may_reach_is_false_only_where_no_outcome_reaches(p: float, alpha: float) -> None:
    """Every tally of up to 24 trials and everything that may follow it up to 24."""
    most = 24
    reached = {
        (h, t): anytime_lower(h, t, alpha) >= p for t in range(1, most + 1) for h in range(t + 1)
    }
    for hits, trials in reached:
        later = any(
            reached[h, t]
            for t in range(trials, most + 1)
            for h in range(hits, hits + t - trials + 1)
        )
        assert bool(may_reach(one(hits), one(trials), alpha, p, most)[0]) is later


@pytest.mark.parametrize(
    ("hits", "trials", "message"),
    [
        ([2, 11], [10, 10], r"is \(11, 10\)"),
        ([-1], [10], r"is \(-1, 10\)"),
        ([0], [0], "at least one trial"),
        ([1, 2], [10], "one for each image"),
        ([0.5], [1.0], "hits is float64"),
    ],
)
def test_impossible_tallies_are_refused(hits: list[int], trials: list[int], message: str) -> None:
    for function in (anytime_lowers, anytime_uppers):
        with pytest.raises(InputError, match=message):
            function(np.array(hits), np.array(trials), 0.05)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, math.nan])
def test_impossible_levels_are_refused(alpha: float) -> None:
    for function in (anytime_lowers, anytime_uppers):
        with pytest.raises(InputError, match=rf"alpha is {alpha}; it must lie in \(0, 0\.5\)"):
            function(one(5), one(10), alpha)
