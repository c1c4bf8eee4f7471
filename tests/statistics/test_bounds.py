"""Clopper-Pearson and the simultaneous bound: known values, order, and exact coverage."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, binomtest

from deformrs.certificate import Bound, Counts
from deformrs.checks import LEAST_ALPHA
from deformrs.errors import InputError
from deformrs.rounding import complement_up
from deformrs.statistics import (
    METHODS,
    anytime_lower,
    anytime_upper,
    bound,
    capped_lower,
    clopper_pearson_lower,
    clopper_pearson_upper,
    sign_test,
)
from deformrs.statistics.bounds import last_safe, last_safe_each
from exact import HP, log_e, upper_tail


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


def multinomial(counts: tuple[int, ...], probabilities: tuple[float, ...]) -> float:
    ways = math.factorial(sum(counts))
    for count in counts:
        ways //= math.factorial(count)
    return ways * math.prod(p**k for p, k in zip(probabilities, counts, strict=True))


@pytest.mark.parametrize(
    "probabilities", [(0.4, 0.3, 0.3), (0.8, 0.15, 0.05), (1 / 3, 1 / 3, 1 / 3), (0.1, 0.45, 0.45)]
)
@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_guarantee_bound_holds_for_all_classes_at_once(
    probabilities: tuple[float, ...], alpha: float, method: str
) -> None:
    """Exactly, over all outcomes of 20 answers in three classes, the first being the candidate."""
    wrong = total = 0.0
    for first, second in itertools.product(range(21), repeat=2):
        if first + second > 20:
            continue
        outcome = (first, second, 20 - first - second)
        chance = multinomial(outcome, probabilities)
        found = bound(Counts((1, 0, 0), outcome), alpha, method)
        total += chance
        if found.lower > probabilities[0] or found.upper < max(probabilities[1:]):
            wrong += chance
    assert total == pytest.approx(1)
    assert wrong <= alpha


def test_bonferroni_shares_alpha_among_all_classes() -> None:
    counts = Counts((9, 1, 0, 0), (400, 250, 200, 150))
    found = bound(counts, 0.04, "bonferroni")
    assert found.lower == clopper_pearson_lower(400, 1000, 0.01)
    assert found.upper == clopper_pearson_upper(250, 1000, 0.01)


def test_bonferroni_decides_where_the_candidate_has_less_than_half() -> None:
    counts = Counts((40, *(7,) * 9), (4000, *(667,) * 8, 664))
    assert not bound(counts, 0.001, "clopper_pearson").decides
    assert bound(counts, 0.001, "bonferroni").decides


def test_bonferroni_is_never_worse_than_the_complement_of_its_own_lower_bound() -> None:
    found = bound(Counts((10, 0), (990, 10)), 0.001, "bonferroni")
    assert found.upper <= complement_up(found.lower)


@pytest.mark.parametrize("method", ["clopper_pearson", "anytime"])
def test_without_a_bound_of_its_own_the_runner_up_has_the_rest(method: str) -> None:
    found = bound(Counts((9, 1), (900, 100)), 0.001, method)
    assert Fraction(found.upper) >= 1 - Fraction(found.lower)
    assert found == Bound(found.lower, complement_up(found.lower))
    assert found.decides


def test_clopper_pearson_decides_only_above_one_half() -> None:
    """p_B = 1 - p_A, so p_A <= ½ must abstain: exactly half of the answers never suffices."""
    for hits in range(500, 601):
        found = bound(Counts((1, 0), (hits, 1000 - hits)), 0.05)
        assert found.decides == (clopper_pearson_lower(hits, 1000, 0.05) > 0.5)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_bounds_the_candidate_of_the_selection(method: str) -> None:
    """The candidate is the class that the first stage saw most, whatever the second one says."""
    unlucky = bound(Counts((1, 9), (990, 10)), 0.001, method)
    assert unlucky.lower < 10 / 1000
    assert not unlucky.decides


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_order_of_the_other_classes_does_not_matter(method: str) -> None:
    a = bound(Counts((9, 1, 0), (700, 200, 100)), 0.01, method)
    b = bound(Counts((9, 0, 1), (700, 100, 200)), 0.01, method)
    assert a == b


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.2, math.nan, math.inf])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_impossible_levels_are_refused(method: str, alpha: float) -> None:
    with pytest.raises(InputError, match=f"alpha is {alpha}; it must lie in .* e.g. 0.001"):
        bound(Counts((1, 0), (9, 1)), alpha, method)
    with pytest.raises(InputError, match=f"alpha is {alpha}; it must"):
        clopper_pearson_upper(9, 10, alpha)


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


def test_an_unknown_method_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(InputError, match="method is 'wald'; .*clopper_pearson, bonferroni, any"):
        bound(Counts((1, 0), (9, 1)), 0.05, "wald")


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


def test_guarantee_last_safe_each_is_last_safe_of_each() -> None:
    """Ranges from below and from above, of different lengths, none and all of them safe."""
    ends = np.array([0.0, 1e-300, 0.1, 0.5, math.pi / 4, 1 - 1e-16, -1.0, 2.0])
    zero, one = np.zeros(len(ends)), np.ones(len(ends))
    lasts = last_safe_each(lambda p, which: p <= ends[which], safe=zero, unsafe=one)
    firsts = last_safe_each(lambda p, which: p >= ends[which], safe=one, unsafe=zero)
    for end, last, first in zip(ends.tolist(), lasts.tolist(), firsts.tolist(), strict=True):
        assert last == last_safe(functools.partial(operator.ge, end), 0.0, 1.0)
        assert first == last_safe(functools.partial(operator.le, end), 1.0, 0.0)
    # What was given is left as it was, and nothing to search is no trouble.
    assert not zero.any()
    assert last_safe_each(lambda p, which: p < 0, zero[:0], one[:0]).shape == (0,)


def test_answers_that_are_no_numbers_leave_every_range_where_it_began() -> None:
    found = last_safe_each(lambda p, which: p * math.nan > 0, np.zeros(3), np.ones(3))
    assert found.tolist() == [0.0, 0.0, 0.0]


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
        *(partial(bound, Counts((1, 0), (9, 1)), alpha, method) for method in METHODS),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"alpha is .*; it must be at least 1e-200"):
            call()
