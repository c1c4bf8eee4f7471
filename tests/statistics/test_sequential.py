"""The any-time valid bound: a bet that cannot win on average, and an interval that it excludes."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta, binom

from deformrs.certificate import Counts
from deformrs.errors import InputError
from deformrs.statistics import anytime_lower, anytime_upper, bound, clopper_pearson_lower
from deformrs.statistics.sequential import log_e_value


@functools.cache
def e_value(hits: int, trials: int, p: float) -> float:
    return math.exp(log_e_value(hits, trials, p))


@st.composite
def tallies(draw: st.DrawFn) -> tuple[int, int]:
    trials = draw(st.integers(1, 20_000))
    return draw(st.integers(0, trials)), trials


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("hits", "trials"), [(0, 0), (0, 7), (7, 7), (5, 8), (30, 40)])
def test_is_the_mixture_it_says(hits: int, trials: int, p: float) -> None:
    """E(p) = ∫_p^1 (r/p)^S ((1-r)/(1-p))^F dBeta(½,½)(r) / P(Beta(½,½) > p), by quadrature."""

    def weighted(angle: float) -> float:
        # r = sin²(angle) turns the Jeffreys prior into a uniform one.
        r = math.sin(angle) ** 2
        return (r / p) ** hits * ((1 - r) / (1 - p)) ** (trials - hits) * 2 / math.pi

    mass = quad(weighted, math.asin(math.sqrt(p)), math.pi / 2, epsabs=0, epsrel=1e-11)[0]
    expected = mass / beta.sf(p, 0.5, 0.5)
    assert math.exp(log_e_value(hits, trials, p)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.8, 0.99])
def test_guarantee_anytime_the_bet_starts_at_one_and_never_gains_on_average(p: float) -> None:
    """A supermartingale: for every state of up to 60 trials and true probabilities q <= p, the
    expected next capital is at most the present one, and equal to it at q = p."""
    assert e_value(0, 0, p) == pytest.approx(1, rel=1e-12)
    for trials in range(60):
        for hits in range(trials + 1):
            now = e_value(hits, trials, p)
            won, lost = e_value(hits + 1, trials + 1, p), e_value(hits, trials + 1, p)
            assert p * won + (1 - p) * lost == pytest.approx(now, rel=1e-11)
            for q in (0.0, p / 2, 0.99 * p):
                assert q * won + (1 - q) * lost <= now * (1 + 1e-11)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("trials", [1, 2, 10, 40])
def test_expected_capital_is_at_most_one(p: float, trials: int) -> None:
    """Exactly, over all outcomes; at q = p it is one."""
    capital = np.array([e_value(hits, trials, p) for hits in range(trials + 1)])
    for q in (0.0, p / 2, 0.9 * p, p):
        mean = float(binom.pmf(np.arange(trials + 1), trials, q) @ capital)
        assert mean <= 1 + 1e-9
    assert mean == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("truth", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_guarantee_anytime_lower_ever_exceeds_the_truth_with_probability_at_most_alpha(
    truth: float, alpha: float
) -> None:
    """Exactly: the chance that any of the first 150 looks errs, one after every single trial."""
    alive, caught = {0: 1.0}, 0.0
    for trials in range(1, 151):
        following: dict[int, float] = {}
        for hits, chance in alive.items():
            for gain, odds in ((1, truth), (0, 1 - truth)):
                following[hits + gain] = following.get(hits + gain, 0.0) + chance * odds
        # The bound lies below the share of hits, so only a share above the truth can mislead it.
        lucky = [hits for hits in following if hits > truth * trials]
        wrong = [hits for hits in lucky if anytime_lower(hits, trials, alpha) > truth]
        caught += sum(following.pop(hits) for hits in wrong)
        alive = following
    assert caught + sum(alive.values()) == pytest.approx(1)
    assert 0 < caught <= alpha


@pytest.mark.parametrize("alpha", [0.001, 0.49])
def test_the_excluded_set_is_an_interval(alpha: float) -> None:
    """Every state of up to 60 trials: E(p) >= 1/alpha on a grid all the way below the bound, and
    E(p) < 1/alpha from there to the share of hits."""
    grid = np.linspace(0.001, 0.999, 12).tolist()
    for trials in range(1, 61):
        for hits in range(trials + 1):
            edge, share = anytime_lower(hits, trials, alpha), hits / trials
            for fraction in grid if edge else ():
                assert log_e_value(hits, trials, edge * fraction) >= -math.log(alpha)
            for fraction in grid if hits else ():
                p = edge + (share - edge) * fraction
                assert log_e_value(hits, trials, p) < -math.log(alpha) + 1e-8


def test_textbook_values() -> None:
    # No hit: nothing is excluded. One hit in one trial: E(p) = ∫_p^1 r dArcsine / (p · P(> p)), and
    # at p = ½ that is (½ + 1/π) / ½ = 1 + 2/π.
    assert anytime_lower(0, 50, 0.01) == 0.0
    assert anytime_upper(50, 50, 0.01) == 1.0
    assert log_e_value(1, 1, 0.5) == pytest.approx(math.log(1 + 2 / math.pi), rel=1e-12)
    # All of n hits: E(p) >= p^-n B(n+½, ½)/π, so the bound is at least (alpha B(n+½, ½)/π)^(1/n).
    for n in (10, 1000):
        log_beta = math.lgamma(n + 0.5) + math.lgamma(0.5) - math.lgamma(n + 1)
        simple = math.exp((math.log(0.001) + log_beta - math.log(math.pi)) / n)
        assert simple < anytime_lower(n, n, 0.001) < 0.001 ** (1 / n)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(tallies(), st.floats(1e-6, 0.4))
def test_lies_below_clopper_pearson_and_grows_with_hits_and_alpha(
    tally: tuple[int, int], alpha: float
) -> None:
    """Leave to look at any time has a price: the bound is below the one for a fixed n."""
    hits, trials = tally
    value = anytime_lower(hits, trials, alpha)
    assert value <= clopper_pearson_lower(hits, trials, alpha)
    assert value <= hits / trials <= anytime_upper(hits, trials, alpha)
    if hits:
        assert anytime_lower(hits - 1, trials, alpha) < value
        assert anytime_lower(hits, trials, alpha * 1.05) > value
    if hits < trials:
        assert anytime_lower(hits + 1, trials, alpha) > value


@settings(deadline=None, derandomize=True, max_examples=100)
@given(tallies(), st.floats(1e-6, 0.4))
def test_upper_is_the_mirror_image_of_lower(tally: tuple[int, int], alpha: float) -> None:
    hits, trials = tally
    mirrored = 1 - anytime_lower(trials - hits, trials, alpha)
    assert mirrored <= anytime_upper(hits, trials, alpha) <= mirrored + 1e-15


def test_narrows_down_to_the_truth() -> None:
    """At 90 % of hits, ten times the samples bring the bound about √10 times as near."""
    gaps = [0.9 - anytime_lower(9 * n // 10, n, 0.001) for n in (10**3, 10**4, 10**5, 10**6)]
    assert all(2.5 < a / b < 3.6 for a, b in itertools.pairwise(gaps))
    assert gaps[-1] < 0.002


def test_anytime_uses_the_whole_of_alpha_for_one_side() -> None:
    found = bound(Counts((3, 1), (800, 200)), 0.01, "anytime")
    assert found.lower == anytime_lower(800, 1000, 0.01)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, -0.1, math.nan])
def test_impossible_levels_are_refused(alpha: float) -> None:
    """From one half on, the excluded set need not be an interval."""
    for function in (anytime_lower, anytime_upper):
        with pytest.raises(InputError, match=rf"alpha is {alpha}; it must lie in \(0, 0\.5\)"):
            function(5, 10, alpha)


@pytest.mark.parametrize(("hits", "trials"), [(11, 10), (-1, 10), (0, 0)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    for function in (anytime_lower, anytime_upper):
        with pytest.raises(InputError, match=r"is -?\d+; it must"):
            function(hits, trials, 0.05)
