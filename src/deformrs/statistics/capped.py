"""The any-time bound where sampling ends at a known number of samples at the latest.

Half of alpha goes to the any-time bound, half to Clopper-Pearson on all `most` samples: who goes on
to the end loses next to nothing against a number of samples fixed beforehand. Derivation:
docs/theory.md, section 4.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import betainc

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_whole
from deformrs.rounding import complement_up
from deformrs.statistics.bounds import clopper_pearson_lower
from deformrs.statistics.search import last_safe_each
from deformrs.statistics.sequential import Floats, Whole, anytime_lower, anytime_lowers


def half(alpha: float) -> float:
    """What each of the two bounds may err: both together at most alpha."""
    return alpha / 2


def capped_lower(hits: int, trials: int, alpha: float, most: int) -> float:
    """Guarantee: over an endless run, the probability that the result ever exceeds the truth,
    at any number of trials, is at most alpha.

    The last look, at `most` trials, is the sharp one.

    >>> capped_lower(950, 1000, 0.001, most=1000) > capped_lower(950, 1000, 0.001, most=2000)
    True
    """
    check_whole("most", most, least=1)
    at_any_time = anytime_lower(hits, trials, half(alpha))
    if trials != most:
        return at_any_time
    return max(at_any_time, clopper_pearson_lower(hits, trials, half(alpha)))


def last_lowers(hits: Whole, most: int, alpha: float) -> Floats:
    """`capped_lower` at the last look, for arrays, without its last safety margin."""
    trials = np.full_like(hits, most)
    sharp = last_safe_each(
        lambda p, at: betainc(np.maximum(hits[at], 1), most - hits[at] + 1, p) <= half(alpha),
        safe=np.zeros(len(hits)),
        unsafe=np.ones(len(hits)),
    )
    sharp = np.where(hits > 0, sharp, 0.0)
    return np.maximum(sharp, anytime_lowers(hits, trials, half(alpha)))


def capped(counts: Counts, alpha: float, most: int) -> Bound:
    """The counterpart of `clopper_pearson` where at most so many samples are drawn."""
    lower = capped_lower(counts.hits, counts.n, alpha, most)
    return Bound(lower, complement_up(lower))


@lru_cache(maxsize=4096)
def hits_needed(p: float, alpha: float, most: int) -> int:
    """The least number of hits with which the last look may show p; `most` + 1 if none does."""
    aim = p * (1 - 1e-9)  # a little less, so that rounding never asks for too many
    low, high = 0, most + 1
    while low < high:
        middle = (low + high) // 2
        if clopper_pearson_lower(middle, most, half(alpha)) >= aim:
            high = middle
        else:
            low = middle + 1
    return low
