"""Argument checks. Python's and NumPy's numbers are both accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deformrs.errors import InputError, did_you_mean


def is_real(value: object) -> bool:
    """Return whether a value is a finite real number."""
    number = isinstance(value, int | float | np.integer | np.floating)
    try:
        return number and not isinstance(value, bool) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # an integer beyond all floats
        return False


def check_integer(name: str, value: object, least: int) -> None:
    """Raise unless a value is an integer of at least `least`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:  # type: ignore[operator]
        raise InputError(
            name, repr(value), f"must be an integer of at least {least}", f"e.g. {least}"
        )


def check_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Raise unless a value is one of these words.

    >>> check_choice("basis", "sin", ("sine", "cosine"))
    Traceback (most recent call last):
    deformrs.errors.InputError: basis is 'sin'; it must be one of sine, cosine: did you mean 'sine'?
    """
    if value not in known:
        raise InputError(
            name,
            repr(value),
            "must be one of " + ", ".join(known),
            did_you_mean(value, known, f"e.g. {known[0]!r}"),
        )


def check_seed(name: str, value: object) -> None:
    """Raise unless a value is an integer that every random generator takes."""
    check_integer(name, value, least=0)
    if value >= 2**64:  # type: ignore[operator]
        raise InputError(name, repr(value), "must be below 2**64", "e.g. 0")


def check_size(size: object) -> None:
    """Raise unless a value is the height and width of an image in pixels."""
    if not (isinstance(size, tuple) and len(size) == 2):
        raise InputError(
            "the size", repr(size), "must be (height, width) in pixels", "e.g. (28, 28)"
        )
    for name, value in zip(("the height", "the width"), size, strict=True):
        check_integer(name, value, least=1)


LEAST_ALPHA = 1e-200
"""The least level of a bound: binomial tails below 1e-240 are lost to underflow in SciPy."""

SEED_BITS = 64
"""The entropy of a seed. Samples drawn from it cannot support a level below one in 2**64."""


def check_alpha(alpha: float, below: float = 1.0) -> None:
    """Raise unless alpha is a level of a bound: at least LEAST_ALPHA, and less than `below`."""
    if not (is_real(alpha) and 0 < alpha < below):
        raise InputError("alpha", repr(alpha), f"must lie in (0, {below:g})", "e.g. 0.001")
    if alpha < LEAST_ALPHA:
        raise InputError(
            "alpha",
            f"{alpha:g}",
            f"must be at least {LEAST_ALPHA:g}: floats cannot hold smaller binomial tails",
            "e.g. 1e-9",
        )


def check_sampled_alpha(alpha: float, below: float = 1.0) -> None:
    """Raise unless samples drawn from a seed can support the level alpha, less than `below`."""
    check_alpha(alpha, below)
    if alpha < 2.0**-SEED_BITS:
        raise InputError(
            "alpha",
            f"{alpha:g}",
            f"must be at least 2**-{SEED_BITS}, about {2.0**-SEED_BITS:.1g}, which is as likely as "
            "guessing the seed: its entropy is the limit",
            "e.g. 1e-9",
        )


def check_hits(hits: int, trials: int) -> None:
    """Raise unless 0 <= hits <= trials, with at least one trial."""
    check_integer("the number of trials", trials, least=1)
    check_integer("hits", hits, least=0)
    if hits > trials:
        raise InputError("hits", hits, f"must lie in [0, {trials}]", "recount")
