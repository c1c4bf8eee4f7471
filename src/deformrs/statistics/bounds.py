"""Bounds for a fixed number of samples: one-sided Clopper-Pearson, and the sign test.

Derivations: docs/theory.md, section 3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_alpha, check_hits
from deformrs.rounding import SLACK, complement_up, round_up

Floats = NDArray[np.float64]


def last_safe(is_safe: Callable[[float], bool], safe: float, unsafe: float) -> float:
    """Guarantee: the result is `safe` or a point at which `is_safe` was seen to hold.

    Bisects between the two, down to neighbouring floats, towards the end of the safe range.
    """
    while min(safe, unsafe) < (middle := (safe + unsafe) / 2) < max(safe, unsafe):
        if is_safe(middle):
            safe = middle
        else:
            unsafe = middle
    return safe


def last_safe_each(
    is_safe: Callable[[Floats, NDArray[np.intp]], NDArray[np.bool_]], safe: Floats, unsafe: Floats
) -> Floats:
    """Apply `last_safe` to many ranges at once. safe, unsafe: [k] -> [k]

    `is_safe(points, which)` answers for points: [m], which lie in the ranges of those numbers.
    Guarantee: each result is its own `safe` or a point at which `is_safe` was seen to hold.
    """
    safe, unsafe = safe.astype(np.float64), unsafe.astype(np.float64)
    which = np.arange(len(safe))
    while True:
        middle = (safe[which] + unsafe[which]) / 2
        low, high = np.minimum(safe[which], unsafe[which]), np.maximum(safe[which], unsafe[which])
        going = (low < middle) & (middle < high)
        which, middle = which[going], middle[going]
        if not len(which):
            return safe
        held = is_safe(middle, which)
        safe[which[held]] = middle[held]
        unsafe[which[~held]] = middle[~held]


# The bound is found by bisecting the binomial tail. SciPy's inverse would be faster, but is wrong
# for some arguments (a parameter of exactly 1000, tiny results), to the point of being unsound.
# The tail itself has a relative error of about 1e-12, which this outweighs.
_SAFETY = 1e-11


def clopper_pearson_lower(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: the result exceeds the true probability with probability at most alpha.

    The p that solves P(Bin(trials, p) >= hits) = alpha, rounded down; 0 where there is none.

    >>> f"{clopper_pearson_lower(100, 100, 0.001):.6f}"  # 0.001 ** (1 / 100)
    '0.933254'
    """
    check_alpha(alpha)
    check_hits(hits, trials)
    if hits == 0:
        return 0.0
    p = last_safe(lambda p: betainc(hits, trials - hits + 1, p) <= alpha, safe=0.0, unsafe=1.0)
    return p * (1 - _SAFETY)


def clopper_pearson_upper(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: the result falls below the true probability with probability at most alpha.

    The p that solves P(Bin(trials, p) <= hits) = alpha, rounded up; 1 where there is none.
    """
    check_alpha(alpha)
    check_hits(hits, trials)
    if hits == trials:
        return 1.0
    p = last_safe(lambda p: betaincc(hits + 1, trials - hits, p) <= alpha, safe=1.0, unsafe=0.0)
    return min(1.0, p * (1 + _SAFETY))


def clopper_pearson(counts: Counts, alpha: float) -> Bound:
    """Return the paper's bound: p_A from below at level alpha, p_B = 1 - p_A."""
    lower = clopper_pearson_lower(counts.hits, counts.n, alpha)
    return Bound(lower, complement_up(lower))


def bonferroni(counts: Counts, alpha: float) -> Bound:
    """Bound p_A from below and every other class from above, each at level alpha / K.

    Sharper than `clopper_pearson` where the candidate has less than half of the counts and the
    rest is spread over many classes.
    """
    check_alpha(alpha)
    share = alpha / len(counts.estimation)
    lower = clopper_pearson_lower(counts.hits, counts.n, share)
    others = [k for c, k in enumerate(counts.estimation) if c != counts.candidate]
    # The bound grows with the count, so the runner-up's is the largest of all.
    upper = clopper_pearson_upper(max(others), counts.n, share)
    return Bound(lower, min(upper, complement_up(lower)))


# SciPy's beta function loses digits as counts grow: 1.4e-12 at 10^6.
_ERROR_PER_SAMPLE = 2.0**-57

# Far below, the beta function underflows on the way to its result and returns 0.
_TINY = 1e-100


def sign_test(first: int, second: int) -> float:
    """Return the two-sided p-value of `first` against `second` counts under even odds.

    Guarantee: if both classes are equally probable, the result is at most alpha with probability
    at most alpha, for every alpha. Rounded up.

    With N = first + second and m the larger count it is min(1, 2 P(Bin(N, 1/2) >= m)).

    >>> round(sign_test(9, 1), 6)
    0.021484
    """
    larger, total = max(first, second), first + second
    check_hits(larger, total)
    tail = float(betainc(larger, total - larger + 1, 0.5))
    return min(1.0, max(_TINY, round_up(2 * tail, SLACK + _ERROR_PER_SAMPLE * total)))
