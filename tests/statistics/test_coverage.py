"""Bounds at every look: of many simulated runs, at most a share alpha may ever be false.

A run is false if, at any look, its lower bound lies above the true probability of the candidate or
its upper bound below that of the runner-up: whoever looks several times may stop at the look of
their choice. The number of false ones is put to an exact binomial test of "the rate is at most
alpha", which rejects below a p-value of 1e-6, for each of the settings below: 20,000 runs each, at
alpha = 0.05 and at 0.001. (Seeds are fixed: it either always happens or never.) A single look is
the subject of tests/known_truth.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from deformrs.certificate import Counts
from deformrs.statistics import Method, bound
from deformrs.statistics.sequential import half
from deformrs.statistics.stratified import allowance

Floats = NDArray[np.float64]
Table = NDArray[np.int64]
Booleans = NDArray[np.bool_]

RUNS = 20_000
LOOKS = tuple(range(20, 201, 20))
ALPHAS = (0.05, 0.001)
CLASSES = (2, 10, 1000)


def probabilities(classes: int, ahead: float) -> Floats:
    """Return those of the candidate, of a runner-up `ahead` of the others, and of the others."""
    if classes == 2:
        return np.array([1 - ahead, ahead])
    rest = (1 - 2 * ahead) / (classes - 2)
    return np.array([ahead, ahead, *[rest] * (classes - 2)])


def rejects(false_count: int, alpha: float) -> bool:
    """Return whether "at most a share alpha of the runs is false" is untenable."""
    return bool(binomtest(false_count, RUNS, alpha, alternative="greater").pvalue < 1e-6)


@functools.cache
def drawn(classes: int, ahead: float) -> list[tuple[Table, Table]]:
    """Return how often the candidate and the most frequent other class were drawn at each look."""
    rng = np.random.default_rng(classes)
    counts = np.zeros((RUNS, classes), dtype=np.int32)
    found = []
    for before, look in zip((0, *LOOKS), LOOKS, strict=False):
        for rows in np.array_split(np.arange(RUNS), 20):
            counts[rows] += rng.multinomial(
                look - before, probabilities(classes, ahead), size=len(rows)
            ).astype(np.int32)
        found.append((counts[:, 0].astype(np.int64), counts[:, 1:].max(axis=1).astype(np.int64)))
    return found


def count_false(
    method: str, classes: int, ahead: float, alpha: float, looks: Sequence[int] = LOOKS
) -> int:
    """Return how many of RUNS runs have a false bound at any of these looks."""
    mine, rival = probabilities(classes, ahead)[:2]
    ever = np.zeros(RUNS, dtype=bool)
    for look, (hits, others) in zip(LOOKS, drawn(classes, ahead), strict=True):
        if look not in looks:
            continue
        pairs, which = np.unique(np.stack([hits, others]), axis=1, return_inverse=True)
        wrong = []
        for k, other in pairs.T.tolist():
            found = bound(_counts(k, other, look, classes), alpha, method)
            wrong.append(found.lower > mine or found.upper < rival)
        ever |= np.array(wrong)[which.reshape(-1)]
    return int(ever.sum())


def _counts(hits: int, other: int, total: int, classes: int) -> Counts:
    """Return counts whose largest other is the given one, of as few classes as have the rest."""
    rest, left = [other], total - hits - other
    while left or len(rest) < min(classes - 1, 2):
        rest.append(min(other, left))
        left -= rest[-1]
    return Counts((1, *[0] * len(rest)), (hits, *rest))


@pytest.mark.parametrize("method", ["anytime", "anytime:200", "anytime:60"])
@pytest.mark.parametrize("ahead", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_guarantee_lower_holds_at_every_look_together(
    ahead: float, method: str, alpha: float
) -> None:
    """10 looks, after every block of 20 samples; a sharp one may be among them."""
    assert not rejects(count_false(method, 2, ahead, alpha), alpha)


@pytest.mark.parametrize("method", ["anytime_auto", "anytime_runner_up", "anytime_runner_up:200"])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_guarantee_both_sides_hold_at_every_look_together(
    classes: int, method: str, alpha: float
) -> None:
    """Candidate and runner-up are tied, so that each side is in danger."""
    assert not rejects(count_false(method, classes, 0.45, alpha), alpha)


@pytest.mark.parametrize("method", ["clopper_pearson", "runner_up", "auto"])
@pytest.mark.parametrize("ahead", [0.45, 0.3])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_guarantee_both_sides_hold_together_for_a_fixed_number_of_samples(
    classes: int, ahead: float, method: str, alpha: float
) -> None:
    assert not rejects(count_false(method, classes, ahead, alpha, looks=LOOKS[-1:]), alpha)


@pytest.mark.parametrize("classes", CLASSES[1:])
def test_alpha_for_either_side_instead_of_half_of_it_is_rejected(classes: int) -> None:
    """At alpha = 0.05: at 0.001, 20,000 runs are too few to tell twice alpha from alpha."""
    assert rejects(count_false("runner_up", classes, 0.2, 2 * 0.05, looks=LOOKS[-1:]), 0.05)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("classes", CLASSES)
def test_a_bound_for_a_fixed_number_of_samples_is_rejected(classes: int, alpha: float) -> None:
    """Its rate is more than half as large again as alpha."""
    count = count_false("clopper_pearson" if classes == 2 else "runner_up", classes, 0.45, alpha)
    assert rejects(count, alpha)
    assert count > 1.5 * alpha * RUNS


# ---------------------------------------------------------------- stratified

ROUNDS = (16, 16, 32, 32, 64)
"""The number of strata in each round."""


def upward(disagreements: Table, level: float) -> Floats:
    """Return the allowance for each number of disagreements."""
    known = [allowance(d, level) for d in range(int(disagreements.max()) + 1)]
    return np.array(known)[disagreements]


@functools.cache
def false_after_rounds(classes: int, pieces: int) -> dict[float, tuple[int, int, int]]:
    """Return how many of RUNS runs are false after any round, for each alpha: by the bounds, by
    bounds that are blind to disagreements, and by bounds that estimate the variance from the hits
    of equal rounds.

    The classes take their shares of each of equal pieces of the unit interval: of one piece, a few
    steps; of many, they alternate faster than any stratum can tell.
    """
    rng = np.random.default_rng([classes, pieces])
    shares = probabilities(classes, 0.45)
    order = rng.permutation(classes)
    ends = np.cumsum(shares[order])[:-1]
    hits, differing, between = np.zeros((3, RUNS, classes), dtype=np.int64)
    ever, total = np.zeros((len(ALPHAS), 3, RUNS), dtype=bool), 0
    before = np.zeros_like(hits)
    for number, strata in enumerate(ROUNDS):
        earlier = hits.copy()
        for rows in np.array_split(np.arange(RUNS), 20):
            points = rng.random((len(rows), strata, 2)) + np.arange(strata)[:, None]
            drawn = order[np.searchsorted(ends, points / strata * pieces % 1, side="right")]
            unequal = drawn[..., 0] != drawn[..., 1]
            run = np.broadcast_to(rows[:, None], unequal.shape)
            for side in (drawn[..., 0], drawn[..., 1]):
                np.add.at(hits, (run, side), 1)
                np.add.at(differing, (run[unequal], side[unequal]), 1)
        total += 2 * strata
        if number and strata == ROUNDS[number - 1]:
            # Its mean is the sum of the variances of the two: right on average, but not a bound.
            between += (hits - earlier - before) ** 2
        before = hits - earlier
        for place, alpha in enumerate(ALPHAS):
            for way, seen in enumerate((differing, hits % 2, between)):
                ever[place, way] |= _is_false(hits, seen, total, shares, alpha)
    counts = ever.sum(axis=2).tolist()
    return {alpha: tuple(each) for alpha, each in zip(ALPHAS, counts, strict=True)}


def _is_false(hits: Table, differing: Table, total: int, shares: Floats, alpha: float) -> Booleans:
    """Return which runs are false by the levels of the method "stratified_auto": [runs]."""
    method = Method.parse("stratified_auto").chosen_of(hits.shape[1], 3)
    of_candidate, of_others = method.levels(alpha, hits.shape[1])
    lowers = hits[:, 0] - upward(differing[:, 0], half(of_candidate))
    false: Booleans = lowers > total * shares[0]
    if of_others is not None:
        uppers = (hits[:, 1:] + upward(differing[:, 1:], half(of_others))).max(axis=1)
        false |= uppers < total * shares[1]
    return false


@pytest.mark.parametrize("pieces", [1, 3, 1000])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_guarantee_stratified_bounds_hold_after_every_round_together(
    classes: int, pieces: int, alpha: float
) -> None:
    assert not rejects(false_after_rounds(classes, pieces)[alpha][0], alpha)


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_bound_that_does_not_count_disagreements_is_rejected(classes: int, alpha: float) -> None:
    """Hits alone do not tell how much they vary."""
    assert rejects(false_after_rounds(classes, 1000)[alpha][1], alpha)


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_variance_estimated_without_pairs_is_rejected(classes: int, alpha: float) -> None:
    """From the hits of equal rounds, which may be the same by chance."""
    assert rejects(false_after_rounds(classes, 1000)[alpha][2], alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_rejects_is_calibrated(alpha: float) -> None:
    """The smallest rejected count has a tail below 1e-6 under a rate of exactly alpha, and it is
    small enough to notice a rate of 0.06 or 0.0025."""
    smallest = next(k for k in range(RUNS) if rejects(k, alpha))
    assert binomtest(smallest, RUNS, alpha, alternative="greater").pvalue < 1e-6
    assert binomtest(smallest - 1, RUNS, alpha, alternative="greater").pvalue >= 1e-6
    assert alpha * RUNS < smallest < {0.05: 0.06, 0.001: 0.0025}[alpha] * RUNS
