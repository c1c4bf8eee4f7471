"""Published numbers beside ours: every cell of a table, whether it is reached or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from deformrs.report.against.compositions import COMPOSITIONS, ROUTES, Composition
from deformrs.report.against.reading import Reading
from deformrs.report.people import decimals_of
from deformrs.report.published import ALPHA, METHOD, Number, Paper, paper_for
from deformrs.rounding import format_down
from deformrs.space import Block

Kind = Literal["table", "average", "headline", "composition", "route"]
AVERAGE = "ACR"
"""What stands in place of a radius for the average certified radius."""


@dataclass(frozen=True)
class Compared:
    """One published number and the best of our runs at it.

    `theirs` and `ours` are in per cent, or average radii in the unit people use. `radius` is what
    the paper's file has, `per` what turns an average of that file into people's unit.
    """

    kind: Kind
    dataset: str
    deformation: str
    unit: str
    radius: str
    paper: Number
    theirs: Fraction
    ours: Fraction
    run: Reading
    """The run that gave it, the first of equals."""
    count: int | None = None
    asked: bool = True
    """Did any run of the family sample for it? Else more samples may well give more."""
    decimals: int = 2
    per: int = 1

    @property
    def reached(self) -> bool:
        """At least the published number?"""
        return self.ours >= self.theirs

    @property
    def difference(self) -> str:
        """Ours less theirs as the tables show it, rounded down, with its sign."""
        text = format_down(self.ours - self.theirs, self.decimals)
        return text.replace("-", "−") if text.startswith("-") else f"+{text}"

    @property
    def given(self) -> bool:
        """Is there anything of ours? Nothing is the same of every run."""
        return self.ours > 0


def counted(readings: Iterable[Reading]) -> tuple[Reading, ...]:
    """The runs that cells are chosen from: at the paper's alpha or a stricter one, and over as many
    images as any of them, or it were easy to be the best."""
    every = tuple(reading for reading in readings if reading.alpha <= ALPHA)
    most = max((reading.total for reading in every), default=0)
    return tuple(reading for reading in every if reading.total == most)


def best_at(readings: Sequence[Reading], radius: Fraction) -> tuple[Reading, int]:
    """The run that certifies most images at a published radius, and how many."""
    best = max(readings, key=lambda reading: Fraction(reading.certified[radius], reading.total))
    return best, best.certified[radius]


def family_cells(readings: Sequence[Reading], paper: Paper, block: Block) -> list[Compared]:
    """Every number that the paper has for a family: by radius, then the average radius.

    Guarantee: no cell of `ours` is above what its run's results give.
    """
    table = set(paper.table_radii)
    cells = []
    for radius in sorted({*table, *paper.headline_radii}):
        number = paper.best(radius)
        if number is None:
            continue  # a radius of other methods only
        run, count = best_at(readings, radius)
        cells.append(
            Compared(
                kind="table" if radius in table else "headline",
                dataset=paper.dataset,
                deformation=paper.deformation,
                unit=paper.unit,
                radius=radius_text(radius, paper.unit),
                paper=number,
                theirs=number.accuracy or Fraction(0),
                ours=Fraction(100 * count, run.total),
                run=run,
                count=count,
                asked=any(radius in reading.asked for reading in readings),
            )
        )
    number = paper.best_average()
    if number is not None:
        run = max(readings, key=lambda reading: reading.average)
        cells.append(
            Compared(
                kind="average",
                dataset=paper.dataset,
                deformation=paper.deformation,
                unit=paper.unit,
                radius=AVERAGE,
                paper=number,
                theirs=number.average or Fraction(0),
                ours=run.average,
                run=run,
                asked=not all(reading.facts.settled_only for reading in readings),
                decimals=decimals_of(block.unit),
                per=_per(paper.unit),
            )
        )
    return cells


def composition_cells(dataset: str, readings: Sequence[Reading]) -> list[Compared]:
    """For each composition that the paper has on that data set: the better route, then each."""
    cells = []
    for composition in COMPOSITIONS:
        number = published_composition(dataset, composition)
        if number is None:
            continue
        routes = []
        for route in ROUTES:
            asked = counted(
                r for r in readings if r.route == route and composition.name in r.compositions
            )
            if not asked:
                continue
            run = max(asked, key=lambda reading: _covered(reading, composition))
            name = f"{composition.name}, {route}"
            routes.append(_composed(name, composition, number, run, asked))
        if routes:
            fullest = [cell for cell in routes if cell.run in counted(c.run for c in routes)]
            best = max(fullest, key=lambda cell: cell.ours)
            name = composition.name
            cells += [replace(best, kind="composition", deformation=name), *routes]
    return cells


def published_composition(dataset: str, composition: Composition) -> Number | None:
    """The paper's own number for it, if it has one on that data set."""
    paper = paper_for(dataset, {"name": "affine"})
    numbers = [] if paper is None else paper.of_region(composition.published)
    return next((number for number in numbers if number.method == METHOD), None)


def radius_text(radius: Fraction, unit: str) -> str:
    """A radius as the published file has it.

    >>> radius_text(Fraction(20), "fraction")
    '0.2'
    """
    return f"{float(radius / _per(unit)):.10g}"


def _composed(
    name: str,
    composition: Composition,
    number: Number,
    run: Reading,
    readings: Sequence[Reading],
) -> Compared:
    return Compared(
        kind="route",
        dataset=run.dataset,
        deformation=name,
        unit=number.unit,
        radius=composition.text,
        paper=number,
        theirs=number.accuracy or Fraction(0),
        ours=100 * _covered(run, composition),
        run=run,
        count=run.compositions[composition.name].count,
        asked=any(composition.name in reading.sampled_for for reading in readings),
    )


def _covered(reading: Reading, composition: Composition) -> Fraction:
    return Fraction(reading.compositions[composition.name].count or 0, reading.total)


def _per(unit: str) -> int:
    return 100 if unit == "fraction" else 1
