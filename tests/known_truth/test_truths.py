"""The certifier against known truths, and broken certifiers that must be rejected.

In the manner of a statistical tester: the truths and the broken certifiers are data, and pass marks
come from binomial tails. Each truth has up to four marks:

- "false": at most a share alpha of the certificates is false.
- "hits": the estimate of the top class reaches its median as often as it should.
- "stages": selection and estimation do so together as often as independent ones.
- "useful": at least half of the certificates reach a given share of the true radius.

A mark is missed where its exact binomial tail is below 1e-6, so a correct certifier misses one of
the 71 marks with probability below 2e-4 (two-sided marks have two tails). CI uses fixed seeds: it
either always happens or never. DEFORMRS_KNOWN_TRUTH=20 makes 20 times the runs with a fresh seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
import pytest
from certifiers import BROKEN, Broken, certified, classifier, package
from scipy.stats import binom
from truths import ALPHA, BY_NAME, TRUTHS, Truth

from deformrs import Certificate
from deformrs.plan import fresh_seed
from deformrs.randomness import Stage

FACTOR = int(os.environ.get("DEFORMRS_KNOWN_TRUTH", "1"))
SEED = 0 if FACTOR == 1 else fresh_seed()
TAIL = 1e-6
EPSILON = 1e-9  # what the exact probabilities and radii may be wrong by


def is_false(certificate: Certificate, truth: Truth) -> bool:
    """Return whether the bounds, the prediction, the radius or the certified set are false."""
    exact, counts, bound = truth.exact, certificate.counts, certificate.bound
    mine = exact[counts.candidate]
    rival = max(p for c, p in enumerate(exact) if c != counts.candidate)
    if bound.lower > mine + EPSILON or bound.upper < rival - EPSILON:
        return True
    if certificate.prediction is None:
        return False
    if exact[certificate.prediction] < max(exact) - EPSILON or truth.radius == 0:
        return True
    outside = [truth.radius * (1 + 1e-7), *(0.0,) * (truth.space.dim - 1)]
    return certificate.radius > truth.radius * (1 + EPSILON) or (
        math.isfinite(truth.radius) and certificate.covers(outside)
    )


def count_false(certificates: Sequence[Certificate], truth: Truth) -> int:
    known: dict[object, bool] = {}
    count = 0
    for c in certificates:
        key = (c.prediction, c.radii, c.bound, c.counts.candidate)
        if key not in known:
            known[key] = is_false(c, truth)
        count += known[key]
    return count


def mark_of(runs: int) -> int:
    """Return the least number of false certificates that is rejected."""
    return int(binom.isf(TAIL, runs, ALPHA)) + 1


def _differs(count: int, runs: int, probability: float) -> bool:
    low, high = binom.cdf(count, runs, probability), binom.sf(count - 1, runs, probability)
    return bool(min(low, high) < TAIL)


def missed(certificates: Sequence[Certificate], truth: Truth) -> set[str]:
    """Return the marks that a certifier misses on a truth."""
    runs, found = len(certificates), set()
    if count_false(certificates, truth) >= mark_of(runs):
        found.add("false")
    if not truth.stops:
        p = truth.exact[truth.top]
        stages = np.array(
            [[c.counts.selection[truth.top], c.counts.estimation[truth.top]] for c in certificates]
        )
        medians = binom.ppf(0.5, [truth.n0, truth.n], p)
        high, q = stages >= medians, binom.sf(medians - 1, [truth.n0, truth.n], p)
        if _differs(int(high[:, 1].sum()), runs, q[1]):
            found.add("hits")
        if _differs(int(high.all(axis=1).sum()), runs, q.prod()):
            found.add("stages")
    if truth.useful:
        reached = sum(
            c.prediction == truth.top and c.radius >= truth.useful * truth.radius
            for c in certificates
        )
        if binom.cdf(reached, runs, 0.5) < TAIL:
            found.add("useful")
    return found


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth.name)
def test_guarantee_certify_batch_is_false_with_probability_at_most_alpha(truth: Truth) -> None:
    certificates = package(truth, FACTOR * truth.runs, SEED)
    assert not missed(certificates, truth), f"seed {SEED}"


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_broken_certifiers_are_rejected(broken: Broken) -> None:
    """By the named truth and mark; the power at the stated rate is at least 0.9999."""
    truth = BY_NAME[broken.truth]
    certificates = broken.certifier(truth, truth.runs, 0)
    assert broken.mark in missed(certificates, truth)
    if broken.mark == "false":
        assert count_false(certificates, truth) >= broken.rate * truth.runs
        assert binom.sf(mark_of(truth.runs) - 1, truth.runs, broken.rate) > 0.9999


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth.name)
def test_the_truth_is_true(truth: Truth) -> None:
    """The exact probabilities sum to one, and the top class changes at the radius, not before."""
    assert sum(truth.exact) == pytest.approx(1)
    if 0 < truth.radius < math.inf:
        for factor, holds in ((0.9999, True), (1.0001, False)):
            exact = truth.probabilities(factor * truth.radius)
            assert (exact[truth.top] == max(exact)) == holds
    elif truth.radius == 0:
        assert sorted(truth.exact)[-2] == pytest.approx(truth.exact[truth.top])


@pytest.mark.parametrize("name", ["likely", "arc", "gap", "plane", "comb"])
def test_what_is_read_is_what_was_drawn(name: str) -> None:
    """20,000 samples at rest and at a shift have the exact probabilities, to tails of 1e-6."""
    truth = BY_NAME[name]
    g, n = classifier(truth), 20_000
    for moved in (0.0, 0.7 * min(truth.radius, 0.2)):
        shift = [moved, *(0.0,) * (truth.space.dim - 1)]
        counts = g.count(truth.image, n, Stage.PREDICT, seed=SEED, shift=shift)
        exact = truth.probabilities(moved)[truth.top]
        assert not _differs(counts[truth.top], n, min(exact, 1.0))


def test_marks_notice_a_rate_of_twice_alpha() -> None:
    """The mark has a tail below 1e-6 at a rate of alpha, and one certificate less has not."""
    for runs in (1000, 2000, 20_000):
        assert (
            binom.sf(mark_of(runs) - 1, runs, ALPHA)
            <= TAIL
            < binom.sf(mark_of(runs) - 2, runs, ALPHA)
        )
        assert binom.sf(mark_of(runs) - 1, runs, 2 * ALPHA) > 0.7


def test_certified_runs_have_noise_of_their_own() -> None:
    assert len({c.counts for c in certified(BY_NAME["likely"], 50, SEED)}) > 25
