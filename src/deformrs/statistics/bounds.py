"""Bounds for a fixed number of samples: one-sided Clopper-Pearson, and the sign test.

Derivations: docs/theory.md, section 3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc

from deformrs.checks import check_alpha, check_hits
from deformrs.rounding import SLACK, round_up

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
    evaluate: Callable[[Floats, NDArray[np.intp]], tuple[Floats, Floats]],
    safe: Floats,
    unsafe: Floats,
) -> Floats:
    """Find the end of many safe ranges at once, by Newton's method. safe < unsafe: [k] -> [k]

    `evaluate(points, which)` returns a value, which is negative where a point is not safe, and its
    slope; points: [m] lie in the ranges of those numbers. Where the values are convex, Newton's
    steps stay in the safe part; any that would leave the range is replaced by its middle.

    Guarantee: each result is its own `safe` or a point whose value was seen not to be negative.
    """
    safe, unsafe = safe.astype(np.float64), unsafe.astype(np.float64)
    which, step = np.flatnonzero(safe < unsafe), (unsafe - safe) / 2
    while len(which):
        point = safe[which] + step[which]
        value, slope = evaluate(point, which)
        held = value >= 0
        safe[which[held]], unsafe[which[~held]] = point[held], point[~held]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = np.where(held, -value / slope, np.nan)
        room = unsafe[which] - safe[which]
        steps = np.where((newton >= 0) & (newton < room), newton, room / 2)
        step[which] = steps
        which = which[steps > 2.0**-46 * safe[which]]
    return safe


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
