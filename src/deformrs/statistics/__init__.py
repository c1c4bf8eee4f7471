"""Bounds on class probabilities that hold with confidence 1 - alpha. NumPy and SciPy only."""

from __future__ import annotations

from deformrs.certificate import Bound, Counts
from deformrs.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper, sign_test
from deformrs.statistics.methods import Method
from deformrs.statistics.multiplicity import most_false, shared_alpha, shared_noise
from deformrs.statistics.sequential import (
    anytime_lower,
    anytime_upper,
    capped_lower,
    capped_upper,
)
from deformrs.statistics.stratified import stratified_lower, stratified_upper


def bound(counts: Counts, alpha: float, method: str = "clopper_pearson") -> Bound:
    """Guarantee: both sides of the bound hold together with probability at least 1 - alpha."""
    return Method.parse(method).bound(counts, alpha)


__all__ = [
    "Method",
    "anytime_lower",
    "anytime_upper",
    "bound",
    "capped_lower",
    "capped_upper",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "most_false",
    "shared_alpha",
    "shared_noise",
    "sign_test",
    "stratified_lower",
    "stratified_upper",
]
