"""Settled is settled: every question certified, excluded or hopeless, by certificates alone."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from deformrs.certificate import Bound, Certificate, Counts
from deformrs.noise import Gaussian, Uniform
from deformrs.rounding import complement_up
from deformrs.statistics import anytime_lower, anytime_upper, capped_lower, capped_method
from deformrs.stopping import GIVEN_UP, Rule, Stopping, looks
from stopping_cases import ANGLE, CASES, PLACE, answers, certificate, rule_of, settled


@st.composite
def tallies(draw: st.DrawFn, rule: Rule) -> tuple[int, int]:
    """Anything, and what lies within a few deviations of a threshold, where it matters."""
    trials = draw(st.integers(1, rule.n))
    if not rule.thresholds or draw(st.booleans()):
        return draw(st.integers(0, trials)), trials
    p = draw(st.sampled_from(rule.thresholds))
    hits = p * trials + draw(st.floats(-6, 6)) * math.sqrt(p * (1 - p) * trials)
    return min(max(round(hits), 0), trials), trials


def chances(
    case: str, hits: int, trials: int, n: int, alpha: float, method: str, p: float
) -> list[float]:
    """The probability of each question to be certified after all n samples, if p is the truth."""
    law, space, _ = CASES[case]

    @functools.cache
    def final(total: int) -> list[bool]:
        return answers(case, law.certify(Counts((1, 0), (total, n - total)), space, alpha, method))

    def needed(question: int) -> int:
        low, high = 0, n + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if final(middle)[question] else (middle + 1, high)
        return low

    questions = range(len(final(0)))
    return [float(binom.sf(needed(q) - hits - 1, n - trials, p)) for q in questions]


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    data=st.data(),
    alpha=st.sampled_from([0.001, 0.05, 0.4]),
    n=st.sampled_from([40, 5000]),
    last_look=st.booleans(),
)
def test_guarantee_settled_is_certified_or_excluded_or_hopeless(
    case: str, data: st.DataObject, alpha: float, n: int, last_look: bool
) -> None:
    """By certificates alone, question by question; and what they settle, the rule does not miss."""
    law, space, _ = CASES[case]
    rule = rule_of(case, alpha, n, last_look=last_look)
    method = capped_method(n) if last_look else "anytime"
    hits, trials = data.draw(tallies(rule))
    certified = answers(case, certificate(case, hits, trials, alpha, method))
    # The most optimistic bound that the data leave, as if it were a certificate's.
    upper = anytime_upper(hits, trials, GIVEN_UP) * (1 - 1e-11)
    bound = Bound(upper, complement_up(upper))
    radii = law.radii(bound, space) if bound.decides else (0.0,) * len(space.blocks)
    at_most = Certificate(
        0 if bound.decides else None, radii, bound, Counts((1, 0), (1, 0)), alpha, "", law, space
    )
    open_still = answers(case, at_most)
    hopeful = chances(case, hits, trials, n, alpha, method, upper)
    # The rule takes the normal distribution for the binomial one; without a sharp last look it
    # gives up only what cannot be.
    least = 1.5 * GIVEN_UP if last_look else 0.0
    known = [
        c or not o or chance <= least
        for c, o, chance in zip(certified, open_still, hopeful, strict=True)
    ]
    if settled(rule, hits, trials):
        assert all(known)
    # A certificate at a slightly stricter level is one that no rounding takes away.
    elif all(answers(case, certificate(case, hits, trials, alpha * (1 - 1e-6), method))):
        raise AssertionError("certified, and still not settled")


@pytest.mark.parametrize("case", ["uniform", "wide arc", "gaussian", "angle"])
@settings(deadline=None, derandomize=True, max_examples=80)
@given(data=st.data(), n=st.sampled_from([100, 20_000]), last_look=st.booleans())
def test_within_the_tolerance_more_samples_gain_less(
    case: str, data: st.DataObject, n: int, last_look: bool
) -> None:
    law, space, _ = CASES[case]
    rule = Stopping(tolerance=0.05).rule(law, space, 0.01, n, last_look=last_look)
    method = capped_method(n) if last_look else "anytime"
    hits, trials = data.draw(tallies(rule_of(case, 0.01, n)))
    best = hits + n - trials
    hopeful = capped_lower(best, n, 0.01, n) if last_look else anytime_lower(best, n, 0.01)
    top = min(anytime_upper(hits, trials, 0.01), hopeful)
    bound = Bound(top, complement_up(top))
    most = law.radii(bound, space)[0] if bound.decides else 0.0
    gain = most - certificate(case, hits, trials, 0.01, method).radius
    expected = gain < 0.05 or trials == n
    assert settled(rule, hits, trials) == expected or math.isclose(gain, 0.05, rel_tol=1e-9)


def test_radii_and_tolerance_must_both_be_settled() -> None:
    law, radii = Uniform(1.0), ("5deg",)
    one = Stopping(radii=radii).rule(law, ANGLE, 0.001, 10_000)
    other = Stopping(tolerance="20deg").rule(law, ANGLE, 0.001, 10_000)
    both = Stopping(radii=radii, tolerance="20deg").rule(law, ANGLE, 0.001, 10_000)
    trials = np.repeat([20, 100, 1000, 5000], 101)
    hits = (trials * np.tile(np.linspace(0, 1, 101), 4)).round().astype(np.int64)
    first, second = one.decided(hits, trials), other.decided(hits, trials)
    assert (both.decided(hits, trials) == (first & second)).all()
    assert (first & ~second).any()
    assert (second & ~first).any()
    # Few hits: nothing is to be gained, for the candidate cannot come to decide.
    assert settled(other, 10, 1000)


def test_what_nothing_can_certify_is_settled_at_once() -> None:
    law = Uniform(math.radians(54))
    for radius in ("54deg", "55deg", "400deg"):
        rule = Stopping(radii=(radius,)).rule(law, ANGLE, 0.001, 100_000)
        assert rule.thresholds == ()
        assert settled(rule, 1, 1)
    # 20 samples are too few for 45 degrees, whatever they say; 30 leave hope until a miss or two.
    assert settled(Stopping(radii=("45deg",)).rule(law, ANGLE, 0.001, 20), 1, 1)
    assert not settled(Stopping(radii=("45deg",)).rule(law, ANGLE, 0.001, 200), 1, 1)
    assert settled(Stopping(radii=("45deg",)).rule(law, ANGLE, 0.001, 200), 80, 100)


def test_the_thresholds_are_those_of_the_closed_forms() -> None:
    """R = λ(2p - 1), and R = σ Φ⁻¹(p): Φ(1) = 0.841344746."""
    rule = Stopping(radii=("27deg", "0deg")).rule(Uniform(math.radians(54)), ANGLE, 0.001, 10)
    assert rule.thresholds == pytest.approx((0.5, 0.75), rel=1e-11)
    rule = Stopping(radii=("7px",)).rule(Gaussian(0.5), PLACE, 0.001, 10)
    assert rule.thresholds == pytest.approx((0.841344746068543,), rel=1e-11)
    # λ = 2.8 loses (2π - 2λ)/2λ at most, so everything holds from p = ½ + π/2.8 - 1 on.
    rule = Stopping(radii=("180deg",)).rule(Uniform(2.8), ANGLE, 0.001, 10)
    assert rule.thresholds == pytest.approx((math.pi / 2.8 - 0.5,), rel=1e-11)


def test_easy_images_need_few_samples_and_hard_ones_many() -> None:
    rule = rule_of("10deg of 54", 0.001, 100_000)
    (threshold,) = rule.thresholds
    needed = {
        truth: next(k for k in looks(100_000) if settled(rule, round(truth * k), k))
        for truth in (1.0, 0.9, 0.7, threshold, 0.5, 0.1, 0.0)
    }
    assert max(needed[1.0], needed[0.0]) <= 25
    assert max(needed[0.9], needed[0.1]) <= 60
    assert max(needed[0.7], needed[0.5]) <= 1000
    # At the threshold itself, 100,000 samples certify one in a thousand: it is not waited for.
    assert 30_000 < needed[threshold] < 90_000
