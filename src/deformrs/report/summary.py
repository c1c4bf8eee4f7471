"""What a run comes to: how many images are right, abstained on, and how far they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from deformrs.certificate import Certificate
from deformrs.errors import InputError
from deformrs.report.people import reach
from deformrs.report.radii import Radius
from deformrs.rounding import percent_down, round_down
from deformrs.runs import Result


class Query(Protocol):
    """A radius or region that a certificate may cover."""

    def holds(self, result: Result) -> bool:
        """Return whether a result is correct and certified for this query."""
        ...


def count_certified(results: Iterable[Result], query: float | Query) -> int:
    """Return how many results are correct and certified at a radius, or for a query.

    A number is a radius in the package's own unit.
    """
    if isinstance(query, int | float):
        return sum(result.holds(query) for result in results)
    return sum(query.holds(result) for result in results)


@dataclass(frozen=True)
class Row:
    """How many of `total` images are predicted right and certified at `radius`."""

    shown: str
    radius: float
    certified: int
    total: int

    @property
    def percent(self) -> str:
        return percent_down(self.certified, self.total)


def check_results(results: Sequence[Result]) -> Certificate:
    """The first certificate: what all results of a run share can be read off it."""
    if not results:
        raise InputError("the results", "empty", "must have at least one", "certify some images")
    return results[0].certificate


def accuracy_rows(results: Sequence[Result], radii: dict[str, float]) -> list[Row]:
    """One row for every radius, given by how it is shown: {"10°": math.radians(10)}."""
    check_results(results)
    return [
        Row(shown, radius, count_certified(results, radius), len(results))
        for shown, radius in radii.items()
    ]


def average_radius(results: Sequence[Result]) -> float:
    """The mean over all images of the radius, 0 where the prediction is wrong or abstains."""
    check_results(results)
    total = math.fsum(result.certificate.radius for result in results if result.correct)
    return max(0.0, round_down(total / len(results)))


def markdown(results: Sequence[Result], radii: dict[str, float]) -> str:
    """The table people paste into their notes."""
    first = check_results(results)
    family = first.space.blocks[0].family.replace("_", " ")
    lines = [f"| {family} up to | certified accuracy |", "|---|---|"]
    lines += [f"| {row.shown} | {row.percent} % |" for row in accuracy_rows(results, radii)]
    mean = first.space.blocks[0].unit.show_down(average_radius(results), first.space.size)
    abstained = sum(result.certificate.prediction is None for result in results)
    lines += [
        "",
        f"Average certified radius: {mean}. Abstained on {abstained} of {len(results)} images.",
        f"Noise: {first.law.describe(first.space)}. n0 = {first.counts.n0:,}, "
        f"n = {first.counts.n:,}, alpha = {first.alpha} per image.",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Summary:
    """Exact counts over the images of a run, or of one class of it.

    `plain` is None where the plain model was not asked about every image. `averages` are the
    average certified radii, one a block, in the unit people use: wrong and abstaining count as 0.
    """

    total: int
    right: int
    abstained: int
    plain: int | None
    averages: tuple[Fraction, ...]
    certified: tuple[int, ...]
    """How many are right and certified at each of the radii asked."""


def summarise(results: Sequence[Result], radii: Sequence[Radius] = ()) -> Summary:
    """The counts of these results, exact; averages are not above the truth."""
    blocks = check_results(results).space.blocks
    right = [result for result in results if result.correct]
    known = all(result.plain is not None for result in results)
    return Summary(
        total=len(results),
        right=len(right),
        abstained=sum(result.certificate.prediction is None for result in results),
        plain=sum(result.plain == result.label for result in results) if known else None,
        averages=tuple(
            sum(
                (reach(block, r.certificate.radii[k], r.certificate.space.size) for r in right),
                Fraction(0),
            )
            / len(results)
            for k, block in enumerate(blocks)
        ),
        certified=tuple(count_certified(right, radius) for radius in radii),
    )


def by_class(results: Sequence[Result], radii: Sequence[Radius] = ()) -> dict[int, Summary]:
    """A summary for every class that has an image, by its number."""
    classes: dict[int, list[Result]] = {}
    for result in results:
        classes.setdefault(result.label, []).append(result)
    return {label: summarise(classes[label], radii) for label in sorted(classes)}
