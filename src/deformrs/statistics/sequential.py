"""Any-time valid bounds: they hold however often the counts are looked at before sampling stops.

The capped bound is for at most `most` samples: half of alpha goes to the any-time bound, half to
Clopper-Pearson on all `most` samples, so that sampling to the end loses next to nothing against a
fixed number of samples. Derivations: docs/theory.md, section 4.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaln

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_alpha, check_hits, check_integer
from deformrs.errors import InputError
from deformrs.rounding import complement_up
from deformrs.statistics.bounds import clopper_pearson_lower, last_safe, last_safe_each

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# Jeffreys' prior: as good near 0 and 1, where most counts lie, as in the middle. The proof that
# the excluded set is an interval uses A, B <= 1/2 and alpha < 1/2.
A = B = 0.5

# Log-gamma differences of 10^8 samples are good to 1e-6 or so; of 10^5, to 1e-9.
_SAFETY_PER_SAMPLE = 2.0**-44


def log_e_values(hits: Whole | int, trials: Whole | int, p: Floats | float) -> Floats:
    """Return log E(p): evidence against "the probability is at most p", as a bet's capital.

    Under any true probability q <= p, E(p) is a nonnegative supermartingale of mean at most 1
    (a mixture over r > p, r ~ Beta(1/2, 1/2), of the likelihood ratios of r to p). Far above the
    share of hits it may be too small for a float: -inf. p lies strictly between 0 and 1.
    """
    misses = trials - hits
    with np.errstate(divide="ignore"):
        mixture = betaln(hits + A, misses + B) + np.log(betaincc(hits + A, misses + B, p))
    prior = betaln(A, B) + np.log(betaincc(A, B, p))
    values: Floats = mixture - prior - (hits * np.log(p) + misses * np.log1p(np.negative(p)))
    return values


def log_e_value(hits: int, trials: int, p: float) -> float:
    """Return `log_e_values` of one pair of counts."""
    return float(log_e_values(hits, trials, p))


def _target(trials: Whole | int, alpha: float, margins: int) -> Floats:
    """Return log 1/alpha plus margins, each more than twice the error of `log_e_values`."""
    margin = 1e-9 + _SAFETY_PER_SAMPLE * np.asarray(trials, dtype=np.float64)
    return np.asarray(-math.log(alpha) + margins * margin)


def anytime_lower(hits: int, trials: int, alpha: float) -> float:
    """Guarantee: over an endless run, the probability that the result ever exceeds the truth,
    at any number of trials, is at most alpha.

    The p that solves E(p) = 1/alpha, rounded down; 0 where there is none.

    >>> anytime_lower(1000, 1000, 0.001) > 0.98
    True
    """
    check_alpha(alpha, below=0.5)
    check_hits(hits, trials)
    return _lower(int(hits), int(trials), float(alpha))


# Where sampling stops early, most images stop with one of a few counts.
@lru_cache(maxsize=4096)
def _lower(hits: int, trials: int, alpha: float) -> float:
    if hits == 0:
        return 0.0
    target = float(_target(trials, alpha, margins=1))
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
    """Return the any-time valid counterpart of `clopper_pearson`: p_B = 1 - p_A."""
    lower = anytime_lower(counts.hits, counts.n, alpha)
    return Bound(lower, complement_up(lower))


def anytime_lowers(hits: Whole, trials: Whole, alpha: float) -> Floats:
    """Return `anytime_lower` for arrays, up to one unit in the last place."""
    check_alpha(alpha, below=0.5)
    check_tallies(hits, trials)
    target = _target(trials, alpha, margins=1)
    return last_safe_each(
        lambda p, at: log_e_values(hits[at], trials[at], p) >= target[at],
        safe=np.zeros(len(hits)),
        unsafe=hits / trials,
    )


def anytime_uppers(hits: Whole, trials: Whole, alpha: float) -> Floats:
    """Return `anytime_upper` for arrays, up to one unit in the last place."""
    check_tallies(hits, trials)
    lowers = anytime_lowers(trials - hits, trials, alpha)
    return np.where(lowers >= 0.5, 1 - lowers, np.minimum(1.0, np.nextafter(1 - lowers, np.inf)))


def reaches(hits: Whole, trials: Whole, alpha: float, p: float) -> NDArray[np.bool_]:
    """Return where `anytime_lower` is at least p: one evaluation instead of a search.

    Guarantee: True only where it is, whatever rounding does to the search.
    """
    # E falls in p wherever it exceeds 2, so evidence at p is evidence at everything below. Twice
    # the margin: no point that the search may try there falls short of the target.
    return log_e_values(hits, trials, p) >= _target(trials, alpha, margins=2)


def may_reach(hits: Whole, trials: Whole, alpha: float, p: float, most: int) -> NDArray[np.bool_]:
    """Return where `anytime_lower` may still reach p within `most` trials.

    Guarantee: False only where it cannot, at any number of trials up to `most`, even if all of
    those to come are hits.
    """
    # Every hit multiplies E(p) by at least 1 and every miss by less, so all hits is the best
    # that can happen, and the last look the best time.
    final = np.full_like(trials, most)
    best = log_e_values(hits + final - trials, final, p)
    return best >= _target(final, alpha, margins=-1)


def check_tallies(hits: Whole, trials: Whole) -> None:
    """Raise unless hits and trials are integer arrays with 0 <= hits <= trials, trials >= 1."""
    for name, values in (("hits", hits), ("trials", trials)):
        if values.ndim != 1 or values.dtype.kind != "i" or values.shape != hits.shape:
            raise InputError(
                name,
                f"{values.dtype} of shape {values.shape}",
                "must be integers, one for each image",
                "pass int64 arrays of the same length",
            )
    if not ((hits >= 0) & (hits <= trials) & (trials >= 1)).all():
        raise InputError(
            "a pair of hits and trials",
            next(
                f"({h}, {t})"
                for h, t in zip(hits.tolist(), trials.tolist(), strict=True)
                if not (0 <= h <= t and t >= 1)
            ),
            "must satisfy 0 <= hits <= trials, with at least one trial",
            "recount",
        )


def half(alpha: float) -> float:
    """Return the level of each of the two bounds: both together have alpha."""
    return alpha / 2


def capped_lower(hits: int, trials: int, alpha: float, most: int) -> float:
    """Guarantee: over an endless run, the probability that the result ever exceeds the truth,
    at any number of trials, is at most alpha.

    The last look, at `most` trials, is the sharp one.

    >>> capped_lower(950, 1000, 0.001, most=1000) > capped_lower(950, 1000, 0.001, most=2000)
    True
    """
    check_integer("most", most, least=1)
    at_any_time = anytime_lower(hits, trials, half(alpha))
    if trials != most:
        return at_any_time
    return max(at_any_time, clopper_pearson_lower(hits, trials, half(alpha)))


def last_lowers(hits: Whole, most: int, alpha: float) -> Floats:
    """Return `capped_lower` at the last look for arrays, without its last safety margin."""
    trials = np.full_like(hits, most)
    sharp = last_safe_each(
        lambda p, at: betainc(np.maximum(hits[at], 1), most - hits[at] + 1, p) <= half(alpha),
        safe=np.zeros(len(hits)),
        unsafe=np.ones(len(hits)),
    )
    sharp = np.where(hits > 0, sharp, 0.0)
    return np.maximum(sharp, anytime_lowers(hits, trials, half(alpha)))


def capped(counts: Counts, alpha: float, most: int) -> Bound:
    """Return the counterpart of `clopper_pearson` for at most `most` samples, at any time."""
    lower = capped_lower(counts.hits, counts.n, alpha, most)
    return Bound(lower, complement_up(lower))


@lru_cache(maxsize=4096)
def hits_needed(p: float, alpha: float, most: int) -> int:
    """Return the least number of hits with which the last look may show p, or `most` + 1."""
    aim = p * (1 - 1e-9)  # slightly less, so that rounding never requires too many
    low, high = 0, most + 1
    while low < high:
        middle = (low + high) // 2
        if clopper_pearson_lower(middle, most, half(alpha)) >= aim:
            high = middle
        else:
            low = middle + 1
    return low
