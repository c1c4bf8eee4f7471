"""The package as a certifier, and certifiers that are broken in ways people break them.

A certifier turns a truth into one certificate for each run. What a broken one changes is one step:
how it samples, how it counts, how it bounds, or what it says.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from scipy.stats import norm
from truths import ALPHA, Truth

from deformrs import Certificate, Gaussian, NoiseLaw, SmoothedClassifier
from deformrs.certificate import Bound, Counts, PairedCounts
from deformrs.noise.law import Generator
from deformrs.randomness import Stage
from deformrs.rounding import complement_up
from deformrs.rule import Rule
from deformrs.space import Space
from deformrs.statistics import clopper_pearson_lower, clopper_pearson_upper

TOGETHER = 500
"""Images that share batches."""


def classifier(truth: Truth, noise: NoiseLaw | None = None) -> SmoothedClassifier:
    return SmoothedClassifier(
        truth.model,
        truth.deformation,
        noise or truth.noise,
        truth.classes,
        padding="border",
        batch_size=4096,
    )


@functools.lru_cache(maxsize=64)
def sampled(truth: Truth, runs: int, seed: int) -> tuple[Counts, ...]:
    """Return the counts of `runs` images as the package samples them, or drawn."""
    if not truth.drawn:
        return tuple(c.counts for c in certified(truth, runs, seed))
    rng = np.random.default_rng([seed, *truth.name.encode()])
    stages = (rng.multinomial(n, truth.exact, size=runs).tolist() for n in (truth.n0, truth.n))
    return tuple(Counts(tuple(a), tuple(b)) for a, b in zip(*stages, strict=True))


@functools.lru_cache(maxsize=64)
def certified(truth: Truth, runs: int, seed: int) -> tuple[Certificate, ...]:
    """Return the package's own certificates of `runs` images."""
    return _certified(truth, runs, seed, classifier(truth), same=False)


def _certified(
    truth: Truth, runs: int, seed: int, g: SmoothedClassifier, *, same: bool
) -> tuple[Certificate, ...]:
    found: list[Certificate] = []
    for start in range(0, runs, TOGETHER):
        indices = range(start, min(runs, start + TOGETHER))
        images = truth.image.expand(len(indices), *truth.image.shape)
        found += g.certify_batch(images, [0] * len(indices) if same else indices, truth.plan(seed))
    return tuple(found)


Certifier = Callable[[Truth, int, int], tuple[Certificate, ...]]


def package(truth: Truth, runs: int, seed: int) -> tuple[Certificate, ...]:
    """Certify as the package does, through the whole path unless the truth is `drawn`."""
    return (
        recertified(of_counts)(truth, runs, seed) if truth.drawn else certified(truth, runs, seed)
    )


def recertified(certify: Callable[[Truth, Counts], Certificate]) -> Certifier:
    """Return the certifier that treats the package's counts in its own way."""

    def of_runs(truth: Truth, runs: int, seed: int) -> tuple[Certificate, ...]:
        known = functools.cache(lambda counts: certify(truth, counts))
        return tuple(map(known, sampled(truth, runs, seed)))

    return of_runs


def of_counts(truth: Truth, counts: Counts, alpha: float = ALPHA) -> Certificate:
    method = truth.plan(0).method_for(truth.noise, truth.space)
    return truth.noise.certify(counts, truth.space, alpha, method.name)


def of_bound(truth: Truth, counts: Counts, bound: Bound) -> Certificate:
    """Return the certificate that a bound makes, whatever the counts."""
    honest = of_counts(truth, counts)
    if not bound.decides:
        return replace(honest, prediction=None, radii=(0.0,), bound=bound)
    radii = truth.noise.radii(bound, truth.space)
    return replace(honest, prediction=counts.candidate, radii=radii, bound=bound)


# ---------------------------------------------------------------- sampled wrongly


def with_law(change: Callable[[NoiseLaw], None], *, same: bool = False) -> Certifier:
    """Return the certifier whose noise is sampled by a changed law."""

    def of_runs(truth: Truth, runs: int, seed: int) -> tuple[Certificate, ...]:
        law = copy.copy(truth.noise)
        change(law)
        return _certified(truth, runs, seed, classifier(truth, law), same=same)

    return of_runs


def _coarse(law: NoiseLaw) -> None:
    def raw(n: int, space: Space, generator: Generator) -> torch.Tensor:
        return generator.uniform(n, space.dim).bfloat16().float()

    object.__setattr__(law, "raw", raw)


def _half_as_wide(law: NoiseLaw) -> None:
    params = law.params
    object.__setattr__(law, "params", lambda raw, space: params(raw, space) / 2)


def _nothing(law: NoiseLaw) -> None:
    pass


def peeking(truth: Truth, runs: int, seed: int) -> tuple[Certificate, ...]:
    """Stop as soon as Clopper-Pearson certifies a radius that is just too large."""
    g, plan, space = classifier(truth), truth.plan(seed), truth.space
    rule = plan.rule(truth.noise, space)
    assert rule is not None
    peeking = _Peeking(*(getattr(rule, field.name) for field in fields(Rule)))
    images, indices = truth.image.expand(runs, *truth.image.shape), range(runs)
    selection = np.array(g.count_batch(list(images), indices, truth.n0, Stage.SELECT, seed=seed))
    counts = g.sampler.count_until(images, indices, selection, peeking, seed=seed)
    stages = zip(selection.tolist(), counts.tolist(), strict=True)
    certify = functools.cache(lambda c: truth.noise.certify(c, space, ALPHA))
    return tuple(certify(Counts(tuple(a), tuple(b))) for a, b in stages)


class _Peeking(Rule):
    def decided(self, selection: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Of images of two classes: once Clopper-Pearson's bound certifies the radius."""
        hits = counts[np.arange(len(counts)), selection.argmax(axis=1)].tolist()
        lowers = np.array([_lower(k, n) for k, n in zip(hits, counts.sum(axis=1), strict=True)])
        return np.asarray(self.holds((lowers, 1 - lowers)).all(axis=1))


def with_rounds(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Certifier:
    """Return the certifier that looks at stratified samples at other moments."""

    def of_runs(truth: Truth, runs: int, seed: int) -> tuple[Certificate, ...]:
        g = classifier(truth)
        rule = truth.plan(seed).rule(truth.noise, truth.space)
        assert rule is not None
        object.__setattr__(rule, "rounds", change(rule.rounds))
        object.__setattr__(g, "_rule", lambda plan, space: rule)
        return _certified(truth, runs, seed, g, same=False)

    return of_runs


def _first_half(rounds: tuple[int, ...]) -> tuple[int, ...]:
    return (rounds[0] // 2, *rounds)


@functools.cache
def _lower(hits: int, trials: int) -> float:
    return clopper_pearson_lower(hits, trials, ALPHA)


# ---------------------------------------------------------------- certified wrongly


def _one_more_hit(truth: Truth, counts: Counts) -> Certificate:
    hits = min(counts.hits + 1, counts.n)
    lower = clopper_pearson_lower(hits, counts.n, ALPHA)
    return of_bound(truth, counts, Bound(lower, complement_up(lower)))


def _wald(truth: Truth, counts: Counts) -> Certificate:
    share = counts.hits / counts.n
    deviation = math.sqrt(share * (1 - share) / counts.n)
    lower = max(0.0, share - float(norm.isf(ALPHA)) * deviation)
    return of_bound(truth, counts, Bound(lower, complement_up(lower)))


def _no_margin(truth: Truth, counts: Counts) -> Certificate:
    share = counts.hits / counts.n
    return of_bound(truth, counts, Bound(share, complement_up(share)))


def _chosen_by_the_estimate(truth: Truth, counts: Counts) -> Certificate:
    return of_counts(truth, replace(counts, selection=counts.estimation))


def _estimated_on_the_selection(truth: Truth, counts: Counts) -> Certificate:
    return of_counts(truth, replace(counts, estimation=counts.selection))


def _alpha_for_every_class(truth: Truth, counts: Counts) -> Certificate:
    return of_counts(truth, counts, min(0.99, ALPHA * len(counts.estimation)))


def _runner_up_without_bound(truth: Truth, counts: Counts) -> Certificate:
    others = [k for c, k in enumerate(counts.estimation) if c != counts.candidate]
    lower = clopper_pearson_lower(counts.hits, counts.n, ALPHA)
    return of_bound(truth, counts, Bound(lower, max(others) / counts.n))


def _runner_up_of_the_selection(truth: Truth, counts: Counts) -> Certificate:
    """Bounds the second class of the selection alone, with half of alpha as for the candidate."""
    second = sorted(range(len(counts.selection)), key=lambda c: counts.selection[c])[-2]
    lower = clopper_pearson_lower(counts.hits, counts.n, ALPHA / 2)
    upper = clopper_pearson_upper(counts.estimation[second], counts.n, ALPHA / 2)
    return of_bound(truth, counts, Bound(lower, min(upper, complement_up(lower))))


def _never_abstains(truth: Truth, counts: Counts) -> Certificate:
    return replace(of_counts(truth, counts), prediction=counts.candidate)


def _whole_degrees(truth: Truth, counts: Counts) -> Certificate:
    honest = of_counts(truth, counts)
    return replace(honest, radii=(math.radians(math.ceil(math.degrees(honest.radius))),))


def _without_the_gap(truth: Truth, counts: Counts) -> Certificate:
    """Every angle, as if the noise were as wide as the circle."""
    honest = of_counts(truth, counts)
    return honest if honest.prediction is None else replace(honest, radii=(math.pi,))


def _other_law(truth: Truth, counts: Counts) -> Certificate:
    return Gaussian(truth.noise.scale).certify(counts, truth.space, ALPHA, truth.method)


def _without_the_half(truth: Truth, counts: Counts) -> Certificate:
    """σ(Φ⁻¹(p_A) - Φ⁻¹(p_B))."""
    honest = of_counts(truth, counts)
    return replace(honest, radii=(2 * honest.radius,))


def _pairs_counted_again(truth: Truth, counts: Counts) -> Certificate:
    """The same strata and draws, as if they were of further rounds."""
    pairs = counts.pairs
    if pairs is None:
        return of_counts(truth, counts)
    for _ in range(4):
        pairs += pairs
    return of_counts(truth, replace(counts, pairs=pairs))


def _disagreements_ignored(truth: Truth, counts: Counts) -> Certificate:
    if counts.pairs is None:
        return of_counts(truth, counts)
    classes = counts.pairs.classes
    pairs = PairedCounts(classes, tuple(count % 2 for count in classes))
    return of_counts(truth, replace(counts, pairs=pairs))


def _always_abstains(truth: Truth, counts: Counts) -> Certificate:
    return replace(of_counts(truth, counts), prediction=None, radii=(0.0,))


@dataclass(frozen=True)
class Broken:
    """A broken certifier, and what rejects it: a truth, and the mark that it misses.

    `rate` is what it reaches at least where `mark` is "false": the power follows from it.
    """

    name: str
    certifier: Certifier
    truth: str
    mark: str = "false"
    rate: float = 0.9


BROKEN = (
    Broken("noise on the grid of bfloat16", with_law(_coarse), "comb"),
    Broken("noise half as wide", with_law(_half_as_wide), "likely"),
    Broken("uniform noise certified as Gaussian", recertified(_other_law), "arc"),
    Broken("one seed for all images", with_law(_nothing, same=True), "even", "hits"),
    Broken(
        "one sample for both stages",
        recertified(_estimated_on_the_selection),
        "tie of ten",
        rate=0.3,
    ),
    Broken("one sample, as counted", recertified(_estimated_on_the_selection), "just", "stages"),
    Broken(
        "class chosen by the estimate",
        recertified(_chosen_by_the_estimate),
        "tie of ten",
        rate=0.3,
    ),
    Broken("peeking", peeking, "stops even", rate=0.1),
    Broken("peeking at likely ones", peeking, "stops likely", rate=0.1),
    Broken("one hit too many", recertified(_one_more_hit), "just", rate=0.1),
    Broken(
        "two-sided for one-sided",
        recertified(lambda t, c: of_counts(t, c, 2 * ALPHA)),
        "drawn even",
        rate=0.075,
    ),
    Broken("the textbook's interval", recertified(_wald), "drawn sure", rate=0.1),
    Broken("shares for bounds", recertified(_no_margin), "likely", rate=0.4),
    Broken("alpha for every class", recertified(_alpha_for_every_class), "two of ten", rate=0.076),
    Broken(
        "a runner-up without bound",
        recertified(_runner_up_without_bound),
        "two of ten",
        rate=0.085,
    ),
    Broken(
        "the runner-up of the selection alone",
        recertified(_runner_up_of_the_selection),
        "two of ten, seldom selected",
        rate=0.3,
    ),
    Broken(
        "half of alpha for each, and all of it",
        recertified(lambda t, c: of_counts(t, c, 2 * ALPHA)),
        "two of ten, ahead",
        rate=0.078,
    ),
    Broken("half of a round", with_rounds(_first_half), "strata", rate=0.3),
    Broken("half of a tied round", with_rounds(_first_half), "tied strata", rate=0.3),
    Broken("rounds counted again", recertified(_pairs_counted_again), "coin flips", rate=0.1),
    Broken("no disagreements", recertified(_disagreements_ignored), "coin flips", rate=0.1),
    Broken("never abstains", recertified(_never_abstains), "even", rate=0.4),
    Broken("a radius in whole degrees, rounded up", recertified(_whole_degrees), "degrees"),
    Broken("a circle without its gap", recertified(_without_the_gap), "gap"),
    Broken("a formula without its half", recertified(_without_the_half), "plane"),
    Broken("always abstains", recertified(_always_abstains), "likely", "useful"),
)
