"""What the page's charts and class tables are drawn from: counts, thinned where they are many."""

from __future__ import annotations

from fractions import Fraction

from deformrs.report.comparison import same_scale
from deformrs.report.people import SIGNS, decimals_of, float_down
from deformrs.report.published import Number
from deformrs.report.section import Section
from deformrs.report.steps import Steps
from deformrs.report.words import axis_words
from deformrs.rounding import format_down
from deformrs.space import Block

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]
"""What JSON can hold."""


def chart_data(section: Section, block: Block) -> dict[str, Plain]:
    """The curves of a section, each with exact counts, and the published points."""
    size = section.group.sizes[0]
    marks = [radius.in_people_units(size) for radius in section.radii]
    curves = [_curve(e.curve.thinned(marks)) for e in section.entries if e.curve is not None]
    ends = [e.curve.ends[-1] for e in section.entries if e.curve is not None and e.curve.ends]
    largest = float(max(ends, default=Fraction(1))) or 1.0
    named: list[Plain] = [
        curve | {"name": entry.member.name, "noise": entry.member.short_noise}
        for entry, curve in zip(section.entries, curves, strict=True)
    ]
    return {
        "sign": SIGNS[block.unit],
        "decimals": decimals_of(block.unit),
        "axis": axis_words(section.group, block),
        "largest": 180.0 if largest == 180 else 1.03 * largest,
        "curves": named,
        "best": _best(section),
        "paper": _paper(section),
        "marks": [[float(x), radius.shown] for x, radius in zip(marks, section.radii, strict=True)],
        "start": _start(section, marks),
    }


def classes_data(section: Section) -> dict[str, Plain]:
    """Counts for every class of every run; the page turns them into a table.

    A row is: class, images, plain right or null, smoothed right, certified at each radius,
    then the average radius of each block, rounded down.
    """
    blocks = section.group.blocks
    names = {
        str(label): entry.member.class_name(label)
        for entry in section.entries
        for label in entry.classes
    }
    runs: list[Plain] = []
    for entry in section.entries:
        rows: list[Plain] = []
        for label, summary in entry.classes.items():
            averages: list[Plain] = [
                float(format_down(average, decimals_of(block.unit)))
                for average, block in zip(summary.averages, blocks, strict=True)
            ]
            counts: list[Plain] = [label, summary.total, summary.plain, summary.right]
            rows.append([*counts, *summary.certified, *averages])
        runs.append({"name": entry.member.name, "rows": rows})
    averages_shown = [
        "average radius" if len(blocks) == 1 else f"average {block.family.replace('_', ' ')}"
        for block in blocks
    ]
    return {
        "names": dict(names),
        "radii": [radius.shown for radius in section.radii],
        "averages": list(averages_shown),
        "signs": [SIGNS[block.unit] for block in blocks],
        "decimals": [decimals_of(block.unit) for block in blocks],
        "runs": runs,
    }


def _curve(curve: Steps) -> dict[str, Plain]:
    return {
        "total": curve.total,
        "ends": [float_down(end) for end in curve.ends],
        "counts": list(curve.counts),
    }


def _best(section: Section) -> Plain:
    best = section.best
    if best is None:
        return None
    return {
        "ends": [float_down(end) for end in best.ends],
        "counts": list(best.counts),
        "totals": list(best.totals),
        "runs": list(best.runs),
    }


def _paper(section: Section) -> list[Plain]:
    """The paper's best over scales, and its rows of the scales of our runs."""
    paper = section.group.paper
    if paper is None:
        return []
    best = [number for radius in paper.radii if (number := paper.best(radius)) is not None]
    found: list[Plain] = [{"name": "paper, best scale", "run": None, "points": _points(best)}]
    for place, entry in enumerate(section.entries):
        row = [n for n in same_scale(entry.member, paper) if n.radius is not None]
        if row:
            name = f"paper, {row[0].noise} {row[0].scale_shown}"
            found.append({"name": name, "run": place, "points": _points(row)})
    return found


def _points(numbers: list[Number]) -> list[Plain]:
    """[radius, per cent, why it cannot be right or nothing]"""
    return [[float(n.radius or 0), float(n.accuracy or 0), n.misprint] for n in numbers]


def _start(section: Section, marks: list[Fraction]) -> float:
    """Where the values are read off until a reader points elsewhere: the middle radius."""
    return float(marks[len(marks) // 2]) if marks else 0.0
