"""The test by which a smoothed prediction abstains."""

from __future__ import annotations

from scipy.special import betainc

from deformrs.checks import check_hits
from deformrs.rounding import SLACK, round_up

# SciPy's beta function loses digits as counts grow: 1.4e-12 at 10^6.
_ERROR_PER_SAMPLE = 2.0**-57

# Far below, the beta function underflows on the way to its result and returns 0.
_TINY = 1e-100


def sign_test(first: int, second: int) -> float:
    """Two-sided p-value of `first` against `second` answers under even odds.

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
