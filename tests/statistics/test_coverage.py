"""Coverage: of many simulated certifications, at most a share alpha may be false.

A certification is false if its lower bound lies above the true probability of the candidate, its
upper bound below that of another class, or if it decides for a class that is not the most
probable. The number of false ones is put to an exact binomial test of "the rate is at most alpha",
which rejects below a p-value of 1e-6. So a correct certifier is rejected with probability at most
1e-6 a setting, 6e-5 over all of this file, each setting being 20,000 certifications at
alpha = 0.05. (Seeds are fixed: it either always happens or never.)

The same test must reject certifiers that are broken in ways people do break them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from deformrs.certificate import Bound, Counts
from deformrs.rounding import complement_up
from deformrs.statistics import bound, clopper_pearson_lower

Certifier = Callable[[Counts, float], Bound]

ALPHA = 0.05
RUNS = 20_000
ONE_LOOK = (200,)
EVERY_BLOCK = tuple(range(20, 601, 20))


def rejects(false_count: int, trials: int, alpha: float) -> bool:
    """Return whether "at most a share alpha of the certificates is false" is untenable."""
    return bool(binomtest(false_count, trials, alpha, alternative="greater").pvalue < 1e-6)


def is_false(candidate: int, found: Bound, truth: Sequence[float]) -> bool:
    """Return whether the bound, or the decision it makes, contradicts the true probabilities."""
    mine, rival = truth[candidate], max((*truth[:candidate], *truth[candidate + 1 :]))
    return found.lower > mine or found.upper < rival or (found.decides and mine < rival)


def false_certificates(
    certifier: Certifier,
    truth: Sequence[float],
    looks: Sequence[int] = ONE_LOOK,
    n0: int = 10,
    runs: int = RUNS,
    seed: int = 0,
) -> int:
    """Return how many of `runs` simulated certifications are false at any of the `looks`.

    Who may look several times may stop at the look of their choice, so one false look is enough.
    (For two equally probable classes, "stop as soon as it certifies" is false exactly then.)
    Every certifier of this file depends on the counts only through the candidate, its hits and
    the most hits of another class, so it is evaluated once for each such triple.
    """
    rng = np.random.default_rng([seed, len(looks), len(truth)])
    selections = rng.multinomial(n0, truth, size=runs)
    steps = [rng.multinomial(n, truth, size=runs) for n in np.diff(looks, prepend=0)]
    ever = np.zeros(runs, dtype=bool)
    candidates, rows = selections.argmax(axis=1), np.arange(runs)
    for estimations in np.cumsum(steps, axis=0):
        others = estimations.copy()
        others[rows, candidates] = -1
        keys = (candidates, estimations[rows, candidates], others.max(axis=1))
        flat = np.ravel_multi_index(keys, (len(truth), looks[-1] + 1, looks[-1] + 1))
        _, first, which = np.unique(flat, return_index=True, return_inverse=True)
        wrong = []
        for k in first:
            counts = Counts(tuple(selections[k].tolist()), tuple(estimations[k].tolist()))
            wrong.append(is_false(counts.candidate, certifier(counts, ALPHA), truth))
        ever |= np.array(wrong)[which]
    return int(ever.sum())


@functools.cache
def of_hits(method: str, hits: int, trials: int, alpha: float) -> Bound:
    return bound(Counts((1, 0), (hits, trials - hits)), alpha, method)


def certifier_of(method: str) -> Certifier:
    """Return the package's own bound, cached where it depends on (hits, trials) alone."""
    if method == "bonferroni":
        return lambda counts, alpha: bound(counts, alpha, method)
    return lambda counts, alpha: of_hits(method, counts.hits, counts.n, alpha)


def spread(top: float, classes: int) -> tuple[float, ...]:
    """Return probabilities: the first class has `top`, the others share the rest equally."""
    return (top, *((1 - top) / (classes - 1),) * (classes - 1))


TIE_OF_TWO, TIE_OF_TEN = spread(0.5, 2), spread(0.1, 10)
TWO_OF_TEN = (0.3, 0.3, *(0.05,) * 8)


# ---------------------------------------------------------------- sound certifiers


@pytest.mark.parametrize("method", ["clopper_pearson", "bonferroni", "anytime", "anytime:200"])
@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("top", [0.5, 0.55, 0.9, 0.99])
def test_guarantee_certify_is_false_with_probability_at_most_alpha(
    top: float, classes: int, method: str
) -> None:
    count = false_certificates(certifier_of(method), spread(top, classes))
    assert not rejects(count, RUNS, ALPHA)


@pytest.mark.parametrize("method", ["clopper_pearson", "bonferroni", "anytime", "anytime:200"])
@pytest.mark.parametrize("truth", [TIE_OF_TEN, TWO_OF_TEN], ids=["ten", "two of ten"])
def test_ties_are_no_exception(truth: Sequence[float], method: str) -> None:
    assert not rejects(false_certificates(certifier_of(method), truth), RUNS, ALPHA)


@pytest.mark.parametrize("method", ["anytime", "anytime:600", "anytime:200"])
@pytest.mark.parametrize("top", [0.5, 0.9, 0.99])
def test_guarantee_anytime_and_capped_lower_hold_at_every_look_together(
    top: float, method: str
) -> None:
    """30 looks, after every block of 20 samples up to 600; a sharp one may be among them."""
    count = false_certificates(certifier_of(method), spread(top, 2), EVERY_BLOCK)
    assert not rejects(count, RUNS, ALPHA)


# ---------------------------------------------------------------- broken certifiers


def twice_the_level(counts: Counts, alpha: float) -> Bound:
    return bound(counts, 2 * alpha)


def wald(counts: Counts, alpha: float) -> Bound:
    """The textbook interval for large samples: share - z √(share (1 - share) / n)."""
    share = counts.hits / counts.n
    deviation = math.sqrt(share * (1 - share) / counts.n)
    lower = max(0.0, share - float(norm.isf(alpha)) * deviation)
    return Bound(lower, complement_up(lower))


def shared_samples(counts: Counts, alpha: float) -> Bound:
    """Selects the class on the very samples that then bound its probability."""
    lower = clopper_pearson_lower(max(counts.estimation), counts.n, alpha)
    return Bound(lower, complement_up(lower))


def no_correction_for_classes(counts: Counts, alpha: float) -> Bound:
    """Bounds every class at level alpha, as if the others were not there."""
    return bound(counts, alpha * len(counts.estimation), "bonferroni")


@pytest.mark.parametrize(
    ("broken", "truth", "looks"),
    [
        (twice_the_level, TIE_OF_TWO, ONE_LOOK),
        (wald, spread(0.99, 2), ONE_LOOK),
        (shared_samples, TIE_OF_TEN, ONE_LOOK),
        (no_correction_for_classes, TWO_OF_TEN, (400,)),
        (certifier_of("clopper_pearson"), TIE_OF_TWO, EVERY_BLOCK),
    ],
    ids=["twice", "wald", "shared", "uncorrected", "peeked"],
)
def test_broken_certifiers_are_rejected(
    broken: Certifier, truth: Sequence[float], looks: Sequence[int]
) -> None:
    """Not by luck: their rate is at least half as large again as alpha, 11 deviations above it."""
    count = false_certificates(broken, truth, looks)
    assert rejects(count, RUNS, ALPHA)
    assert count > 1.5 * ALPHA * RUNS


def test_selection_on_shared_samples_is_wrong_for_two_classes_already() -> None:
    """A tie of two: each class is too high in alpha of the runs, and the higher one is taken."""
    count = false_certificates(shared_samples, TIE_OF_TWO)
    assert rejects(count, RUNS, ALPHA)


# ---------------------------------------------------------------- the test itself


def test_rejects_is_calibrated() -> None:
    """The smallest rejected count has a tail below 1e-6 under a rate of exactly alpha, and it is
    small enough to notice a rate of 0.06."""
    smallest = next(k for k in range(RUNS) if rejects(k, RUNS, ALPHA))
    assert binomtest(smallest, RUNS, ALPHA, alternative="greater").pvalue < 1e-6
    assert binomtest(smallest - 1, RUNS, ALPHA, alternative="greater").pvalue >= 1e-6
    assert ALPHA * RUNS < smallest < 0.06 * RUNS


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Bound(0.59, 0.41), False),
        (Bound(0.61, 0.39), True),  # p_A is 0.6
        (Bound(0.59, 0.29), True),  # p_B is 0.3
        (Bound(0.30, 0.30), False),
    ],
)
def test_false_is_what_contradicts_the_truth(found: Bound, expected: bool) -> None:
    assert is_false(0, found, (0.6, 0.3, 0.1)) is expected


def test_a_decision_for_the_wrong_class_is_false() -> None:
    assert is_false(1, Bound(0.3, 0.2), (0.6, 0.4, 0.0))
    assert is_false(1, Bound(0.3, 0.25), (0.25, 0.35, 0.4))
    assert not is_false(1, Bound(0.3, 0.7), (0.6, 0.4))
