"""The any-time bound, alone, for arrays, and with a sharp last look."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta, binom

from deformrs.certificate import Counts
from deformrs.errors import InputError
from deformrs.rounding import complement_up
from deformrs.statistics import (
    anytime_lower,
    anytime_upper,
    bound,
    capped_lower,
    capped_upper,
    clopper_pearson_lower,
)
from deformrs.statistics.sequential import (
    anytime_lowers,
    anytime_uppers,
    last_lowers,
    last_uppers,
    log_e_value,
    log_e_values,
)


@functools.cache
def e_value(hits: int, trials: int, p: float) -> float:
    return math.exp(log_e_value(hits, trials, p))


@st.composite
def tallies(draw: st.DrawFn) -> tuple[int, int]:
    trials = draw(st.integers(1, 100_000))
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
    """A supermartingale: for every state of up to 40 trials and true probabilities q <= p, the
    expected next capital is at most the present one, and equal to it at q = p."""
    assert e_value(0, 0, p) == pytest.approx(1, rel=1e-12)
    for trials in range(40):
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
    """Exactly: the chance that any of the first 80 looks errs, one after every single trial."""
    alive, caught = {0: 1.0}, 0.0
    for trials in range(1, 81):
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
    """Every state of up to 30 trials: E(p) >= 1/alpha on a grid all the way below the bound, and
    E(p) < 1/alpha from there to the share of hits."""
    grid = np.linspace(0.001, 0.999, 10).tolist()
    for trials in range(1, 31):
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


@settings(deadline=None, derandomize=True, max_examples=80)
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


@settings(deadline=None, derandomize=True, max_examples=50)
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


def one(value: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([value])


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(tallies(), min_size=1, max_size=20), st.floats(1e-6, 0.4))
def test_arrays_hold_what_each_gives_alone(pairs: list[tuple[int, int]], alpha: float) -> None:
    """To 2^-45: Newton's method ends there, and vectorised logarithms differ in their last bits."""
    hits, trials = np.array(pairs).T
    lowers = [anytime_lower(h, t, alpha) for h, t in pairs]
    uppers = [anytime_upper(h, t, alpha) for h, t in pairs]
    np.testing.assert_allclose(anytime_lowers(hits, trials, alpha), lowers, rtol=1e-11, atol=0)
    np.testing.assert_allclose(anytime_uppers(hits, trials, alpha), uppers, rtol=0, atol=2**-45)
    values = [log_e_value(h, t, 0.3) for h, t in pairs]
    np.testing.assert_allclose(log_e_values(hits, trials, 0.3), values, rtol=1e-11, atol=1e-11)


def test_nothing_is_excluded_without_a_hit_and_nothing_above_without_a_miss() -> None:
    hits, trials = np.array([0, 7]), np.array([7, 7])
    assert anytime_lowers(hits, trials, 0.01)[0] == 0.0
    assert anytime_uppers(hits, trials, 0.01)[1] == 1.0


def test_evidence_too_small_for_a_float_is_no_evidence() -> None:
    """10 hits of 100,000 against "at most one half", which scalar logarithms refuse."""
    assert log_e_value(10, 100_000, 0.5) == -math.inf


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
def test_impossible_levels_of_arrays_are_refused(alpha: float) -> None:
    for function in (anytime_lowers, anytime_uppers):
        with pytest.raises(InputError, match=rf"alpha is {alpha}; it must lie in \(0, 0\.5\)"):
            function(one(5), one(10), alpha)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.data(), st.integers(1, 3000), st.sampled_from([0.001, 0.05, 0.4]))
def test_guarantee_capped_lower_spends_alpha_once(
    data: st.DataObject, trials: int, alpha: float
) -> None:
    """Half on the any-time bound, half on the last look: never more than both allow."""
    hits, most = data.draw(st.integers(0, trials)), data.draw(st.integers(1, 3000))
    found = capped_lower(hits, trials, alpha, most)
    early = anytime_lower(hits, trials, alpha / 2)
    assert found == early if trials != most else found >= early
    assert found <= max(early, clopper_pearson_lower(hits, trials, alpha / 2))
    assert capped_lower(hits, trials, alpha, trials) == max(
        early, clopper_pearson_lower(hits, trials, alpha / 2)
    )


def test_the_last_look_loses_little_against_a_fixed_number() -> None:
    fixed = clopper_pearson_lower(92_000, 100_000, 0.001)
    last = capped_lower(92_000, 100_000, 0.001, 100_000)
    early = anytime_lower(92_000, 100_000, 0.001)
    assert fixed - last < 0.15 * (fixed - early)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.data(), st.integers(1, 3000), st.sampled_from([0.001, 0.05, 0.4]))
def test_guarantee_capped_upper_is_the_mirror_image(
    data: st.DataObject, trials: int, alpha: float
) -> None:
    hits, most = data.draw(st.integers(0, trials)), data.draw(st.sampled_from([trials, 3000]))
    lower = capped_lower(trials - hits, trials, alpha, most)
    assert 1 - Fraction(lower) <= capped_upper(hits, trials, alpha, most) <= 1 - lower + 1e-15


@pytest.mark.parametrize("most", [1, 50, 3000, 100_000])
def test_arrays_are_those_of_each(most: int) -> None:
    """Also where every image has another number of samples at its last look."""
    hits = np.unique(np.linspace(0, most, 60).round().astype(np.int64))
    each = [capped_lower(int(h), most, 0.01, most) for h in hits]
    lowers = last_lowers(hits, np.full_like(hits, most), 0.01)
    assert lowers == pytest.approx(each, rel=1e-9, abs=1e-300)
    each = [capped_upper(int(h), most, 0.01, most) for h in hits]
    uppers = last_uppers(hits, np.full_like(hits, most), 0.01)
    assert uppers == pytest.approx(each, abs=1.1e-11)  # the margin of Clopper-Pearson
    several = last_lowers(np.array([1, most]), np.array([most, most + 5]), 0.01)
    alone = [capped_lower(h, m, 0.01, m) for h, m in ((1, most), (most, most + 5))]
    assert several == pytest.approx(alone, rel=1e-9)


def test_upper_bounds_of_arrays_are_complements_rounded_up() -> None:
    trials = np.full(101, 100)
    hits = np.arange(101)
    lowers = anytime_lowers(trials - hits, trials, 0.05).tolist()
    assert anytime_uppers(hits, trials, 0.05).tolist() == [complement_up(p) for p in lowers]
