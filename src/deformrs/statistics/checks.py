"""Arguments that every bound checks in the same way."""

from __future__ import annotations

import math

from deformrs.errors import InputError


def check_alpha(alpha: float, below: float = 1.0) -> None:
    """alpha is a probability of failure strictly between 0 and `below`."""
    if not (isinstance(alpha, int | float) and 0 < alpha < below and math.isfinite(alpha)):
        raise InputError("alpha", alpha, f"must lie in (0, {below:g})", "e.g. 0.001")


def check_counts(hits: int, trials: int) -> None:
    """0 <= hits <= trials, with at least one trial."""
    if trials < 1:
        raise InputError("the number of trials", trials, "must be at least 1", "draw samples")
    if not 0 <= hits <= trials:
        raise InputError("hits", hits, f"must lie in [0, {trials}]", "recount")
