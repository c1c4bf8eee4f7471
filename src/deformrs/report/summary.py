"""What a run comes to: how many pictures are right, abstained on, and how far they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from deformrs.report.people import reach
from deformrs.report.radii import Radius
from deformrs.report.tables import check_results
from deformrs.runs import Result


@dataclass(frozen=True)
class Summary:
    """Exact counts over the pictures of a run, or of one class of it.

    `plain` is None where the plain model was not asked about every picture. `averages` are the
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
        certified=tuple(sum(radius.held_by(result) for result in right) for radius in radii),
    )


def by_class(results: Sequence[Result], radii: Sequence[Radius] = ()) -> dict[int, Summary]:
    """A summary for every class that has a picture, by its number."""
    classes: dict[int, list[Result]] = {}
    for result in results:
        classes.setdefault(result.label, []).append(result)
    return {label: summarise(classes[label], radii) for label in sorted(classes)}
