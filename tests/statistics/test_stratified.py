"""The bound from pairs of stratified samples: its bet, its rounding, and its exact coverage."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from deformrs.checks import LEAST_ALPHA
from deformrs.errors import InputError
from deformrs.statistics import (
    anytime_lower,
    clopper_pearson_lower,
    stratified_lower,
    stratified_upper,
)
from deformrs.statistics.stratified import (
    allowance,
    log_e_value,
    stratified_lowers,
    stratified_uppers,
)
from exact import HP, high, log_paired_e

Floats = NDArray[np.float64]


@st.composite
def paired(draw: st.DrawFn) -> tuple[int, int, int]:
    """Hits, trials and disagreements of up to 50,000 pairs."""
    pairs = draw(st.integers(1, 50_000))
    differing = draw(st.integers(0, pairs))
    both = draw(st.integers(0, pairs - differing))
    return 2 * both + differing, 2 * pairs, differing


# ---------------------------------------------------------------- the bet


def mean_of_bet(q: Fraction, bet: Fraction, log_price: object | None = None) -> object:
    """h(q): what exp(λ(X + X')) is worth on average, a disagreement paid with (1 - λ)e^λ."""
    grown, p, rest = HP.exp(2 * high(bet)), high(q), high(1 - q)
    kept = high(1 - bet) if log_price is None else HP.exp(log_price - high(bet))
    return p**2 * grown + 2 * p * rest * kept * grown + rest**2


PROBABILITIES = [
    *(Fraction(k, 64) for k in range(65)),
    *(Fraction(1, 2**k) for k in (10, 20)),
    *(1 - Fraction(1, 2**k) for k in (10, 20)),
]
BETS = [
    *(Fraction(k, 64) for k in range(1, 64)),
    *(Fraction(1, 2**k) for k in (10, 20)),
    *(1 - Fraction(1, 2**k) for k in (10, 20)),
]


def test_no_stratum_pays_on_average() -> None:
    """q²e^2λ + 2q(1-q)(1-λ)e^2λ + (1-q)² <= e^2λq to 60 digits, for 69 q times 67 λ, and equal to
    it where the answer does not change within the stratum."""
    for q, bet in itertools.product(PROBABILITIES, BETS):
        room = HP.exp(2 * high(bet * q)) - mean_of_bet(q, bet)
        if q in (0, 1):
            assert abs(room) < 1e-55
        else:
            # It vanishes as q at 0, as (1-q)² at 1, and as λ³.
            assert room > high(q * (1 - q) ** 2 * bet**3) / 2, (q, bet)


@pytest.mark.parametrize("share", [0.98, 0.9])
def test_a_lower_price_of_disagreement_would_pay(share: float) -> None:
    """With 98 % of -ln((1-λ)e^λ), some stratum gains: the price is nearly the least possible."""
    assert any(
        mean_of_bet(q, bet, high(share) * (HP.log1p(-high(bet)) + high(bet)))
        > HP.exp(2 * high(bet * q))
        for q, bet in itertools.product(PROBABILITIES, BETS)
    )


@pytest.mark.parametrize("disagreements", [0, 1, 4, 30])
@pytest.mark.parametrize("excess", [Fraction(1, 8), Fraction(3), Fraction(17, 2), Fraction(40)])
def test_is_the_mixture_it_says(disagreements: int, excess: Fraction) -> None:
    """E = ½ ∫ exp(λ excess) ((1-λ)e^λ)^D (1-λ)^-½ dλ over (0, 1), by quadrature of 60 digits.

    With 1-λ = u², the prior's singularity is gone.
    """

    def weighted(u: object) -> object:
        bet = 1 - u**2  # type: ignore[operator]
        return HP.exp(bet * (high(excess) + disagreements)) * u ** (2 * disagreements)  # type: ignore[operator]

    expected = HP.log(HP.quad(weighted, HP.linspace(0, 1, 9)))
    assert abs(log_paired_e(excess, disagreements) - expected) < 1e-45
    assert log_e_value(float(excess), disagreements) == pytest.approx(float(expected), abs=1e-12)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(st.floats(2.0**-4, 1e3), st.integers(0, 10**4))
def test_evidence_is_that_of_sixty_digits(excess: float, disagreements: int) -> None:
    """Closer than a tenth of the margin that the allowance leaves for it, and never surer."""
    found = log_e_value(excess, disagreements)
    exact = log_paired_e(Fraction(excess), disagreements)
    assert abs(found - exact) < 0.1 * (1e-9 + 2.0**-42 * disagreements) + 1e-14 * excess


def test_no_evidence_is_without_pairs_that_agree() -> None:
    """Far more misses than expected: gamma(s, x) vanishes in floats, and so does the evidence."""
    assert log_e_value(-9_999.0, 10_000) == -math.inf
    assert log_e_value(1e-12, 0) == pytest.approx(0, abs=1e-11)  # E = 1 before anything is seen


def test_textbook_values() -> None:
    # With no disagreement E = ½ e^x √(π/x) erf(√x): the bet of section 5 for D = 0.
    for x in (0.5, 3.0, 20.0):
        simple = x + math.log(math.sqrt(math.pi / x) * math.erf(math.sqrt(x)) / 2)
        assert log_e_value(x, 0) == pytest.approx(simple, rel=1e-13)
    # The figures of docs/theory.md, section 5, at alpha = 0.001.
    assert [f"{allowance(d, 0.001):.1f}" for d in (0, 2, 10)] == ["8.1", "11.9", "19.0"]
    # All pairs agree: what S exceeds Np by does not depend on S.
    for hits in (10, 500, 1000):
        bound = stratified_lower(hits, 1000, 0, 0.001)
        assert bound == pytest.approx((hits - allowance(0, 0.001)) / 1000, rel=1e-13)
    # A bet of a single λ = √(2 ln(1/alpha) / D) has √(2 D ln 1/alpha) at best, for many D.
    for d in (10**4, 10**6):
        assert 1 < allowance(d, 0.001) / math.sqrt(2 * d * math.log(1000)) < 1.6


# ---------------------------------------------------------------- rounding

GRID = [
    (2 * both + differing, 2 * (both + differing + neither), differing)
    for differing in (0, 1, 2, 7, 60, 1000, 10**5)
    for both, neither in ((500, 0), (500, 300), (10**6, 3), (0, 0), (10, 10**5))
    if both + differing + neither
]


@pytest.mark.parametrize("alpha", [0.3, 0.05, 1e-3, 2.0**-64, LEAST_ALPHA])
def test_guarantee_stratified_lower_and_stratified_upper_hold_in_sixty_digits(alpha: float) -> None:
    """34 counts, up to 100,000 disagreements: the exact evidence against the bound is at least
    1/alpha, and no more than rounding leaves."""
    informative = 0
    for hits, trials, differing in GRID:
        lower = stratified_lower(hits, trials, differing, alpha)
        upper = stratified_upper(trials - hits, trials, differing, alpha)
        assert 0 <= lower <= 1
        assert upper >= 1 - Fraction(lower)
        assert Fraction(upper) <= 1 - Fraction(lower) + Fraction(1, 2**52)
        if lower > 0:
            informative += 1
            evidence = log_paired_e(hits - trials * Fraction(lower), differing) + HP.log(alpha)
            assert 0 <= evidence <= 2e-9 + 2.0**-41 * differing + 2.0**-48 * hits
    assert informative >= 15


@settings(deadline=None, derandomize=True, max_examples=200)
@given(paired(), st.floats(1e-6, 0.5))
def test_guarantee_stratified_lower_has_the_evidence(
    pairs: tuple[int, int, int], alpha: float
) -> None:
    hits, trials, differing = pairs
    lower = stratified_lower(hits, trials, differing, alpha)
    assert 0 <= lower < max(hits, 1) / trials
    if lower > 0:
        evidence = log_paired_e(hits - trials * Fraction(lower), differing) + HP.log(alpha)
        assert 0 <= evidence <= 1e-7


@settings(deadline=None, derandomize=True, max_examples=150)
@given(paired(), st.floats(1e-6, 0.4))
def test_more_hits_fewer_disagreements_and_a_larger_alpha_raise_the_bound(
    pairs: tuple[int, int, int], alpha: float
) -> None:
    hits, trials, differing = pairs
    value = stratified_lower(hits, trials, differing, alpha)
    # Two more pairs: of two hits, of two misses.
    assert stratified_lower(hits + 2, trials + 2, differing, alpha) >= value
    assert stratified_lower(hits, trials + 2, differing, alpha) <= value
    if value > 0:
        assert stratified_lower(hits + 2, trials + 2, differing, alpha) > value
        assert stratified_lower(hits, trials, differing, alpha * 1.01) > value
        if differing >= 2:  # two that disagree say less than one of hits and one of misses
            assert stratified_lower(hits, trials, differing - 2, alpha) > value


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(paired(), min_size=1, max_size=20), st.floats(1e-6, 0.4))
def test_arrays_hold_what_each_gives_alone(rows: list[tuple[int, int, int]], alpha: float) -> None:
    hits, trials, differing = np.array(rows).T
    for arrays, alone in (
        (stratified_lowers, stratified_lower),
        (stratified_uppers, stratified_upper),
    ):
        each = [alone(*row, alpha) for row in rows]
        found = arrays(hits, trials, differing, alpha)
        np.testing.assert_allclose(found, each, rtol=1e-13, atol=1e-14)


def test_arrays_may_be_tables_of_all_classes() -> None:
    """[m, K] counts with [m, 1] trials, as in the stopping rule."""
    classes = np.array([[60, 30, 10], [50, 50, 0]])
    differing = np.array([[4, 6, 10], [0, 0, 0]])
    total = classes.sum(axis=1, keepdims=True)
    lowers = stratified_lowers(classes, total, differing, 0.05)
    uppers = stratified_uppers(classes, total, differing, 0.05)
    for row, column in np.ndindex(*classes.shape):
        counts = int(classes[row, column]), 100, int(differing[row, column])
        assert lowers[row, column] == pytest.approx(stratified_lower(*counts, 0.05), abs=1e-14)
        assert uppers[row, column] == pytest.approx(stratified_upper(*counts, 0.05), abs=1e-14)


def test_it_pays_where_pairs_agree_and_costs_little_where_they_do_not() -> None:
    """1,000 samples at alpha = 0.001: 600 hits, of which no pair or half of all pairs disagree."""
    fixed, anytime = (f(600, 1000, 0.001) for f in (clopper_pearson_lower, anytime_lower))
    agreeing = stratified_lower(600, 1000, 0, 0.001)
    # Clopper-Pearson is 49 of 1,000 below the share, stratified pairs that agree 8.1.
    assert agreeing == pytest.approx(0.6 - 0.00807, abs=1e-5)
    assert 0.6 - agreeing < 0.2 * (0.6 - fixed)
    # Independent samples of p = 0.6 would disagree in 240 of 500 pairs.
    assert 0.6 - stratified_lower(600, 1000, 240, 0.001) < 1.3 * (0.6 - anytime)


@pytest.mark.parametrize(
    ("hits", "trials", "differing"),
    [(5, 11, 1), (4, 10, 1), (5, 10, 6), (2, 10, 4), (9, 10, 3), (10, 10, 2), (0, 10, 2)],
)
def test_impossible_pairs_are_refused(hits: int, trials: int, differing: int) -> None:
    for function in (stratified_lower, stratified_upper):
        with pytest.raises(InputError, match="must be possible for pairs of samples"):
            function(hits, trials, differing, 0.05)


@pytest.mark.parametrize(
    ("hits", "trials", "differing"), [(11, 10, 0), (-2, 10, 0), (0, 0, 0), (4, 10, -2)]
)
def test_impossible_counts_are_refused(hits: int, trials: int, differing: int) -> None:
    for function in (stratified_lower, stratified_upper):
        with pytest.raises(InputError, match=r"is -?\d+; it must"):
            function(hits, trials, differing, 0.05)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.2, math.nan, LEAST_ALPHA / 2])
def test_impossible_levels_are_refused(alpha: float) -> None:
    for function in (stratified_lower, stratified_upper):
        with pytest.raises(InputError, match=f"alpha is {alpha}; it must"):
            function(6, 10, 2, alpha)


# ---------------------------------------------------------------- exact coverage

FINEST = 16
STRATA = {
    "a step": [1.0] * 5 + [0.4] + [0.0] * 10,
    "steps finer than the first strata": [1.0, 0.0] * 8,
    "coin flips": [0.5] * 16,
    "seldom": [0.1] * 16,
    "often": [0.9] * 16,
    "a slope": [k / 15 for k in range(16)],
    "half sure": [1.0] * 8 + [0.5] * 8,
    "anything": np.random.default_rng(5).random(16).tolist(),
}
"""The probability of a hit in each of 16 strata."""


def in_strata(finest: list[float], strata: int) -> list[float]:
    """Return the probabilities in fewer and larger strata."""
    means: list[float] = np.reshape(finest, (strata, -1)).mean(axis=1).tolist()
    return means


def after_round(chances: Floats, strata: list[float]) -> Floats:
    """Return the law of hits and disagreements, chances[S, D], after a round more."""
    for q in strata:
        following = np.zeros((chances.shape[0] + 2, chances.shape[1] + 1))
        following[2:, :-1] += q**2 * chances
        following[1:-1, 1:] += 2 * q * (1 - q) * chances
        following[:-2, :-1] += (1 - q) ** 2 * chances
        chances = following
    return chances


@functools.cache
def capital(hits: int, trials: int, differing: int, p: float) -> float:
    """E(p). Where x <= 0 it is found by quadrature, to 1e-12: the code needs it for x > 0 only."""
    excess = hits - trials * p
    if excess + differing > 0:
        return math.exp(log_e_value(excess, differing))
    u, weights = np.polynomial.legendre.leggauss(80)
    u = (u + 1) / 2
    values = np.exp((1 - u**2) * (excess + differing)) * u ** (2 * differing)
    return float(weights @ values / 2)


@pytest.mark.parametrize("strata", STRATA)
def test_guarantee_stratified_the_bet_starts_at_one_and_never_gains_on_average(strata: str) -> None:
    """A supermartingale over rounds: from every state that two rounds lead to, the expected
    capital after another round is at most the present one, exactly. Equal to it if no stratum
    is undecided, and less for a larger p."""
    truth = float(np.mean(STRATA[strata]))
    assert capital(0, 0, 0, truth) == pytest.approx(1, rel=1e-12)
    states = np.array([[1.0]])
    trials = 0
    for ahead in (4, 8):
        following = in_strata(STRATA[strata], ahead)
        gains = after_round(np.array([[1.0]]), following)
        for hits, differing in zip(*np.nonzero(states), strict=True):
            for p in (truth, min(1.0, truth + 0.1)):
                now = capital(int(hits), trials, int(differing), p)
                later = sum(
                    gains[more, new]
                    * capital(int(hits + more), trials + 2 * ahead, int(differing + new), p)
                    for more, new in zip(*np.nonzero(gains), strict=True)
                )
                assert later <= now * (1 + 1e-11)
                if p == truth and set(following) <= {0.0, 1.0}:
                    assert later == pytest.approx(now, rel=1e-11)
        states, trials = after_round(states, following), trials + 2 * ahead


ROUNDS = (4, 4, 8, 8, 16)
"""Strata of each round, which grow as those of `deformrs.strata.rounds` do."""


def ever_false(strata: list[float], alpha: float, side: str) -> float:
    """Return the exact probability that the bound is false after any of the rounds."""
    truth = float(np.mean(strata))
    alive, trials, caught = np.array([[1.0]]), 0, 0.0
    for size in ROUNDS:
        alive, trials = after_round(alive, in_strata(strata, size)), trials + 2 * size
        for hits, differing in zip(*np.nonzero(alive), strict=True):
            counts = int(hits), trials, int(differing)
            if side == "lower":
                wrong = stratified_lower(*counts, alpha) > truth
            else:
                wrong = stratified_upper(*counts, alpha) < truth
            if wrong:
                caught += alive[hits, differing]
                alive[hits, differing] = 0.0
    assert caught + alive.sum() == pytest.approx(1)
    return caught


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_guarantee_stratified_lower_and_stratified_upper_ever_err_with_probability_at_most_alpha(
    side: str, alpha: float
) -> None:
    """Exactly, over all outcomes of five rounds, 80 samples in all, if one stops at the worst."""
    rates = {name: ever_false(strata, alpha, side) for name, strata in STRATA.items()}
    assert all(rate <= alpha for rate in rates.values())
    # Not for want of errors: of answers that are one-sided, more than a tenth of alpha is spent.
    assert max(rates.values()) > 0.1 * alpha
    assert min(rates["coin flips"], rates["a step"]) > 0.02 * alpha
