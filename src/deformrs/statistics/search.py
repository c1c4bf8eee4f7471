"""Bisection towards the end of a safe range, never beyond it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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
    is_safe: Callable[[Floats, NDArray[np.intp]], NDArray[np.bool_]], safe: Floats, unsafe: Floats
) -> Floats:
    """Apply `last_safe` to many ranges at once. safe, unsafe: [k] -> [k]

    `is_safe(points, which)` answers for points: [m], which lie in the ranges of those numbers.
    Guarantee: each result is its own `safe` or a point at which `is_safe` was seen to hold.
    """
    safe, unsafe = safe.astype(np.float64), unsafe.astype(np.float64)
    which = np.arange(len(safe))
    while True:
        middle = (safe[which] + unsafe[which]) / 2
        low, high = np.minimum(safe[which], unsafe[which]), np.maximum(safe[which], unsafe[which])
        going = (low < middle) & (middle < high)
        which, middle = which[going], middle[going]
        if not len(which):
            return safe
        held = is_safe(middle, which)
        safe[which[held]] = middle[held]
        unsafe[which[~held]] = middle[~held]
