"""Errors of the stopping rule over whole runs, by simulation.

20,000 runs a setting, through the looks and the rule to the certificate, of two classes at alpha =
0.05 and of 10 and 1,000 also at 0.001. "The rate is at most alpha" is put to an exact binomial test
that rejects below a p-value of 1e-6, so a correct rule fails with probability at most 1e-6 a
setting, of which there are twenty. Peeking errs at more than twice alpha, far above what is
rejected. (Seeds are fixed: a failure either always happens or never.)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaincinv
from scipy.stats import binomtest

from deformrs.certificate import Counts
from deformrs.noise import Uniform
from deformrs.rule import GIVEN_UP, looks
from deformrs.statistics import Method, anytime_upper
from deformrs.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
from deformrs.statistics.sequential import half
from deformrs.stopping import Stopping
from stopping_cases import ANGLE, ONE, answers, certificate, decided, rule_of, thresholds

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


def rejects(count: int, alpha: float = ALPHA) -> bool:
    """Return whether "at most a share alpha of the runs" is untenable."""
    return bool(binomtest(count, RUNS, alpha, alternative="greater").pvalue < 1e-6)


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


# ---------------------------------------------------------------- two probabilities

ARC, MOST = Uniform(math.radians(54)), 300
"""Certifies 10 degrees where p_A - p_B exceeds 10/54."""


def false_with_runner_up(
    classes: int, alpha: float, method: str, decides: Callable[[Integers], NDArray[np.bool_]]
) -> int:
    """Return how many of RUNS images are certified up to a radius that is just too large.

    All of the classes but the candidate and the runner-up share what these leave.
    """
    ahead = 0.5
    truth = np.array([ahead, ahead - 10 / 54 * (1 + 1e-9)])
    truth = np.append(truth, np.full(classes - 2, (1 - truth.sum()) / (classes - 2)))
    ends, rng = np.cumsum(truth)[:-1], np.random.default_rng(classes)
    counts = np.zeros((RUNS, classes), dtype=np.int32)
    active, last = np.arange(RUNS), 0
    for look in looks(MOST):
        drawn = np.searchsorted(ends, rng.random((len(active), look - last)), side="right")
        np.add.at(counts, (active[:, None], drawn), 1)
        last, done = look, decides(counts[active].astype(np.int64))
        active = active[~done]
    columns = np.stack([counts[:, 0], counts[:, 1:].max(axis=1), counts.sum(axis=1)])
    outcomes, number = np.unique(columns, axis=1, return_counts=True)
    false = 0
    for (hits, others, trials), runs in zip(outcomes.T.tolist(), number.tolist(), strict=True):
        rest = trials - hits - others  # of classes that matter no more
        shared = [others, *(min(others, rest - k) for k in range(0, rest, max(1, others)))]
        stages = Counts((2, *[1] * max(2, len(shared))), (hits, *shared, *[0] * (2 - len(shared))))
        made = ARC.certify(stages, ANGLE, alpha, method)
        false += runs * (made.prediction is not None and made.radius >= math.radians(10))
    return false


@pytest.mark.parametrize("classes", [10, 1000])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_guarantee_certify_after_two_probabilities_are_decided_is_false_at_most_alpha(
    classes: int, alpha: float
) -> None:
    method = Method.parse(f"anytime_auto:{MOST}")
    rule = Stopping(radii=("10deg",)).rule(ARC, ANGLE, alpha, MOST, method)
    selection = np.array([[2, *[1] * (classes - 1)]])

    def decides(counts: Integers) -> NDArray[np.bool_]:
        return rule.decided(np.broadcast_to(selection, counts.shape), counts)

    false = false_with_runner_up(classes, alpha, method.name, decides)
    assert not rejects(false, alpha), f"{false} of {RUNS} certificates are false"

    if alpha < ALPHA:
        return  # with 20,000 runs, the next one cannot be told from a right one

    # Bounds for a fixed number of samples, each with all of alpha, err more often.
    @cache
    def certified(hits: int, others: int, trials: int) -> bool:
        lower = clopper_pearson_lower(hits, trials, alpha)
        return lower - clopper_pearson_upper(others, trials, alpha) > 10 / 54

    def peeked(counts: Integers) -> NDArray[np.bool_]:
        columns = np.stack([counts[:, 0], counts[:, 1:].max(axis=1), counts.sum(axis=1)])
        return np.array([certified(*row) for row in columns.T.tolist()])

    wrong = false_with_runner_up(classes, 2 * alpha, "runner_up", peeked)
    assert rejects(wrong, alpha)
    assert wrong > 1.5 * alpha * RUNS
