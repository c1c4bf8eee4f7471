"""Errors of the stopping rule over whole runs, by simulation.

20,000 runs a setting at alpha = 0.05, through the looks and the rule to the certificate. "The rate
is at most alpha" is put to an exact binomial test that rejects below a p-value of 1e-6, so a
correct rule fails with probability at most 1e-6 a setting, of which there are twelve. (Seeds are
fixed: it either always happens or never.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaincinv
from scipy.stats import binomtest

from deformrs.statistics import anytime_upper, capped_method
from deformrs.statistics.sequential import hits_needed
from deformrs.stopping import GIVEN_UP, looks
from stopping_cases import ONE, answers, certificate, rule_of

Whole = NDArray[np.int64]
ALPHA, RUNS = 0.05, 20_000
Settles = Callable[[Whole, Whole], NDArray[np.bool_]]


def run(settles: Settles, truth: float, n: int, seed: int) -> tuple[Whole, Whole]:
    """Hits and trials of RUNS images at the look at which each was settled, n at the latest."""
    rng = np.random.default_rng(seed)
    hits, trials = np.zeros((2, RUNS), dtype=np.int64)
    active, last = np.arange(RUNS), 0
    for look in looks(n):
        hits[active] += rng.binomial(look - last, truth, len(active))
        trials[active] = last = look
        active = active[~settles(hits[active], trials[active])]
    return hits, trials


def rejects(count: int) -> bool:
    """Is "at most a share ALPHA of the runs" untenable?"""
    return bool(binomtest(count, RUNS, ALPHA, alternative="greater").pvalue < 1e-6)


def certified(case: str, method: str, hits: Whole, trials: Whole) -> int:
    """How many runs end in a certificate that says yes to everything."""
    outcomes, counts = np.unique(np.stack([hits, trials]), axis=1, return_counts=True)
    found = [certificate(case, h, t, ALPHA, method) for h, t in outcomes.T.tolist()]
    yes = [all(answers(case, one)) for one in found]
    return int(counts[np.array(yes)].sum())


@pytest.mark.parametrize("method", ["anytime", "anytime:2000"])
@pytest.mark.parametrize("case", ONE)
def test_guarantee_certify_after_settled_is_false_with_probability_at_most_alpha(
    case: str, method: str
) -> None:
    """The truth is just too small for the question, so every yes is false."""
    rule = rule_of(case, ALPHA, 2000, last_look=method != "anytime")
    (threshold,) = rule.thresholds
    truth = threshold * (1 - 1e-9)
    false = certified(case, method, *run(rule.decided, truth, 2000, seed=1))
    assert not rejects(false), f"{false} of {RUNS} certificates are false"
    assert false > 0

    # Clopper-Pearson in the same loop errs more often than it says: the test has teeth.
    def peeked(hits: Whole, trials: Whole) -> NDArray[np.bool_]:
        below: NDArray[np.bool_] = betaincc(hits + 1, trials - hits, threshold) <= ALPHA
        return np.logical_or(yes(hits, trials), below)

    def yes(hits: Whole, trials: Whole) -> NDArray[np.bool_]:
        above = betainc(np.maximum(hits, 1), trials - hits + 1, threshold) <= ALPHA
        return np.asarray(above & (hits > 0))

    wrong = int(yes(*run(peeked, truth, 2000, seed=1)).sum())
    assert rejects(wrong)
    assert wrong > 2 * ALPHA * RUNS


@pytest.mark.parametrize("case", ONE)
def test_what_holds_is_excluded_with_a_small_probability(case: str) -> None:
    """The truth just suffices, so whoever is excluded by evidence is given up wrongly."""
    assert GIVEN_UP == ALPHA
    rule = rule_of(case, ALPHA, 2000)
    (threshold,) = rule.thresholds
    hits, trials = run(rule.decided, threshold * (1 + 1e-9), 2000, seed=2)
    outcomes, counts = np.unique(np.stack([hits, trials]), axis=1, return_counts=True)
    excluded = [anytime_upper(h, t, GIVEN_UP) < threshold for h, t in outcomes.T.tolist()]
    lost = int(counts[np.array(excluded)].sum())
    assert lost > 0
    assert not rejects(lost)


@pytest.mark.parametrize("power", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("case", ONE)
def test_hardly_anything_that_all_samples_would_certify_is_given_up(
    case: str, power: float
) -> None:
    """Beside images that all wait for the last look: of which a share `power` is certified then.

    A difference beyond the share that may be given up and five standard errors fails.
    """
    n = 2000
    rule = rule_of(case, ALPHA, n)
    (threshold,) = rule.thresholds
    needed = hits_needed(threshold, ALPHA, n)
    truth = float(betaincinv(needed, n - needed + 1, power))  # so many get so many hits
    least = power - GIVEN_UP - 5 * np.sqrt(0.25 / RUNS)
    patient = certified(case, capped_method(n), *run(rule.decided, truth, n, seed=3))
    assert patient / RUNS > least

    # Who gives up as soon as it looks bad loses more: the test has teeth.
    def hasty(hits: Whole, trials: Whole) -> NDArray[np.bool_]:
        return rule.decided(hits, trials) | (hits < threshold * trials)

    assert certified(case, capped_method(n), *run(hasty, truth, n, seed=3)) / RUNS < least
