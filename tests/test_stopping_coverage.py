"""Errors of the stopping rule over whole runs, by simulation.

20,000 runs a setting at alpha = 0.05, through the looks and the rule to the certificate. "The rate
is at most alpha" is put to an exact binomial test that rejects below a p-value of 1e-6, so a
correct rule fails with probability at most 1e-6 a setting, of which there are twelve. Peeking errs
at more than twice alpha, 13 standard deviations above what is rejected. (Seeds are fixed: a failure
either always happens or never.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaincinv
from scipy.stats import binomtest

from deformrs.rule import GIVEN_UP, looks
from deformrs.statistics import anytime_upper
from deformrs.statistics.bounds import clopper_pearson_lower
from deformrs.statistics.sequential import half
from stopping_cases import ONE, answers, certificate, decided, rule_of, thresholds

Integers = NDArray[np.int64]
ALPHA, RUNS = 0.05, 20_000
Decision = Callable[[Integers, Integers], NDArray[np.bool_]]


def run(decides: Decision, truth: float, n: int, seed: int) -> tuple[Integers, Integers]:
    """Return hits and trials of RUNS images at the look that decided each, n at the latest."""
    rng = np.random.default_rng(seed)
    hits, trials = np.zeros((2, RUNS), dtype=np.int64)
    active, last = np.arange(RUNS), 0
    for look in looks(n):
        hits[active] += rng.binomial(look - last, truth, len(active))
        trials[active] = last = look
        active = active[~decides(hits[active], trials[active])]
    return hits, trials


def rejects(count: int) -> bool:
    """Return whether "at most a share ALPHA of the runs" is untenable."""
    return bool(binomtest(count, RUNS, ALPHA, alternative="greater").pvalue < 1e-6)


def certified(case: str, method: str, hits: Integers, trials: Integers) -> int:
    """Return how many runs end in a certificate that holds for every query."""
    outcomes, counts = np.unique(np.stack([hits, trials]), axis=1, return_counts=True)
    certificates = [certificate(case, h, t, ALPHA, method) for h, t in outcomes.T.tolist()]
    yes = [all(answers(case, one)) for one in certificates]
    return int(counts[np.array(yes)].sum())


@pytest.mark.parametrize("method", ["anytime", "anytime:2000"])
@pytest.mark.parametrize("case", ONE)
def test_guarantee_certify_after_decided_is_false_with_probability_at_most_alpha(
    case: str, method: str
) -> None:
    """The truth is just too small for the query, so every certificate is false."""
    rule = rule_of(case, ALPHA, 2000, last_look=method != "anytime")
    (threshold,) = thresholds(case)
    truth = threshold * (1 - 1e-9)
    false = certified(case, method, *run(partial(decided, rule), truth, 2000, seed=1))
    assert not rejects(false), f"{false} of {RUNS} certificates are false"
    assert false > 0

    # Clopper-Pearson in the same loop errs more often than alpha, and is rejected.
    def peeked(hits: Integers, trials: Integers) -> NDArray[np.bool_]:
        below: NDArray[np.bool_] = betaincc(hits + 1, trials - hits, threshold) <= ALPHA
        return np.logical_or(yes(hits, trials), below)

    def yes(hits: Integers, trials: Integers) -> NDArray[np.bool_]:
        above = betainc(np.maximum(hits, 1), trials - hits + 1, threshold) <= ALPHA
        return np.asarray(above & (hits > 0))

    wrong = int(yes(*run(peeked, truth, 2000, seed=1)).sum())
    assert rejects(wrong)
    assert wrong > 2 * ALPHA * RUNS


@pytest.mark.parametrize("case", ONE)
def test_a_true_query_is_excluded_with_a_small_probability(case: str) -> None:
    """The truth just suffices, so every run that the evidence excludes is given up wrongly."""
    assert GIVEN_UP == ALPHA
    rule = rule_of(case, ALPHA, 2000)
    (threshold,) = thresholds(case)
    hits, trials = run(partial(decided, rule), threshold * (1 + 1e-9), 2000, seed=2)
    outcomes, counts = np.unique(np.stack([hits, trials]), axis=1, return_counts=True)
    excluded = [anytime_upper(h, t, GIVEN_UP) < threshold for h, t in outcomes.T.tolist()]
    lost = int(counts[np.array(excluded)].sum())
    assert lost > 0
    assert not rejects(lost)


@pytest.mark.parametrize("power", [0.3, 0.9])
@pytest.mark.parametrize("case", ONE)
def test_few_images_that_all_samples_would_certify_are_given_up(case: str, power: float) -> None:
    """Of images that all wait for the last look, a share `power` is certified then.

    A difference beyond the share that may be given up and five standard errors fails.
    """
    n = 2000
    rule = rule_of(case, ALPHA, n)
    (threshold,) = thresholds(case)
    lowers = [clopper_pearson_lower(k, n, half(ALPHA)) for k in range(n + 1)]
    needed = bisect_left(lowers, threshold)
    truth = float(betaincinv(needed, n - needed + 1, power))  # so many get so many hits
    least = power - GIVEN_UP - 5 * np.sqrt(0.25 / RUNS)
    patient = certified(case, rule.method.name, *run(partial(decided, rule), truth, n, seed=3))
    assert patient / RUNS > least

    # A rule that gives up below the threshold loses more, and is rejected.
    def hasty(hits: Integers, trials: Integers) -> NDArray[np.bool_]:
        return decided(rule, hits, trials) | (hits < threshold * trials)

    assert certified(case, rule.method.name, *run(hasty, truth, n, seed=3)) / RUNS < least
