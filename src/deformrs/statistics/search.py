"""Finding the end of a safe range without ever leaving it."""

from __future__ import annotations

from collections.abc import Callable


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
