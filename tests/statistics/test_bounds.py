"""Clopper-Pearson and the sign test: known values, order, and exact coverage."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, binom, binomtest

from deformrs.checks import LEAST_ALPHA
from deformrs.errors import InputError
from deformrs.statistics import (
    anytime_lower,
    anytime_upper,
    capped_lower,
    capped_upper,
    clopper_pearson_lower,
    clopper_pearson_upper,
    sign_test,
)
from deformrs.statistics.bounds import last_safe, last_safe_each
from exact import HP, log_e, upper_tail

Floats = NDArray[np.float64]


@st.composite
def tallies(draw: st.DrawFn) -> tuple[int, int]:
    trials = draw(st.integers(1, 100_000))
    return draw(st.integers(0, trials)), trials


ALPHAS = st.floats(1e-6, 0.4)


@pytest.mark.parametrize("trials", [1, 10, 100, 100_000])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_textbook_values(trials: int, alpha: float) -> None:
    # All hits: p^n = alpha. One hit: 1 - (1-p)^n = alpha. And their mirror images.
    everything, single = alpha ** (1 / trials), -math.expm1(math.log1p(-alpha) / trials)
    lower, upper = clopper_pearson_lower, clopper_pearson_upper
    assert lower(trials, trials, alpha) == pytest.approx(everything, rel=2e-11)
    assert lower(1, trials, alpha) == pytest.approx(single, rel=2e-11)
    assert lower(0, trials, alpha) == 0.0
    assert upper(0, trials, alpha) == pytest.approx(1 - everything, rel=1e-9)
    assert upper(trials - 1, trials, alpha) == pytest.approx(1 - single, rel=2e-11)
    assert upper(trials, trials, alpha) == 1.0


def test_the_best_that_the_usual_protocol_can_give() -> None:
    """n = 100,000, alpha = 0.001, all hits: exp(ln(0.001) / 1e5) = 1 - 6.9075e-5 + 2.4e-9."""
    assert clopper_pearson_lower(100_000, 100_000, 0.001) == pytest.approx(0.999930925, abs=1e-9)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(tallies(), ALPHAS)
def test_agrees_with_the_beta_quantiles_of_scipy(tally: tuple[int, int], alpha: float) -> None:
    hits, trials = tally
    if hits > 0:
        reference = beta.ppf(alpha, hits, trials - hits + 1)
        assert clopper_pearson_lower(hits, trials, alpha) == pytest.approx(reference, rel=1e-9)
    if hits < trials:
        reference = beta.isf(alpha, hits + 1, trials - hits)
        assert clopper_pearson_upper(hits, trials, alpha) == pytest.approx(reference, rel=1e-9)


@pytest.mark.parametrize(("hits", "trials"), [(7, 10), (93, 100), (480, 1000), (9990, 10_000)])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_agrees_with_scipy_binomtest(hits: int, trials: int, alpha: float) -> None:
    above = binomtest(hits, trials, alternative="greater").proportion_ci(1 - alpha, "exact")
    below = binomtest(hits, trials, alternative="less").proportion_ci(1 - alpha, "exact")
    assert clopper_pearson_lower(hits, trials, alpha) == pytest.approx(above.low, abs=1e-9)
    assert clopper_pearson_upper(hits, trials, alpha) == pytest.approx(below.high, abs=1e-9)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(tallies(), ALPHAS)
def test_more_hits_a_larger_alpha_and_fewer_misses_raise_the_lower_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    hits, trials = tally
    value = clopper_pearson_lower(hits, trials, alpha)
    assert 0 <= value <= hits / trials <= clopper_pearson_upper(hits, trials, alpha) <= 1
    assert clopper_pearson_lower(hits + 1, trials + 1, alpha) > value
    if hits:
        assert clopper_pearson_lower(hits - 1, trials, alpha) < value
        assert clopper_pearson_lower(hits, trials, alpha * 1.01) > value
        assert clopper_pearson_lower(hits, trials + 1, alpha) < value


@settings(deadline=None, derandomize=True, max_examples=100)
@given(tallies(), ALPHAS)
def test_hits_and_misses_mirror_each_other(tally: tuple[int, int], alpha: float) -> None:
    hits, trials = tally
    mirrored = 1 - clopper_pearson_lower(trials - hits, trials, alpha)
    assert clopper_pearson_upper(hits, trials, alpha) == pytest.approx(mirrored, abs=3e-11)


@pytest.mark.parametrize("trials", [1, 2, 13, 60])
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.3])
def test_guarantee_clopper_pearson_errs_with_probability_at_most_alpha(
    trials: int, alpha: float
) -> None:
    """Exactly, over all outcomes: for 500 true probabilities and beside every bound itself."""
    lowers = np.array([clopper_pearson_lower(k, trials, alpha) for k in range(trials + 1)])
    uppers = np.array([clopper_pearson_upper(k, trials, alpha) for k in range(trials + 1)])
    truths = np.concatenate([np.linspace(0, 1, 500), lowers * (1 - 1e-12), uppers * (1 + 1e-12)])
    for truth in truths[truths <= 1]:
        chances = binom.pmf(np.arange(trials + 1), trials, truth)
        assert chances[lowers > truth].sum() <= alpha * (1 + 1e-9)
        assert chances[uppers < truth].sum() <= alpha * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.2, math.nan, math.inf])
def test_impossible_levels_are_refused(alpha: float) -> None:
    for function in (clopper_pearson_lower, clopper_pearson_upper):
        with pytest.raises(InputError, match=f"alpha is {alpha}; it must"):
            function(9, 10, alpha)


@pytest.mark.parametrize(
    ("hits", "trials", "message"),
    [
        (11, 10, r"hits is 11; it must lie in \[0, 10\]"),
        (-1, 10, r"hits is -1; it must be an integer of at least 0"),
        (0, 0, "the number of trials is 0; it must be an integer of at least 1"),
        (0, -5, "the number of trials is -5; it must be an integer of at least 1"),
    ],
)
def test_impossible_counts_are_refused(hits: int, trials: int, message: str) -> None:
    for function in (clopper_pearson_lower, clopper_pearson_upper):
        with pytest.raises(InputError, match=message):
            function(hits, trials, 0.05)


@pytest.mark.parametrize(
    ("function", "hits", "trials", "alpha"),
    [
        (clopper_pearson_lower, 634_025, 635_024, 0.00010101599746783948),
        (clopper_pearson_lower, 174_556, 175_555, 0.0007293832933016499),
        (clopper_pearson_lower, 1000, 703_722, 0.00017865569728922772),
        (clopper_pearson_upper, 999, 100_000, 0.005),
        (clopper_pearson_upper, 999, 230_900, 2.192612974885905e-05),
        (clopper_pearson_upper, 1, 1_000_000, math.exp(-1)),
    ],
)
def test_where_scipys_inverse_is_wrong(
    function: Callable[[int, int, float], float], hits: int, trials: int, alpha: float
) -> None:
    """Arguments at which betaincinv or betainccinv of SciPy 1.17 misses by more than 1e-11."""
    found = function(hits, trials, alpha)
    lower = function is clopper_pearson_lower
    tail = binom.sf(hits - 1, trials, found) if lower else binom.cdf(hits, trials, found)
    assert alpha * (1 - 1e-6) <= tail <= alpha


def exact_p_value(first: int, second: int) -> Fraction:
    """min(1, 2 P(Bin(N, 1/2) >= m)), counted in integers."""
    total, larger = first + second, max(first, second)
    ways = sum(math.comb(total, k) for k in range(larger, total + 1))
    return min(Fraction(1), Fraction(2 * ways, 2**total))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (10, 0, 2 / 2**10),  # both ends of ten fair coins
        (9, 1, 22 / 2**10),  # (10 + 1) outcomes at each end
        (8, 2, 112 / 2**10),  # (45 + 10 + 1) at each end
        (5, 5, 1.0),  # a tie: 2 * 638/1024, capped
        (1, 0, 1.0),
    ],
)
def test_sign_test_textbook_values(first: int, second: int, expected: float) -> None:
    assert sign_test(first, second) == pytest.approx(expected, rel=1e-11)
    assert sign_test(second, first) == sign_test(first, second)


def test_sign_test_is_exact_for_every_pair_of_up_to_sixty_answers() -> None:
    for total in range(1, 61):
        for first in range(total + 1):
            p_value, reference = (
                sign_test(first, total - first),
                exact_p_value(first, total - first),
            )
            assert reference <= Fraction(p_value) or p_value == 1 == reference
            assert p_value == pytest.approx(float(reference), rel=1e-11)


@pytest.mark.parametrize(("first", "second"), [(60, 40), (501, 499), (5200, 4800), (1, 37)])
def test_sign_test_agrees_with_scipy(first: int, second: int) -> None:
    reference = binomtest(first, first + second, 0.5).pvalue
    assert sign_test(first, second) == pytest.approx(reference, rel=1e-9)


@pytest.mark.parametrize("total", [1, 2, 7, 20, 51])
def test_guarantee_sign_test_p_value_is_at_most_alpha_with_probability_at_most_alpha(
    total: int,
) -> None:
    """Exactly, for every alpha at which anything changes: the p-values themselves."""
    p_values = {k: Fraction(sign_test(k, total - k)) for k in range(total + 1)}
    for alpha in p_values.values():
        ways = sum(math.comb(total, k) for k, p_value in p_values.items() if p_value <= alpha)
        assert Fraction(ways, 2**total) <= alpha


def test_sign_test_more_evidence_gives_a_smaller_p_value() -> None:
    p_values = [sign_test(k, 100 - k) for k in range(50, 101)]
    assert all(a > b for a, b in itertools.pairwise(p_values[1:]))


@pytest.mark.parametrize(("first", "second"), [(0, 0), (-1, 3), (3, -1)])
def test_sign_test_refuses_impossible_counts(first: int, second: int) -> None:
    with pytest.raises(InputError, match=r"is -?\d+; it must"):
        sign_test(first, second)


@pytest.mark.parametrize("end", [0.0, 1e-300, 0.1, 0.5, math.pi / 4, 1 - 1e-16])
def test_guarantee_last_safe_is_safe_and_next_to_what_is_not(end: float) -> None:
    """From below and, mirrored, from above."""
    found = last_safe(lambda p: p <= end, safe=0.0, unsafe=1.0)
    assert found <= end < math.nextafter(found, 2)
    found = last_safe(lambda p: p >= end, safe=1.0, unsafe=0.0)
    assert math.nextafter(found, -1) <= end <= found


def test_nothing_safe_leaves_it_where_it_began() -> None:
    """Not even an answer that is no number moves it."""
    assert last_safe(lambda p: False, safe=0.0, unsafe=1.0) == 0.0
    assert last_safe(lambda p: math.nan <= p, safe=1.0, unsafe=0.0) == 1.0


Evaluation = Callable[[Floats, NDArray[np.intp]], tuple[Floats, Floats]]
ENDS = np.array([1e-9, 0.1, 0.5, math.pi / 4, 1 - 1e-9])

FALLING: dict[str, Evaluation] = {
    "a line": lambda p, at: (ENDS[at] - p, np.full_like(p, -1.0)),
    "convex": lambda p, at: (ENDS[at] / p - 1, -ENDS[at] / p**2),
    "concave": lambda p, at: (ENDS[at] ** 2 - p**2, -2 * p),
    "steps": lambda p, at: (np.where(p <= ENDS[at], 1.0, -1.0), np.zeros_like(p)),
    "a wrong slope": lambda p, at: (ENDS[at] - p, np.full_like(p, 1e-3)),
    "no slope": lambda p, at: (ENDS[at] - p, np.full_like(p, np.nan)),
}
"""Values that are not negative up to the end of each range."""


@pytest.mark.parametrize("shape", FALLING)
def test_guarantee_last_safe_each_is_safe_and_near_what_is_not(shape: str) -> None:
    """Whatever the slopes say: each result was seen to be safe, and misses the end of its range by
    at most 2^-45 of it."""
    seen: list[set[float]] = [set() for _ in ENDS]

    def evaluate(points: Floats, which: NDArray[np.intp]) -> tuple[Floats, Floats]:
        values, slopes = FALLING[shape](points, which)
        for point, value, place in zip(points.tolist(), values.tolist(), which, strict=True):
            if value >= 0:
                seen[place].add(point)
        return values, slopes

    safe, unsafe = np.zeros(len(ENDS)), np.ones(len(ENDS))
    found = last_safe_each(evaluate, safe, unsafe)
    for place, (end, last) in enumerate(zip(ENDS.tolist(), found.tolist(), strict=True)):
        assert last in seen[place]
        assert end * (1 - 2.0**-45) <= last <= end
    # What was given is left as it was, and nothing to search is no trouble.
    assert not safe.any()
    assert last_safe_each(evaluate, safe[:0], unsafe[:0]).shape == (0,)


def test_ranges_without_a_safe_point_stay_where_they_began() -> None:
    """Not even values that are no numbers move them, nor is an empty range searched."""

    def nowhere(points: Floats, which: NDArray[np.intp]) -> tuple[Floats, Floats]:
        return np.where(which == 0, -1.0, np.nan), np.full_like(points, np.nan)

    starts = np.array([0.0, 0.25, 0.5])
    found = last_safe_each(nowhere, starts, np.array([1.0, 1.0, 0.5]))
    assert found.tolist() == starts.tolist()


# ---------------------------------------------------------------- the least alpha

GRID = [
    (hits, trials)
    for trials in (1, 2, 10, 100, 1000, 10**5)
    for hits in {0, 1, trials // 10, trials // 2, 9 * trials // 10, trials - 1, trials}
]


@pytest.mark.parametrize("alpha", [1e-3, 2.0**-64, 1e-100, LEAST_ALPHA])
def test_guarantee_every_bound_holds_down_to_the_least_alpha(alpha: float) -> None:
    """37 counts, extremes among them, against exact tails and exact evidence of 60 digits."""
    for hits, trials in GRID:
        lower = clopper_pearson_lower(hits, trials, alpha)
        upper = clopper_pearson_upper(trials - hits, trials, alpha)
        if hits == 0:
            assert (lower, upper, anytime_lower(hits, trials, alpha)) == (0, 1, 0)
            continue
        # The safety margin moves p by 1e-11, and the tail by up to hits / p times that.
        slack = 1.1e-11 * trials / (1 - lower)
        assert (
            1 - slack
            <= upper_tail(hits, trials, Fraction(lower), tiny=alpha < 1e-30) / HP.mpf(alpha)
            <= 1
        )
        if upper < 1:
            tail = upper_tail(hits, trials, 1 - Fraction(upper), tiny=alpha < 1e-30) / HP.mpf(alpha)
            assert 1 - 1.1e-11 * trials / (1 - upper) <= tail <= 1
        evidence = log_e(hits, trials, Fraction(anytime_lower(hits, trials, alpha)))
        assert 0 <= evidence + HP.log(alpha) <= 1e-6
        assert anytime_upper(trials - hits, trials, alpha) >= 1 - anytime_lower(hits, trials, alpha)
        # The last look has the larger of both bounds, each at alpha / 2, and its mirror image.
        if alpha / 2 >= LEAST_ALPHA:
            last = capped_lower(hits, trials, alpha, trials)
            sharp, early = (
                f(hits, trials, alpha / 2) for f in (clopper_pearson_lower, anytime_lower)
            )
            assert last == max(sharp, early)
            assert capped_upper(trials - hits, trials, alpha, trials) >= 1 - Fraction(last)


@pytest.mark.parametrize("alpha", [2.0**-64, LEAST_ALPHA])
@pytest.mark.parametrize("hits", [10**6, 9 * 10**6])
def test_guarantee_bounds_of_ten_million_samples_hold_down_to_the_least_alpha(
    hits: int, alpha: float
) -> None:
    lower = clopper_pearson_lower(hits, 10**7, alpha)
    assert 0.99 <= upper_tail(hits, 10**7, Fraction(lower), tiny=alpha < 1e-30) / HP.mpf(alpha) <= 1
    evidence = log_e(hits, 10**7, Fraction(anytime_lower(hits, 10**7, alpha)))
    assert 0 <= evidence + HP.log(alpha) <= 1e-5


@pytest.mark.parametrize("alpha", [LEAST_ALPHA / 2, 1e-250, 1e-300])
def test_levels_at_which_tails_underflow_are_refused(alpha: float) -> None:
    calls: list[Callable[[], object]] = [
        lambda: clopper_pearson_lower(9, 10, alpha),
        lambda: clopper_pearson_upper(9, 10, alpha),
        lambda: anytime_lower(9, 10, alpha),
        lambda: anytime_upper(9, 10, alpha),
        lambda: capped_lower(9, 10, alpha, 20),
        lambda: capped_upper(9, 10, alpha, 20),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"alpha is .*; it must be at least 1e-200"):
            call()
