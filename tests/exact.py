"""References for the tests of rounding: exact rationals, and arithmetic of 60 digits."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound

HP: Any = mpmath.mp.clone()
HP.dps = 60

Floats = NDArray[np.float64]


def high(value: float | Fraction) -> Any:
    """Return the same number, to 60 digits."""
    exact = Fraction(value)
    return HP.mpf(exact.numerator) / exact.denominator


def incomplete_beta(a: Fraction, b: Fraction, x: Fraction, *, tiny: bool = False) -> Any:
    """I_x(a, b) to 50 digits or more: the series with positive terms, DLMF 8.17.8.

    I_x(a, b) = x^a (1-x)^b / (a B(a, b)) Σ_k Π_{j<k} x (a+b+j) / (a+1+j), summed in integers.
    Near 1 its complement is summed instead: faster, but a `tiny` result would cancel to nothing.
    """
    if x > Fraction(1, 2) and not tiny:
        return 1 - incomplete_beta(b, a, 1 - x)
    term = total = 1 << 240
    up, down = Fraction(a + b), Fraction(a + 1)
    scale = math.lcm(up.denominator, down.denominator)
    n, d = int(up * scale), int(down * scale)
    while term > total >> 220:
        term = term * n * x.numerator // (d * x.denominator)
        total += term
        n, d = n + scale, d + scale
    p, q, y = high(a), high(b), high(x)
    log_front = HP.loggamma(p + q) - HP.loggamma(p + 1) - HP.loggamma(q)
    return HP.exp(log_front + p * HP.log(y) + q * HP.log1p(-y)) * total / (1 << 240)


def upper_tail(hits: int, trials: int, p: Fraction, *, tiny: bool = False) -> Any:
    """P(Bin(trials, p) >= hits). If `tiny`, as many digits of a result below 1e-30."""
    return incomplete_beta(Fraction(hits), Fraction(trials - hits + 1), p, tiny=tiny)


def log_e(hits: int, trials: int, p: Fraction) -> Any:
    """log of the truncated beta mixture: ∫_p^1 r^S (1-r)^F dBeta(½,½)(r | r > p) / p^S (1-p)^F."""
    half = Fraction(1, 2)
    a, b = hits + half, trials - hits + half

    def log_mass(a: Fraction, b: Fraction) -> Any:
        beta = HP.loggamma(high(a)) + HP.loggamma(high(b)) - HP.loggamma(high(a + b))
        return beta + HP.log(1 - incomplete_beta(a, b, p))

    likelihood = hits * HP.log(high(p)) + (trials - hits) * HP.log1p(-high(p))
    return log_mass(a, b) - log_mass(half, half) - likelihood


def log_paired_e(excess: Fraction, disagreements: int) -> Any:
    """log of the stratified mixture E = B e^x x^-s γ(s, x), with s = D + B, x = excess + D, B = ½.

    γ(s, x) = x^s e^-x Σ_k x^k / (s (s+1) … (s+k)) (DLMF 8.7.1), so E = B Σ_k x^k / (s … (s+k)):
    a series of positive terms, summed in integers, which loses less than 1e-50 of it. x > 0.
    """
    shape, x = disagreements + Fraction(1, 2), excess + disagreements
    x = Fraction(int(x * 2**220), 2**220)  # moves log E by less than 2^-220
    term = total = (1 << 240) * shape.denominator // shape.numerator
    while term > total >> 220:
        shape += 1
        term = term * x.numerator * 2 // (x.denominator * int(2 * shape))
        total += term
    return HP.log(HP.mpf(total) / (1 << 241))


@functools.lru_cache(maxsize=4096)
def quantile(p: Fraction) -> Any:
    """Φ⁻¹(p)."""
    return HP.sqrt(2) * HP.erfinv(high(2 * p - 1))


def circle(length: Fraction, period: Fraction | None) -> Fraction:
    """|length|, on a circle the shorter way round."""
    if period is None:
        return abs(length)
    return min(abs(length) % period, period - abs(length) % period)


Periods = tuple[Fraction | None, ...]


def lost(shift: Floats, scale: Floats, periods: Periods) -> Fraction:
    """u(ξ) = 1 - Π (1 - min(|ξ_i|, 2λ_i, P_i - 2λ_i) / 2λ_i), exactly."""
    kept = Fraction(1)
    for xi, lam, period in zip(shift.tolist(), scale.tolist(), periods, strict=True):
        width = 2 * Fraction(lam)
        reach = width if period is None else min(width, period - width)
        kept *= 1 - min(circle(Fraction(xi), period), reach) / width
    return 1 - kept


def length_squared(shift: Floats, scale: Floats, periods: Periods) -> Fraction:
    """r(ξ)² = Σ (ξ_i / σ_i)², exactly."""
    return sum(
        (
            (circle(Fraction(xi), period) / Fraction(sigma)) ** 2
            for xi, sigma, period in zip(shift.tolist(), scale.tolist(), periods, strict=True)
        ),
        Fraction(0),
    )


def kept(p: Fraction, u: Fraction, r: Any) -> Any:
    """L(p) = (1-u) Φ(Φ⁻¹((p-u)/(1-u)) - r), and 0 where p <= u."""
    if p <= u:
        return HP.mpf(0)
    return high(1 - u) * HP.ncdf(quantile((p - u) / (1 - u)) - r)


def certified(u: Fraction, r_squared: Fraction, bound: Bound) -> bool:
    """Return whether the exact inequality of docs/theory.md, section 2, holds."""
    above, below = Fraction(bound.lower), Fraction(bound.upper)
    if above <= below:
        return False
    if r_squared == 0:
        return above - below > 2 * u
    r = HP.sqrt(high(r_squared))
    if u == 0:
        return bool(r < (quantile(above) - quantile(below)) / 2)
    return bool(kept(above, u, r) + kept(1 - below, u, r) > 1)
