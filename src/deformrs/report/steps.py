"""Certified accuracy against radius as a step curve that is nowhere above the truth."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from deformrs.report.people import decimals_of, reach
from deformrs.rounding import format_down
from deformrs.runs import Result
from deformrs.space import Block

MOST_STEPS = 600
"""Steps of one curve on the page: more than a screen has pixels to show."""


@dataclass(frozen=True)
class Steps:
    """`counts[k]` of `total` images are right and certified at every radius up to `ends[k]`.

    `ends` rises, `counts` falls; beyond the last end it is none. Radii are in the unit people use.
    """

    ends: tuple[Fraction, ...]
    counts: tuple[int, ...]
    total: int

    def at(self, radius: Fraction) -> int:
        """How many are right and certified at that radius: never more than there are."""
        place = bisect_left(self.ends, radius)
        return self.counts[place] if place < len(self.ends) else 0

    def thinned(self, keep: Sequence[Fraction] = (), most: int = MOST_STEPS) -> Steps:
        """Guarantee: nowhere above this curve, and equal to it at the radii of `keep`.

        Where a step is left out, the curve falls to the next one sooner.
        """
        stride = -(-len(self.ends) // most) or 1
        places = {*range(0, len(self.ends), stride), len(self.ends) - 1}
        places |= {bisect_left(self.ends, radius) for radius in keep}
        kept = [place for place in sorted(places) if 0 <= place < len(self.ends)]
        return Steps(
            tuple(self.ends[place] for place in kept),
            tuple(self.counts[place] for place in kept),
            self.total,
        )


@dataclass(frozen=True)
class Envelope:
    """The best of several runs at each radius: `counts[k]` of `totals[k]`, by run `runs[k]`."""

    ends: tuple[Fraction, ...]
    counts: tuple[int, ...]
    totals: tuple[int, ...]
    runs: tuple[int, ...]

    def at(self, radius: Fraction) -> tuple[int, int, int] | None:
        """(count, total, run) of the best run at that radius; None where no run has any."""
        place = bisect_left(self.ends, radius)
        if place == len(self.ends):
            return None
        return self.counts[place], self.totals[place], self.runs[place]


def steps_of(results: Sequence[Result], block: Block) -> Steps:
    """The curve of a run: radii rounded down to a little more than people are shown."""
    fine = decimals_of(block.unit) + 2
    by_end: dict[Fraction, int] = {}
    for result in results:
        if result.correct:
            exact = reach(block, result.certificate.radius, result.certificate.space.size)
            end = Fraction(format_down(exact, fine))
            by_end[end] = by_end.get(end, 0) + 1
    ends = sorted(by_end)
    counts = list(accumulate(by_end[end] for end in reversed(ends)))[::-1]
    return Steps(tuple(ends), tuple(counts), len(results))


def envelope(curves: Sequence[Steps]) -> Envelope:
    """The best of the curves at each radius, the first of equals."""
    ends = sorted({end for curve in curves for end in curve.ends})
    kept: list[tuple[Fraction, int, int, int]] = []
    for end in ends:
        shares = [Fraction(curve.at(end), curve.total) for curve in curves]
        run = shares.index(max(shares))
        step = (end, curves[run].at(end), curves[run].total, run)
        # A step that is the continuation of the one before only moves its end.
        if kept and kept[-1][1:] == step[1:]:
            kept.pop()
        kept.append(step)
    columns = list(zip(*kept, strict=True)) or [(), (), (), ()]
    return Envelope(*columns)
