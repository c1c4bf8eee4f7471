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
from scipy.special import beta, betainc, betaincc, betaln

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


def anytime_lowers(hits: Whole, trials: Whole, alpha: float) -> Floats:
    """Return `anytime_lower` for arrays, up to 2**-45 of it."""
    check_alpha(alpha, below=0.5)
    check_tallies(hits, trials)
    target = _target(trials, alpha, margins=1)

    def evaluate(p: Floats, at: NDArray[np.intp]) -> tuple[Floats, Floats]:
        values = log_e_values(hits[at], trials[at], p)
        # The derivative of docs/theory.md, section 4, divided by E.
        prior = p ** (A - 1) * (1 - p) ** (B - 1) / (beta(A, B) * betaincc(A, B, p))
        slope = prior * -np.expm1(-values) - (hits[at] - trials[at] * p) / (p * (1 - p))
        return values - target[at], slope

    return last_safe_each(evaluate, safe=np.zeros(len(hits)), unsafe=hits / trials)


def anytime_uppers(hits: Whole, trials: Whole, alpha: float) -> Floats:
    """Return `anytime_upper` for arrays, up to one unit in the last place."""
    check_tallies(hits, trials)
    lowers = anytime_lowers(trials - hits, trials, alpha)
    return np.where(lowers >= 0.5, 1 - lowers, np.minimum(1.0, np.nextafter(1 - lowers, np.inf)))


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


def capped_upper(hits: int, trials: int, alpha: float, most: int) -> float:
    """Guarantee: over an endless run, the probability that the result ever falls below the truth,
    at any number of trials, is at most alpha."""
    check_hits(hits, trials)
    return complement_up(capped_lower(trials - hits, trials, alpha, most))


def last_lowers(hits: Whole, most: Whole, alpha: float) -> Floats:
    """Return `capped_lower` at the last look for arrays, without its last safety margin."""
    a, b = np.maximum(hits, 1).astype(np.float64), most - hits + 1.0

    def evaluate(p: Floats, at: NDArray[np.intp]) -> tuple[Floats, Floats]:
        density = (a[at] - 1) * np.log(p) + (b[at] - 1) * np.log1p(-p) - betaln(a[at], b[at])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # an underflown tail
            tail = np.log(betainc(a[at], b[at], p))
            return math.log(half(alpha)) - tail, -np.exp(density - tail)

    sharp = last_safe_each(evaluate, safe=np.zeros(len(hits)), unsafe=np.ones(len(hits)))
    sharp = np.where(hits > 0, sharp, 0.0)
    return np.maximum(sharp, anytime_lowers(hits, most, half(alpha)))


def last_uppers(hits: Whole, most: Whole, alpha: float) -> Floats:
    """Return `capped_upper` at the last look for arrays, without its last safety margin."""
    return 1 - last_lowers(most - hits, most, alpha)
