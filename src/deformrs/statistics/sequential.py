"""A bound that stays valid however often one looks and whenever one stops.

Derivation: docs/theory.md, section 4.
"""

from __future__ import annotations

import math

from scipy.special import betaincc, betaln

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_alpha, check_hits
from deformrs.rounding import complement_up
from deformrs.statistics.search import last_safe

# Jeffreys' prior: as good near 0 and 1, where most answers lie, as in the middle. The proof that
# the excluded set is an interval uses A, B <= 1/2 and alpha < 1/2.
A = B = 0.5

# Log-gamma differences of 10^8 samples are good to 1e-6 or so; of 10^5, to 1e-9.
_SAFETY_PER_SAMPLE = 2.0**-44


def log_e_value(hits: int, trials: int, p: float) -> float:
    """log E(p): evidence against "the probability is at most p", as a bet's capital.

    Under any true probability q <= p, E(p) is a nonnegative supermartingale of mean at most 1
    (a mixture over r > p, r ~ Beta(1/2, 1/2), of the likelihood ratios of r to p).
    """
    mixture = betaln(hits + A, trials - hits + B) + math.log(
        betaincc(hits + A, trials - hits + B, p)
    )
    prior = betaln(A, B) + math.log(betaincc(A, B, p))
    misses = trials - hits
    likelihood = hits * math.log(p) + (misses * math.log1p(-p) if misses else 0.0)
    return float(mixture - prior - likelihood)


def anytime_lower(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: over an endless run, the probability that the result ever exceeds the truth,
    at any number of trials, is at most alpha.

    The p that solves E(p) = 1/alpha, rounded down; 0 where there is none.

    >>> anytime_lower(1000, 1000, 0.001) > 0.98
    True
    """
    check_alpha(alpha, below=0.5)
    check_hits(hits, trials)
    if hits == 0:
        return 0.0
    target = -math.log(alpha) + 1e-9 + _SAFETY_PER_SAMPLE * trials
    # E(p) falls from infinity at 0 to at most 1 at hits/trials, and crosses the target once.
    return last_safe(
        lambda p: log_e_value(hits, trials, p) >= target, safe=0.0, unsafe=hits / trials
    )


def anytime_upper(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: over an endless run, the probability that the result ever falls below the truth,
    at any number of trials, is at most alpha."""
    check_hits(hits, trials)
    return complement_up(anytime_lower(trials - hits, trials, alpha))


def anytime(counts: Counts, alpha: float) -> Bound:
    """The any-time valid counterpart of `clopper_pearson`: p_B = 1 - p_A."""
    lower = anytime_lower(counts.hits, counts.n, alpha)
    return Bound(lower, complement_up(lower))
