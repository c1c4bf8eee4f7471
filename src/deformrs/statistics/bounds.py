"""Bounds for a number of samples fixed beforehand: Clopper-Pearson, one-sided.

Derivations: docs/theory.md, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import betainc, betaincc, betainccinv, betaincinv

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_alpha, check_hits
from deformrs.statistics.search import last_safe

# SciPy's inverse beta function is good to 600 units in the last place (1.3e-13), either way, but
# for a few arguments (a parameter of exactly 1000, tiny results) it is far off. The forward
# function is reliable, so it has the last word.
_SAFETY = 1e-11


def clopper_pearson_lower(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: the result exceeds the true probability with probability at most alpha.

    The p that solves P(Bin(trials, p) >= hits) = alpha, rounded down.

    >>> f"{clopper_pearson_lower(100, 100, 0.001):.6f}"  # 0.001 ** (1 / 100)
    '0.933254'
    """
    check_alpha(alpha)
    check_hits(hits, trials)
    if hits == 0:
        return 0.0
    a, b = hits, trials - hits + 1
    return _safe_end(lambda p: betainc(a, b, p) <= alpha, betaincinv(a, b, alpha), rim=0.0)


def clopper_pearson_upper(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: the result falls below the true probability with probability at most alpha.

    The p that solves P(Bin(trials, p) <= hits) = alpha, rounded up.
    """
    check_alpha(alpha)
    check_hits(hits, trials)
    if hits == trials:
        return 1.0
    a, b = hits + 1, trials - hits
    return _safe_end(lambda p: betaincc(a, b, p) <= alpha, betainccinv(a, b, alpha), rim=1.0)


def _safe_end(is_safe: Callable[[float], bool], guess: float, rim: float) -> float:
    """The end of the safe range that begins at `rim`, 0 or 1: the guess, if it proves right."""
    outwards, inwards = (1 - _SAFETY, 1 + _SAFETY) if rim == 0 else (1 + _SAFETY, 1 - _SAFETY)
    safe, unsafe = float(guess) * outwards, float(guess) * inwards
    believed = 0 < safe < 1 and 0 < unsafe < 1 and is_safe(safe) and not is_safe(unsafe)
    return safe if believed else min(1.0, last_safe(is_safe, rim, 1 - rim) * outwards)


def clopper_pearson(counts: Counts, alpha: float) -> Bound:
    """The paper's bound: p_A from below at level alpha, p_B = 1 - p_A."""
    lower = clopper_pearson_lower(counts.hits, counts.n, alpha)
    return Bound(lower, complement(lower))


def bonferroni(counts: Counts, alpha: float) -> Bound:
    """p_A from below and every other class from above, each at level alpha / K.

    Wins over `clopper_pearson` where the candidate holds less than half of the answers and the
    rest is spread over many classes.
    """
    check_alpha(alpha)
    share = alpha / len(counts.estimation)
    lower = clopper_pearson_lower(counts.hits, counts.n, share)
    others = [k for c, k in enumerate(counts.estimation) if c != counts.candidate]
    # The bound grows with the count, so the runner-up's is the largest of all.
    upper = clopper_pearson_upper(max(others), counts.n, share)
    return Bound(lower, min(upper, complement(lower)))


def complement(lower: float) -> float:
    """1 - lower, rounded up (the subtraction is exact from one half on)."""
    return 1 - lower if lower >= 0.5 else min(1.0, math.nextafter(1 - lower, math.inf))
