"""Bounds for a number of samples fixed beforehand: Clopper-Pearson, one-sided.

Derivations: docs/theory.md, section 3.
"""

from __future__ import annotations

import math

from scipy.special import betainc, betaincc, betainccinv, betaincinv

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_alpha, check_hits
from deformrs.errors import NumericalError

# SciPy's inverse beta function errs by up to 600 units in the last place, either way (1.3e-13).
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
    lower = float(betaincinv(hits, trials - hits + 1, alpha)) * (1 - _SAFETY)
    _verify(float(betainc(hits, trials - hits + 1, lower)), alpha, hits, trials)
    return lower


def clopper_pearson_upper(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: the result falls below the true probability with probability at most alpha.

    The p that solves P(Bin(trials, p) <= hits) = alpha, rounded up.
    """
    check_alpha(alpha)
    check_hits(hits, trials)
    if hits == trials:
        return 1.0
    upper = float(betainccinv(hits + 1, trials - hits, alpha)) * (1 + _SAFETY)
    if upper >= 1:
        return 1.0
    _verify(float(betaincc(hits + 1, trials - hits, upper)), alpha, hits, trials)
    return upper


def _verify(tail: float, alpha: float, hits: int, trials: int) -> None:
    """The forward function must agree that the bound is safe: doubt raises."""
    if not (math.isfinite(tail) and tail <= alpha * (1 + 1e-9)):
        raise NumericalError(
            "the tail at the computed bound",
            f"{tail} for {hits} of {trials}",
            f"must not exceed alpha = {alpha}",
            "use fewer samples or a larger alpha, and report this",
        )


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
