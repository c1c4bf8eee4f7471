"""Any-time bounds at every look: of many simulated runs, at most a share alpha may ever be false.

A run is false if its lower bound lies above the true probability of the candidate at any look. The
number of false ones is put to an exact binomial test of "the rate is at most alpha", which rejects
below a p-value of 1e-6. So a correct bound is rejected with probability at most 1e-6 a setting, of
which there are nine, each being 20,000 runs at alpha = 0.05. (Seeds are fixed: it either always
happens or never.) A single look is the subject of tests/known_truth.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.stats import binomtest

from deformrs.certificate import Counts
from deformrs.statistics import bound

ALPHA = 0.05
RUNS = 20_000
LOOKS = tuple(range(20, 601, 20))


def rejects(false_count: int) -> bool:
    """Return whether "at most a share alpha of the runs is false" is untenable."""
    return bool(binomtest(false_count, RUNS, ALPHA, alternative="greater").pvalue < 1e-6)


@functools.cache
def lower(method: str, hits: int, trials: int) -> float:
    return bound(Counts((1, 0), (hits, trials - hits)), ALPHA, method).lower


def count_false(method: str, p: float) -> int:
    """Return how many of RUNS candidates of probability p have a false bound at any look.

    Who may look several times may stop at the look of their choice, so one false look is enough.
    """
    rng = np.random.default_rng(0)
    hits, ever = np.zeros(RUNS, dtype=np.int64), np.zeros(RUNS, dtype=bool)
    for before, look in zip((0, *LOOKS), LOOKS, strict=False):
        hits += rng.binomial(look - before, p, size=RUNS)
        seen, which = np.unique(hits, return_inverse=True)
        wrong = [lower(method, k, look) > p for k in seen.tolist()]
        ever |= np.array(wrong)[which]
    return int(ever.sum())


@pytest.mark.parametrize("method", ["anytime", "anytime:600", "anytime:200"])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_guarantee_anytime_and_capped_lower_hold_at_every_look_together(
    p: float, method: str
) -> None:
    """30 looks, after every block of 20 samples up to 600; a sharp one may be among them."""
    assert not rejects(count_false(method, p))


def test_a_bound_for_a_fixed_number_of_samples_is_rejected() -> None:
    """Its rate is at least half as large again as alpha, 16 deviations above it."""
    count = count_false("clopper_pearson", 0.5)
    assert rejects(count)
    assert count > 1.5 * ALPHA * RUNS


def test_rejects_is_calibrated() -> None:
    """The smallest rejected count has a tail below 1e-6 under a rate of exactly alpha, and it is
    small enough to notice a rate of 0.06."""
    smallest = next(k for k in range(RUNS) if rejects(k))
    assert binomtest(smallest, RUNS, ALPHA, alternative="greater").pvalue < 1e-6
    assert binomtest(smallest - 1, RUNS, ALPHA, alternative="greater").pvalue >= 1e-6
    assert ALPHA * RUNS < smallest < 0.06 * RUNS
