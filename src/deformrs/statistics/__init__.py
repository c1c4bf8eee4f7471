"""Bounds on class probabilities that hold with confidence 1 - alpha. NumPy and SciPy only."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_sampled_alpha
from deformrs.errors import InputError
from deformrs.statistics.bounds import (
    bonferroni,
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    sign_test,
)
from deformrs.statistics.sequential import (
    anytime,
    anytime_lower,
    anytime_upper,
    capped,
    capped_lower,
)

METHODS: dict[str, Callable[[Counts, float], Bound]] = {
    "clopper_pearson": clopper_pearson,
    "bonferroni": bonferroni,
    "anytime": anytime,
}
"""The bounds on the candidate's probability, by their name in configurations.

One more is "anytime:N", where no more than N samples are drawn: see `capped_lower`.
"""


def capped_method(most: int) -> str:
    """Return the name of the any-time bound for at most `most` samples.

    >>> capped_method(1000)
    'anytime:1000'
    """
    return f"anytime:{most}"


def is_anytime(method: str) -> bool:
    """Return whether a bound holds whenever sampling stops."""
    return method.partition(":")[0] == "anytime"


def check_method(method: object) -> None:
    """Raise unless `method` is a name of `METHODS`, or "anytime:N"."""
    if not isinstance(method, str) or _bound_of(method) is None:
        known = ", ".join(METHODS)
        raise InputError("method", repr(method), "must be a known bound", f"{known}, anytime:1000")


def check_level(alpha: float, method: str) -> None:
    """Raise unless certificates of sampled counts can have the level alpha by that bound."""
    check_method(method)
    check_sampled_alpha(alpha, below=0.5 if is_anytime(method) else 1.0)


def _bound_of(method: str) -> Callable[[Counts, float], Bound] | None:
    found = re.fullmatch(r"anytime:([1-9][0-9]{0,15})", method, re.ASCII)
    if found is not None:
        return partial(capped, most=int(found[1]))
    return METHODS.get(method)


def bound(counts: Counts, alpha: float, method: str = "clopper_pearson") -> Bound:
    """Guarantee: both sides of the bound hold together with probability at least 1 - alpha."""
    check_method(method)
    of_counts = _bound_of(method)
    assert of_counts is not None
    if not (counts.n0 and counts.n):
        raise InputError(
            "the number of samples",
            f"{counts.n0} to select and {counts.n} to estimate",
            "must be at least 1 in both stages",
            "draw samples for each",
        )
    return of_counts(counts, alpha)


__all__ = [
    "METHODS",
    "anytime_lower",
    "anytime_upper",
    "bound",
    "capped_lower",
    "capped_method",
    "check_level",
    "check_method",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "is_anytime",
    "sign_test",
]
