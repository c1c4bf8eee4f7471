"""Stopping rules: which images need no more samples, for their queries are decided.

A rule decides how many samples are drawn and nothing else. The certificate is computed from their
counts by a bound that is valid at any stopping time (docs/theory.md, sections 4 and 5). Needs no
torch.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from deformrs.certificate import Bound
from deformrs.checks import check_integer
from deformrs.errors import InputError
from deformrs.noise import NoiseLaw
from deformrs.noise.distance import Distance
from deformrs.space import Space
from deformrs.statistics import Method
from deformrs.statistics.sequential import (
    anytime_lowers,
    anytime_uppers,
    half,
    last_lowers,
    last_uppers,
)
from deformrs.statistics.stratified import stratified_lowers, stratified_uppers
from deformrs.strata import BLOCK, first_of, rounds

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Sides = tuple[Floats, Floats]
"""A lower bound on p_A and an upper bound on p_B for each of several images."""

# A look makes the device wait, and a late one costs samples. These are 57 looks up to 100,000; 23
# looks, each half as many again, take 7 % more samples for four radii (simulated, CIFAR-10).
FIRST_LOOK, GROWTH = 16, 1.17

MOVING = 120
"""The independent samples after which an image moves on to stratified ones, if it had a miss.

Most images are decided before. Of the others, independent samples tell as much as stratified ones
only while all agree (simulated from the answers of networks under rotation).
"""

MOST_INDEPENDENT = 4096
"""The independent samples after which any image moves on."""

LEAST_STRATIFIED = 2048
"""The least n that leaves room for enough rounds of stratified samples."""

GIVEN_UP = 0.05
"""An image is given up once a query would be certified with at most this probability.

This loses certificates that were unlikely anyway, never makes false ones, and saves a tenth to a
third of the samples (simulated from CIFAR-10 and MNIST counts).
"""


def looks(n: int) -> tuple[int, ...]:
    """Return the sample sizes at which to look, each about 17 % above the last, up to n.

    >>> looks(30)
    (16, 19, 22, 26, 30)
    """
    check_integer("n", n, least=1)
    ends, end = [], FIRST_LOOK
    while end < n:
        ends.append(end)
        end = max(end + 1, round(end * GROWTH))
    return (*ends, int(n))


def independent_samples(n: int) -> int:
    """Return how many of at most n samples may be independent where others are stratified."""
    return min(MOST_INDEPENDENT, n // 2)


@dataclass(frozen=True)
class Seen:
    """What was predicted for several images so far, of which one class each is the candidate.

    hits, others: how often the candidate and the most frequent other class was predicted; trials:
    the number of independent samples; all [m]. The counts under stratified noise are [m, K].
    """

    hits: Integers
    others: Integers
    trials: Integers
    candidates: NDArray[np.intp]
    classes: Integers | None = None
    disagreements: Integers | None = None

    @classmethod
    def of(cls, candidates: NDArray[np.intp], counts: Integers, stratified: bool) -> Seen:
        """Split the columns of `Sampler.count_until`, without tables of pairs that are empty."""
        independent, *paired = np.split(counts, 3 if stratified else 1, axis=1)
        rows = np.arange(len(counts))
        others = independent.copy()
        others[rows, candidates] = -1
        hits, trials = independent[rows, candidates], independent.sum(axis=1)
        if not any(table.any() for table in paired):
            paired = []
        return cls(hits, others.max(axis=1), trials, candidates, *paired)

    def __getitem__(self, rows: Booleans | NDArray[np.intp]) -> Seen:
        columns = (self.hits, self.others, self.trials, self.candidates)
        paired = (self.classes, self.disagreements)
        return Seen(
            *(column[rows] for column in columns),
            *(None if table is None else table[rows] for table in paired),
        )

    def distinct(self) -> tuple[Seen, NDArray[np.intp]]:
        """Return those that differ, and the place of each image among them.

        Many images share their counts, most of all after few samples.
        """
        if self.classes is not None:
            return self, np.arange(len(self.hits))
        columns = np.stack([self.hits, self.others, self.trials])
        _, first, back = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        return self[first], back.reshape(-1)

    @property
    def samples(self) -> Integers:
        """The number of samples of each image."""
        paired = 0 if self.classes is None else self.classes.sum(axis=1)
        total: Integers = self.trials + paired
        return total

    def lowers(self, level: float) -> Floats:
        """Return the lower bound on the probability of the candidate."""
        lowers = anytime_lowers(self.hits, self.trials, level)
        return lowers if self.classes is None else np.maximum(lowers, self._paired(level)[0])

    def uppers(self, level: float) -> Floats:
        """Return the upper bound on the probability of the candidate."""
        uppers = anytime_uppers(self.hits, self.trials, level)
        return uppers if self.classes is None else np.minimum(uppers, self._paired(level)[1])

    def others_lowers(self, level: float) -> Floats:
        """Return a lower bound on the probability of the most probable other class."""
        lowers = anytime_lowers(self.others, self.trials, level)
        return lowers if self.classes is None else np.maximum(lowers, self._paired(level)[2])

    def others_uppers(self, level: float) -> Floats:
        """Return the upper bound on the probability of every other class."""
        uppers = anytime_uppers(self.others, self.trials, level)
        return uppers if self.classes is None else np.minimum(uppers, self._paired(level)[3])

    @cached_property
    def _known(self) -> dict[float, tuple[Floats, Floats, Floats, Floats]]:
        return {}

    def _paired(self, level: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the four bounds from the pairs alone."""
        if level not in self._known:
            self._known[level] = self._of_pairs(level)
        return self._known[level]

    def _of_pairs(self, level: float) -> tuple[Floats, Floats, Floats, Floats]:
        assert self.classes is not None
        assert self.disagreements is not None
        total = self.classes.sum(axis=1, keepdims=True)
        lowers = stratified_lowers(self.classes, total, self.disagreements, level)
        uppers = stratified_uppers(self.classes, total, self.disagreements, level)
        rows = np.arange(len(total))
        own = lowers[rows, self.candidates], uppers[rows, self.candidates]
        lowers[rows, self.candidates] = uppers[rows, self.candidates] = -1.0
        return *own, lowers.max(axis=1), uppers.max(axis=1)


@dataclass(frozen=True)
class Rule:
    """Decides which images need no more samples. Made by `Stopping.rule`.

    A query that no bound can certify is decided from the start, and is not among `radii` and
    `regions`.
    """

    radii: tuple[float, ...]
    regions: tuple[Distance, ...]
    tolerance: float | None
    law: NoiseLaw
    space: Space
    alpha: float
    n: int
    method: Method

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """The numbers of independent samples at which to ask the rule."""
        ends = looks(self._independent)
        if self.from_early_version:
            return ends
        # One of them is where most images stop: as soon as samples that all agree decide.
        fewer = range(1, ends[-1])
        least = 1 + bisect_left(fewer, True, key=self._agreement_decides)
        return tuple(sorted({*ends, least}))

    @cached_property
    def first(self) -> int:
        """The stratified sample to begin with: after rounds too small to meet the tolerance.

        Each round has disagreements of its own, so that few large ones tell more than many.
        """
        size, room = BLOCK, self.n - self._independent
        while self.tolerance is not None and 4 * size <= room and not self._round_meets(size):
            size *= 2
        return first_of(size)

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The numbers of the stratified samples after which to ask the rule."""
        if not self.stratified:
            return ()
        return tuple(rounds(self.n - self._independent, self.first))

    @property
    def _independent(self) -> int:
        """The most independent samples."""
        return independent_samples(self.n) if self.stratified else self.n

    @property
    def from_early_version(self) -> bool:
        """Whether the rule is that of runs of version 0.1.0, which are repeated and resumed."""
        return self.method.sampling == "anytime" and self.method.split == "complement"

    def _agreement_decides(self, samples: int) -> bool:
        """Return whether an image is decided by independent samples that all agree."""
        return bool(self._question(samples, 0).decided()[0])

    def _round_meets(self, size: int) -> bool:
        """Return whether a round without disagreements meets the tolerance, if a quarter of its
        samples are misses."""
        classes = np.array([[3 * size // 4, size // 4, 0]])
        question = self._question(3 * MOVING // 4, MOVING // 4, classes)
        return bool(question.gains()[0] < (self.tolerance or 0.0))

    def _question(self, hits: int, others: int, classes: Integers | None = None) -> _Question:
        """Return the question for an image with three classes and these counts."""
        seen = Seen(
            np.array([hits]),
            np.array([others]),
            np.array([hits + others]),
            np.zeros(1, dtype=np.intp),
            classes,
            None if classes is None else np.zeros_like(classes),
        )
        return _Question(self, self.method.chosen_of(3, 1 + (others > 0)), 3, seen)

    @property
    def stratified(self) -> bool:
        """Whether images move on to stratified noise."""
        return self.method.sampling == "stratified"

    def moves(self, selection: Integers, counts: Integers) -> Booleans:
        """Return where an image that is not decided moves on to stratified noise: [m]."""
        seen = Seen.of(selection.argmax(axis=1), counts, self.stratified)
        missed = (seen.trials >= MOVING) & (seen.hits < seen.trials)
        moving: Booleans = missed | (seen.trials >= self.looks[-1])
        # Images with stratified samples have moved already.
        return moving & self.stratified & (seen.classes is None)

    def decided(self, selection: Integers, counts: Integers) -> Booleans:
        """Return where every query is decided and the tolerance met: [m].

        selection: [m, K]; counts: [m, K], of stratified noise [m, 3 K]: the classes under
        independent noise, under stratified noise, and their disagreements.

        A query is decided where the counts certify it, and where it is given up: the opposite
        bounds exclude it (wrongly with probability at most GIVEN_UP for each of the two classes,
        over all looks), or the remaining samples are unlikely to certify it. At the last look,
        everything is decided.

        Guarantee: what is decided as certified is certified by `law.certify` on these counts.
        """
        seen = Seen.of(selection.argmax(axis=1), counts, self.stratified)
        samples = seen.samples
        if (samples > self.n).any():
            raise InputError(
                "the number of trials", samples.max(), f"must not exceed n = {self.n}", "stop there"
            )
        last = self.rounds[-1] - self.first if self.stratified else self.n
        done: Booleans = samples - seen.trials * self.stratified >= last
        # The choice depends on no more than whether more than two classes were predicted.
        predicted = np.minimum(np.count_nonzero(selection, axis=1), 3)
        for number in {*predicted[~done].tolist()}:
            method = self.method.chosen_of(selection.shape[1], number)
            rows = (predicted == number) & ~done
            part, back = seen[rows].distinct()
            done[rows] = _Question(self, method, selection.shape[1], part).decided()[back]
        return done

    def certified_radii(self, sides: Sides) -> Floats:
        """Return the radius that each bound certifies; 0 where it abstains."""
        pairs = zip(sides[0].tolist(), sides[1].tolist(), strict=True)
        bounds = (Bound(lower, upper) for lower, upper in pairs)
        radii = (self.law.radii(b, self.space)[0] if b.decides else 0.0 for b in bounds)
        return np.fromiter(radii, dtype=np.float64, count=len(sides[0]))

    def holds(self, sides: Sides) -> Booleans:
        """Return for which queries each bound certifies: [m, queries]."""
        lowers, uppers = sides
        decides = lowers > uppers
        held = []
        if self.radii:
            certified = self.certified_radii(sides)
            held += [decides & (certified >= radius) for radius in self.radii]
        for region in self.regions:
            held.append(decides & region.within(lowers[:, None], uppers[:, None]).all(axis=1))
        return np.stack(held, axis=1) if held else np.ones((len(lowers), 0), dtype=bool)


@dataclass(frozen=True)
class _Question:
    """Whether images with the same method need more samples."""

    rule: Rule
    method: Method
    classes: int
    seen: Seen

    def decided(self) -> Booleans:
        certified = self.rule.holds(self._sides())
        open_ = ~certified
        rows = np.asarray(open_.any(axis=1))
        if rows.any():
            open_[rows] &= self._part(rows)._hopeful()
        done: Booleans = np.logical_not(open_.any(axis=1))
        if self.rule.tolerance is not None and done.any():
            done[done] = self._part(done).gains() < self.rule.tolerance
        return done

    def _part(self, rows: Booleans) -> _Question:
        return _Question(self.rule, self.method, self.classes, self.seen[rows])

    @cached_property
    def _levels(self) -> tuple[float, float | None]:
        return self.method.levels(self.rule.alpha, self.classes)

    def _level(self, level: float) -> float:
        """Return the level of the any-time bounds: another half is for others."""
        return half(level) if self.rule.stratified or self.method.most is not None else level

    def _sides(self) -> Sides:
        """Return the bounds of the certificates from the counts so far, or a little wider ones."""
        of_candidate, of_others = self._levels
        lowers = self.seen.lowers(self._level(of_candidate))
        lowers = np.maximum(lowers * (1 - 1e-12), 0.0)
        uppers = np.minimum((1 - lowers) * (1 + 1e-12), 1.0)
        if of_others is not None:
            others = self.seen.others_uppers(self._level(of_others)) * (1 + 1e-12) + 1e-14
            uppers = np.minimum(uppers, others)
        return lowers, uppers

    def _optimistic(self, level: float) -> Sides:
        """Return the opposite bounds: on p_A from above, on p_B from below."""
        uppers = self.seen.uppers(level)
        if self._levels[1] is None:
            return uppers, 1 - uppers
        return uppers, np.minimum(self.seen.others_lowers(level), 1 - uppers)

    def _hopeful(self) -> Booleans:
        """Return which queries more samples may still certify: [m, queries]."""
        rule, sides = self.rule, self._optimistic(GIVEN_UP)
        hopeful = rule.holds(sides)
        rows = np.asarray(hopeful.any(axis=1))
        if rows.any() and not rule.stratified:
            final = self._part(rows)._final(sides[0][rows], sides[1][rows])
            hopeful[rows] &= rule.holds(final)
        return hopeful

    def _final(self, p: Floats, q: Floats) -> Sides:
        """Return the bounds after n samples that are as lucky as plausible, if the candidate has
        the probability p and the runner-up q."""
        rule, seen = self.rule, self.seen
        left = rule.n - seen.trials
        if self.method.most is None:  # whatever may happen
            hits, others = seen.hits + left, seen.others
        else:
            lucky = left * p - ndtri(GIVEN_UP) * np.sqrt(left * p * (1 - p)) + 1
            hits = seen.hits + np.minimum(lucky, left).astype(np.int64)
            unlucky = left * q + ndtri(GIVEN_UP) * np.sqrt(left * q * (1 - q)) - 1
            others = seen.others + np.maximum(unlucky, 0).astype(np.int64)
        return self._after(hits, np.minimum(others, rule.n - hits))

    def _after(self, hits: Integers, others: Integers) -> Sides:
        """Return the bounds after n independent samples with these counts."""
        (of_candidate, of_others), n = self._levels, self.rule.n
        final = np.full_like(hits, n)
        if self.method.most is None:
            lowers = anytime_lowers(hits, final, of_candidate)
        else:
            lowers = last_lowers(hits, final, of_candidate)
        lowers = np.minimum(lowers * (1 + 1e-9), 1.0)  # rounding never denies hope
        uppers = 1 - lowers
        if of_others is not None:
            bounds = anytime_uppers if self.method.most is None else last_uppers
            uppers = np.minimum(uppers, bounds(others, final, of_others) * (1 - 1e-9))
        return lowers, uppers

    def gains(self) -> Floats:
        """Return a likely upper bound on what more samples can add to the radius."""
        rule = self.rule
        level = rule.alpha if rule.from_early_version else GIVEN_UP
        best = rule.certified_radii(self._optimistic(level))
        if not rule.stratified:
            best = np.minimum(best, rule.certified_radii(self._all_hits()))
        gains: Floats = best - rule.certified_radii(self._sides())
        return gains

    def _all_hits(self) -> Sides:
        left = self.rule.n - self.seen.trials
        return self._after(self.seen.hits + left, self.seen.others)
