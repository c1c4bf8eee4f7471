"""Any-time valid bounds from stratified noise: rounds of strata, with two samples in each.

The variance of the number of hits within a round is the expected number of strata whose two
samples disagree, so it is observed. Where answers change at a few points only, few disagree, and
the bounds close in as 1/n instead of 1/√n. Derivations: docs/theory.md, section 5.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln

from deformrs.checks import check_alpha, check_hits, check_integer
from deformrs.errors import InputError
from deformrs.rounding import complement_up, round_down
from deformrs.statistics.bounds import last_safe

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# The prior of the bets, with density B (1 - λ)^(B - 1) on (0, 1). Simulated: smaller ones gain
# little where all pairs agree and lose more where some do not.
B = 0.5

# Log-gamma of 10^8 disagreements is good to 1e-6 or so.
_SAFETY_PER_DISAGREEMENT = 2.0**-42


def log_e_value(excess: float, disagreements: int) -> float:
    """Return log E(p): evidence against "the probability is at most p", as a bet's capital.

    `excess` is the number of hits minus what p leads to expect, positive. A mixture over λ, of
    density B (1 - λ)^(B - 1) on (0, 1), of the bets exp(λ excess) ((1 - λ) exp(λ))^disagreements.
    """
    x, shape = excess + disagreements, disagreements + B
    share = float(gammainc(shape, x))
    if share == 0:  # lost to underflow, far below any evidence
        return -math.inf
    return x - shape * math.log(x) + float(gammaln(shape)) + math.log(share) + math.log(B)


@lru_cache(maxsize=2**16)
def allowance(disagreements: int, alpha: float) -> float:
    """Return the least excess that is evidence of 1/alpha, rounded up.

    >>> f"{allowance(0, 0.001):.2f}"
    '8.07'
    """
    target = -math.log(alpha) + 1e-9 + _SAFETY_PER_DISAGREEMENT * disagreements
    # The largest λ of use is 1, where log E grows by 1 for each excess.
    enough = 1.0
    while log_e_value(enough, disagreements) < target:
        enough *= 2
    return last_safe(
        lambda x: log_e_value(x, disagreements) >= target, safe=enough, unsafe=enough / 2
    )


def stratified_lower(hits: int, trials: int, disagreements: int, alpha: float) -> float:
    """Guarantee: over an endless run of rounds, the probability that the result ever exceeds the
    truth, after any number of them, is at most alpha.

    `trials` counts the samples of whole rounds, two for each stratum; `disagreements` the strata
    of which exactly one sample is a hit.

    >>> stratified_lower(1000, 1000, 0, 0.001) > 0.99
    True
    >>> stratified_lower(600, 1000, 2, 0.001) > 0.58
    True
    """
    check_alpha(alpha)
    check_hits(hits, trials)
    check_integer("disagreements", disagreements, least=0)
    if disagreements > min(hits, trials - hits) or trials % 2 or (hits - disagreements) % 2:
        raise InputError(
            "the number of disagreements",
            f"{disagreements} for {hits} hits of {trials}",
            "must be possible for pairs of samples",
            "count the pairs of which exactly one is a hit",
        )
    below = round_down(hits - allowance(int(disagreements), float(alpha)), 2.0**-50)
    return max(0.0, round_down(below / trials, 2.0**-50))


def stratified_upper(hits: int, trials: int, disagreements: int, alpha: float) -> float:
    """Guarantee: over an endless run of rounds, the probability that the result ever falls below
    the truth, after any number of them, is at most alpha."""
    check_hits(hits, trials)
    return complement_up(stratified_lower(trials - hits, trials, disagreements, alpha))


def stratified_lowers(hits: Whole, trials: Whole, disagreements: Whole, alpha: float) -> Floats:
    """Return `stratified_lower` for arrays, up to a few units in the last place."""
    found, back = np.unique(disagreements, return_inverse=True)
    allowances = np.array([allowance(d, alpha) for d in found.tolist()])
    lowers: Floats = (hits - allowances[back].reshape(hits.shape)) / trials
    return np.maximum(lowers, 0.0)


def stratified_uppers(hits: Whole, trials: Whole, disagreements: Whole, alpha: float) -> Floats:
    """Return `stratified_upper` for arrays, up to a few units in the last place."""
    return 1 - stratified_lowers(trials - hits, trials, disagreements, alpha)
