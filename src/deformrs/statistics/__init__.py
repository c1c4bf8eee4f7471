"""From counts to probabilities that hold with confidence 1 - alpha. NumPy and SciPy only."""

from __future__ import annotations

from collections.abc import Callable

from deformrs.certificate import Bound, Counts
from deformrs.errors import InputError
from deformrs.statistics.binomial import sign_test
from deformrs.statistics.bounds import (
    bonferroni,
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from deformrs.statistics.sequential import anytime, anytime_lower, anytime_upper

METHODS: dict[str, Callable[[Counts, float], Bound]] = {
    "clopper_pearson": clopper_pearson,
    "bonferroni": bonferroni,
    "anytime": anytime,
}
"""The ways to bound the candidate's probability, by the name a configuration gives them."""


def check_method(method: object) -> None:
    """A name of `METHODS`."""
    if method not in tuple(METHODS):
        raise InputError("method", repr(method), "must be a known bound", ", ".join(METHODS))


def bound(counts: Counts, alpha: float, method: str = "clopper_pearson") -> Bound:
    """Guarantee: both sides of the bound hold together with probability at least 1 - alpha."""
    check_method(method)
    if not (counts.n0 and counts.n):
        raise InputError(
            "the number of samples",
            f"{counts.n0} to select and {counts.n} to estimate",
            "must be at least 1 in both stages",
            "draw samples for each",
        )
    return METHODS[method](counts, alpha)


__all__ = [
    "METHODS",
    "anytime_lower",
    "anytime_upper",
    "bound",
    "check_method",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "sign_test",
]
