"""Methods: which bounds on the probabilities of the classes a certificate rests on, by name.

A method says how samples are drawn, and how alpha is divided between the candidate's lower bound
and the upper bound on the others:

    clopper_pearson       a fixed number of samples; p_B = 1 - p_A
    runner_up             the same; p_B bounds the most probable of the other classes
    auto                  the same; one of the two, chosen for each image by its selection sample
    anytime               any number of samples; p_B = 1 - p_A
    anytime:1000          at most 1,000 samples, with a sharp last look
    stratified            first independent samples, then rounds of stratified ones

"anytime_runner_up:1000", "stratified_auto" and so on combine them. Of "runner_up", half of alpha
is for the candidate; of "runner_up@0.9", nine tenths. Derivations: docs/theory.md, sections 3 to 5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, cast, get_args

from deformrs.certificate import Bound, Counts
from deformrs.checks import check_alpha, check_sampled_alpha
from deformrs.errors import InputError, did_you_mean
from deformrs.rounding import complement_up, round_down
from deformrs.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
from deformrs.statistics.sequential import (
    anytime_lower,
    anytime_upper,
    capped_lower,
    capped_upper,
    half,
)
from deformrs.statistics.stratified import stratified_lower, stratified_upper

Sampling = Literal["fixed", "anytime", "stratified"]
Split = Literal["complement", "runner_up", "auto", "bonferroni"]

_NAME = re.compile(
    r"(?:(?P<sampling>anytime|stratified)(?:_|(?=:|$)))?"
    r"(?P<split>clopper_pearson|runner_up|auto|bonferroni)?"
    r"(?:@(?P<share>0\.[0-9]{1,4}))?(?::(?P<most>[1-9][0-9]{0,15}))?",
    re.ASCII,
)

KNOWN = ("auto", "clopper_pearson", "runner_up", "anytime", "anytime_auto:1000", "stratified_auto")
"""Examples of names."""

LEAN, EVEN = 0.9, 0.5
"""The shares of alpha that the candidate gets of a method `auto`.

Nine tenths where few samples follow, or as few as suffice, and the selection sample leaves open
whether the other classes differ: then most images have hardly a miss, and the bound on p_A counts.
"""

MANY = 5000
"""The number of samples from which on misses are expected where no class or one was missed."""


@dataclass(frozen=True)
class Method:
    """How samples are drawn and how alpha is divided: see the names above.

    >>> Method.parse("anytime_runner_up@0.9:1000")
    Method(sampling='anytime', split='runner_up', share=0.9, most=1000)
    """

    sampling: Sampling = "fixed"
    split: Split = "complement"
    share: float = EVEN
    """The share of alpha for the candidate's bound, of the split "runner_up"."""
    most: int | None = None
    """The number of samples at the last look, of the sampling "anytime"."""

    @classmethod
    def parse(cls, name: object) -> Method:
        """Return the method of that name; an `InputError` if there is none."""
        method = _parsed(name) if isinstance(name, str) else None
        if method is None:
            rule = f"must be a known bound: {', '.join(KNOWN)}"
            raise InputError("method", repr(name), rule, did_you_mean(name, KNOWN))
        return method

    @property
    def name(self) -> str:
        """The name that `parse` reads."""
        split: str = "" if self.split == "complement" else self.split
        if self.split == "runner_up" and self.share != EVEN:
            split += f"@{self.share:g}"
        if self.sampling == "fixed":
            return split or "clopper_pearson"
        most = "" if self.most is None else f":{self.most}"
        return "_".join(filter(None, (self.sampling, split))) + most

    def at_most(self, n: int) -> Method:
        """Return the method with its last look, if it has one, at n samples."""
        return self if self.most is None else replace(self, most=n)

    @property
    def stops_early(self) -> bool:
        """Whether the bounds hold whenever sampling stops."""
        return self.sampling != "fixed"

    def check_level(self, alpha: float) -> None:
        """Raise unless certificates of sampled counts can have the level alpha by this method."""
        check_sampled_alpha(alpha, below=0.5 if self.stops_early else 1.0)

    def chosen(self, counts: Counts) -> Method:
        """Return the method for an image, of which "auto" is chosen by its selection counts.

        The choice must not depend on anything but the selection sample, which is independent of
        the estimation sample, and on its size where that is fixed. Of two classes, p_B = 1 - p_A is
        exact. With more, the runner-up pays nearly always; if all misses are of one class, or there
        is none, the runner-up gets little of alpha unless many samples follow.

        >>> Method.parse("auto").chosen(Counts((90, 10), (900, 100))).name
        'clopper_pearson'
        >>> Method.parse("auto").chosen(Counts((90, 6, 4), (900, 60, 40))).name
        'runner_up'
        """
        predicted = sum(count > 0 for count in counts.selection)
        few = self.stops_early or counts.n < MANY
        return self.chosen_of(len(counts.selection), predicted, few=few)

    def chosen_of(self, classes: int, predicted: int, *, few: bool = True) -> Method:
        """Return the method for an image of which `predicted` of all classes were selected."""
        if self.split != "auto":
            return self
        if classes == 2:
            return replace(self, split="complement")
        return replace(self, split="runner_up", share=LEAN if few and predicted <= 2 else EVEN)

    def may_choose(self, method: Method) -> bool:
        """Return whether `chosen` may return that method, also that of another version."""
        if self.split != "auto":
            return method == self
        return method.split in ("complement", "runner_up") and self == replace(
            method, split="auto", share=self.share
        )

    def bound(self, counts: Counts, alpha: float) -> Bound:
        """Guarantee: both sides of the bound hold together with probability at least 1 - alpha.

        It is that of the method chosen by the selection counts.
        """
        method = self.chosen(counts)
        if not (counts.n0 and counts.n):
            raise InputError(
                "the number of samples",
                f"{counts.n0} to select and {counts.n} to estimate",
                "must be at least 1 in both stages",
                "draw samples for each",
            )
        if counts.pairs is not None and method.sampling != "stratified":
            raise InputError(
                "the method",
                repr(self.name),
                "must be a stratified one for counts of stratified noise",
                "e.g. 'stratified_auto'",
            )
        of_candidate, of_others = method.levels(alpha, len(counts.selection))
        lower = method._lower(counts, of_candidate)
        upper = complement_up(lower)
        if of_others is not None:
            upper = min(upper, method._upper(counts, of_others))
        return Bound(lower, upper)

    def levels(self, alpha: float, classes: int) -> tuple[float, float | None]:
        """Return the level of the candidate's bound and of that on the other classes, if any.

        Guarantee: they add up to at most alpha. (Of "bonferroni", one level for each class.)
        """
        check_alpha(alpha)
        if self.split == "complement":
            return alpha, None
        if self.split == "bonferroni":
            return alpha / classes, alpha / classes
        assert self.split == "runner_up"  # chosen by now
        rest = 1 - self.share
        return round_down(alpha * self.share, 2.0**-50), round_down(alpha * rest, 2.0**-50)

    def _lower(self, counts: Counts, level: float) -> float:
        """Return the lower bound on the candidate's probability."""
        hits, trials = counts.estimation[counts.candidate], sum(counts.estimation)
        if self.sampling == "fixed":
            return clopper_pearson_lower(hits, trials, level)
        if self.sampling == "anytime":
            if self.most is None:
                return anytime_lower(hits, trials, level)
            return capped_lower(hits, trials, level, self.most)
        lower = anytime_lower(hits, trials, half(level)) if trials else 0.0
        if counts.pairs is None:
            return lower
        paired = counts.pairs.classes[counts.candidate], counts.pairs.n
        differing = counts.pairs.disagreements[counts.candidate]
        return max(lower, stratified_lower(*paired, differing, half(level)))

    def _upper(self, counts: Counts, level: float) -> float:
        """Return the upper bound on the probability of every class but the candidate."""
        hits, trials = max(_others(counts.estimation, counts)), sum(counts.estimation)
        if self.sampling == "fixed":
            return clopper_pearson_upper(hits, trials, level)
        if self.sampling == "anytime":
            if self.most is None:
                return anytime_upper(hits, trials, level)
            return capped_upper(hits, trials, level, self.most)
        upper = anytime_upper(hits, trials, half(level)) if trials else 1.0
        if counts.pairs is None:
            return upper
        # More hits do not always mean a larger bound: pairs that agree say more.
        classes, differing = counts.pairs.classes, counts.pairs.disagreements
        columns = zip(_others(classes, counts), _others(differing, counts), strict=True)
        paired = (stratified_upper(k, counts.pairs.n, d, half(level)) for k, d in {*columns})
        return min(upper, max(paired))


def _others(values: Sequence[int], counts: Counts) -> list[int]:
    """Return what belongs to the classes other than the candidate."""
    candidate = counts.candidate
    return [*values[:candidate], *values[candidate + 1 :]]


@lru_cache(maxsize=256)
def _parsed(name: str) -> Method | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    sampling, split, share, most = found["sampling"], found["split"], found["share"], found["most"]
    if sampling is None and split is None:
        return None
    named_complement = split == "clopper_pearson"
    known: dict[str | None, Split] = {None: "complement", "clopper_pearson": "complement"}
    known |= {word: word for word in get_args(Split)}
    method = Method(
        cast("Sampling", sampling or "fixed"),
        known[split],
        EVEN if share is None else float(share),
        None if most is None else int(most),
    )
    if (named_complement or split == "bonferroni") and method.stops_early:
        return None
    if share is not None and (split != "runner_up" or method.share in (0.0, EVEN)):
        return None
    if most is not None and method.sampling != "anytime":
        return None
    return method if method.name == name else None
