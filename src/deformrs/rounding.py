"""Rounding in a stated direction.

A certificate may promise less than it could, never more. Every reported number therefore goes
through one of these functions, whose names state the direction.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# Far above the error of any formula it is used on (a few dozen units in the last place),
# far below any figure that is printed.
SLACK = 2.0**-40

# For single library calls and short sums, which are good to a few units in the last place.
FEW_ULPS = 2.0**-47


def round_down(value: float, relative: float = SLACK) -> float:
    """Guarantee: the result lies below `value` by at least `relative` of its size.

    Infinity stays infinite.
    """
    if math.isinf(value):
        return value
    return math.nextafter(value - abs(value) * relative, -math.inf)


def round_up(value: float, relative: float = SLACK) -> float:
    """Guarantee: the result lies above `value` by at least `relative` of its size."""
    return -round_down(-value, relative)


def array_down(
    values: NDArray[np.float64] | float, relative: float = FEW_ULPS
) -> NDArray[np.float64]:
    """Round an array down, by more than the error of one library call."""
    values = np.asarray(values, dtype=np.float64)
    margin = np.where(np.isfinite(values), np.abs(values), 0.0) * relative
    return np.nextafter(values - margin, -np.inf)


def array_up(
    values: NDArray[np.float64] | float, relative: float = FEW_ULPS
) -> NDArray[np.float64]:
    """Round an array up, by more than the error of one library call."""
    return -array_down(-np.asarray(values, dtype=np.float64), relative)


def complement_up(p: float) -> float:
    """Return 1 - p, rounded up (from one half on the subtraction is exact)."""
    return 1 - p if p >= 0.5 else min(1.0, math.nextafter(1 - p, math.inf))


def complement_down(p: float) -> float:
    """Return 1 - p, rounded down."""
    return max(0.0, math.nextafter(1 - p, -math.inf))


def float_down(value: Fraction) -> float:
    """Return the float nearest to `value` from below.

    Guarantee: never above `value`.
    """
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def format_down(value: float | Fraction, decimals: int) -> str:
    """Format a value with that many decimals, rounded down in exact arithmetic.

    >>> format_down(0.9999, 3)
    '0.999'
    """
    return _with_point(math.floor(Fraction(value) * 10**decimals), decimals)


def format_up(value: float | Fraction, decimals: int) -> str:
    """Format a value with that many decimals, rounded up in exact arithmetic.

    >>> format_up(0.9991, 3)
    '1.000'
    """
    return _with_point(math.ceil(Fraction(value) * 10**decimals), decimals)


def format_alpha(alpha: float) -> str:
    """Format a level with at most nine digits, rounded up.

    >>> format_alpha(0.001), format_alpha(0.001 / 20)
    ('0.001', '5e-05')
    """
    shown = Context(prec=9, rounding=ROUND_CEILING).create_decimal(repr(alpha))
    return f"{float(shown):.9g}"


def _with_point(shifted: int, decimals: int) -> str:
    sign, digits = "-" if shifted < 0 else "", str(abs(shifted)).zfill(decimals + 1)
    return sign + (f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits)


def percent_up(part: int, whole: int, decimals: int = 1) -> str:
    """Format `part / whole` in percent, rounded up in exact arithmetic.

    >>> percent_up(1, 3)
    '33.4'
    """
    return format_up(Fraction(100 * part, whole), decimals)


def percent_down(part: int, whole: int, decimals: int = 1) -> str:
    """Format `part / whole` in percent, rounded down in exact arithmetic.

    >>> percent_down(2, 3)
    '66.6'
    """
    return format_down(Fraction(100 * part, whole), decimals)
