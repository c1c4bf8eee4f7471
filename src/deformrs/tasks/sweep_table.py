"""What came of the runs of a sweep, side by side, no figure above the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deformrs.questions import Question, RegionAsked
from deformrs.report.people import shown_down
from deformrs.report.summary import summarise
from deformrs.rounding import percent_down
from deformrs.runs import Result

_NONE = "–"


@dataclass(frozen=True)
class Row:
    """One run: accuracies in per cent, rounded down, and the average radius where it has one."""

    name: str
    plain: str
    certified: dict[str, str]
    """By the text of the radius or region."""
    average: str


def row_of(name: str, results: Sequence[Result], questions: Sequence[Question]) -> Row:
    """What the results of a run come to."""
    counted = summarise(results)
    blocks = results[0].certificate.space.blocks

    def share(count: int) -> str:
        return f"{percent_down(count, counted.total)} %"

    return Row(
        name,
        _NONE if counted.plain is None else share(counted.plain),
        {q.text: share(sum(q.holds(result) for result in results)) for q in questions},
        shown_down(counted.averages[0], blocks[0].unit) if len(blocks) == 1 else _NONE,
    )


def table(rows: Sequence[Row], questions: Sequence[Question]) -> list[str]:
    """Lines of a table, a row a run; what was not asked of a run is left open.

    Regions are long: they are numbered, and spelt out beneath.
    """
    asked = list({question.text: question for question in questions}.values())
    regions = [question.text for question in asked if isinstance(question, RegionAsked)]
    heads = [f"({regions.index(q.text) + 1})" if q.text in regions else q.text for q in asked]
    cells = [["run", "plain", *heads, "average radius"]]
    for row in rows:
        shares = [row.certified.get(question.text, _NONE) for question in asked]
        cells.append([row.name, row.plain, *shares, row.average])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return lines + [f"({number}) {text}" for number, text in enumerate(regions, start=1)]
