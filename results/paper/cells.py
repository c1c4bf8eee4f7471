"""The runs sorted by dataset and family, and every number of the paper beside the best of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

from deformrs.errors import InputError
from deformrs.report.formats import signed
from deformrs.report.groups import TITLES, family_words
from deformrs.space import Block
from deformrs.units import Unit
from paper.numbers import (
    ALPHA,
    DCT,
    FAMILIES,
    METHOD,
    SIZES,
    UNITS,
    Number,
    PaperTable,
    paper_table,
)
from paper.runs import COMPOSITIONS, ROUTES, Composition, RunCounts

Kind = Literal["table", "average", "headline", "composition", "route"]
AVERAGE = "ACR"
"""Stands in place of a radius for the average certified radius."""


@dataclass(frozen=True)
class Cell:
    """One number of the paper and the best of the runs at it.

    `theirs` and `ours` are in per cent, or average radii in the displayed unit. `radius` is text
    as in numbers.csv.
    """

    kind: Kind
    dataset: str
    deformation: str
    unit: str
    radius: str
    number: Number
    theirs: Fraction
    ours: Fraction
    run: RunCounts
    """The run that gave it, the first of equals."""
    count: int | None = None
    requested: bool = True
    """Whether any run of the family had its samples for it; else more may well give more."""
    decimals: int = 2

    @property
    def reached(self) -> bool:
        """Whether ours is at least the paper's number."""
        return self.ours >= self.theirs

    @property
    def difference(self) -> str:
        """Ours minus theirs, rounded down, with its sign."""
        return signed(self.ours - self.theirs, self.decimals)

    @property
    def per(self) -> int:
        """The factor from an average in numbers.csv to the displayed unit."""
        return per(self.unit) if self.kind == "average" else 1


@dataclass(frozen=True)
class Chapter:
    """One family on one dataset: its runs, those that cells are chosen from, and its cells."""

    dataset: str
    family: str
    table: PaperTable
    block: Block
    runs: tuple[RunCounts, ...]
    cells: tuple[Cell, ...]

    @property
    def heading(self) -> str:
        """The family and the dataset: "Rotation on MNIST"."""
        name = family_words({"name": self.family})
        return f"{name[0].upper()}{name[1:]} on {TITLES[self.dataset]}"

    @property
    def figure(self) -> str:
        """The path of its figure beside the page."""
        return f"figures/{self.dataset}-{self.family}.svg"


@dataclass(frozen=True)
class Board:
    """All runs and all cells, in a fixed order."""

    runs: tuple[RunCounts, ...]

    @property
    def datasets(self) -> list[str]:
        """The datasets of the runs, in the paper's order."""
        return [name for name in SIZES if any(run.dataset == name for run in self.runs)]

    @cached_property
    def chapters(self) -> tuple[Chapter, ...]:
        """The tables of the paper that have a run."""
        chapters = []
        for dataset in self.datasets:
            for family in FAMILIES:
                runs = [r for r in self.runs if (r.dataset, r.family) == (dataset, family)]
                chosen = comparable(runs)
                if chosen and chosen[0].table is not None and chosen[0].block is not None:
                    table, block = chosen[0].table, chosen[0].block
                    cells = tuple(family_cells(chosen, table, block))
                    chapters.append(Chapter(dataset, family, table, block, chosen, cells))
        return tuple(chapters)

    @cached_property
    def compositions(self) -> dict[str, tuple[Cell, ...]]:
        """By dataset: the better route to each composition, then its routes."""
        return {
            dataset: tuple(
                composition_cells(dataset, [r for r in self.runs if r.dataset == dataset])
            )
            for dataset in self.datasets
        }

    def cells_of(self, dataset: str) -> list[Cell]:
        """Return all cells of a dataset, in the order of summary.csv."""
        own = [cell for c in self.chapters if c.dataset == dataset for cell in c.cells]
        return [*own, *self.compositions[dataset]]

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order of summary.csv."""
        return [cell for dataset in self.datasets for cell in self.cells_of(dataset)]

    @property
    def unused(self) -> list[tuple[RunCounts, str]]:
        """The runs that no cell is chosen from, and why."""
        chosen = {run.folder for chapter in self.chapters for run in chapter.runs}
        for cell in (cell for cells in self.compositions.values() for cell in cells):
            if cell.kind == "route":
                name = cell.deformation.partition(", ")[0]
                same_route = (
                    run
                    for run in self.runs
                    if (run.dataset, run.route) == (cell.dataset, cell.run.route)
                    and name in run.compositions
                )
                chosen |= {run.folder for run in comparable(same_route)}
        return [(run, _why_unused(run)) for run in self.runs if run.folder not in chosen]

    @property
    def missing(self) -> list[tuple[str, str]]:
        """(dataset, family or composition) of the paper's tables without any run."""
        have = {(chapter.dataset, chapter.family) for chapter in self.chapters}
        have |= {(cell.dataset, cell.deformation) for cell in self.cells}
        published = [
            (dataset, family)
            for dataset in SIZES
            for family in FAMILIES
            if (table := family_table(dataset, family)) is not None and table.table_radii
        ]
        published += [
            (dataset, composition.name)
            for dataset in SIZES
            for composition in COMPOSITIONS
            if composition_number(dataset, composition) is not None
        ]
        return [pair for pair in published if pair not in have]


def make_board(runs: Sequence[RunCounts]) -> Board:
    """Return the runs in a fixed order, however they are given; no two may have one name."""
    if not runs:
        raise InputError("the runs", "none", "must be at least one", "give a run's folder")
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise InputError("the runs", f"{name} twice", "must be different ones", "rename one")
    datasets, families = list(SIZES), (*FAMILIES, None)
    ordered = sorted(
        runs,
        key=lambda run: (
            datasets.index(run.dataset),
            families.index(run.family),
            run.deformation,
            run.order,
            run.name,
        ),
    )
    return Board(tuple(ordered))


def comparable(runs: Iterable[RunCounts]) -> tuple[RunCounts, ...]:
    """Return the runs that cells are chosen from: at most the paper's alpha, and most images.

    Among fewer images it would be easy to be the best.
    """
    strict = tuple(run for run in runs if run.alpha <= ALPHA)
    most = max((run.total for run in strict), default=0)
    return tuple(run for run in strict if run.total == most)


def best_at(runs: Sequence[RunCounts], radius: Fraction) -> tuple[RunCounts, int]:
    """Return the run that certifies the most images at a radius of the paper, and how many."""
    best = max(runs, key=lambda run: Fraction(run.certified[radius], run.total))
    return best, best.certified[radius]


def family_cells(runs: Sequence[RunCounts], table: PaperTable, block: Block) -> list[Cell]:
    """Return a cell for every number that the paper has for a family, then the average radius.

    Guarantee: no `ours` is above what the results of its run give.
    """
    cells = []
    for radius in table.radii:
        number = table.best(radius)
        if number is None:
            continue  # a radius of other methods only
        run, count = best_at(runs, radius)
        cells.append(
            Cell(
                kind="table" if radius in table.table_radii else "headline",
                dataset=table.dataset,
                deformation=table.deformation,
                unit=table.unit,
                radius=f"{float(radius / per(table.unit)):.10g}",
                number=number,
                theirs=number.accuracy,
                ours=Fraction(100 * count, run.total),
                run=run,
                count=count,
                requested=any(radius in run.decided for run in runs),
            )
        )
    number = table.best_average()
    if number is not None:
        run = max(runs, key=lambda run: run.average)
        cells.append(
            Cell(
                kind="average",
                dataset=table.dataset,
                deformation=table.deformation,
                unit=table.unit,
                radius=AVERAGE,
                number=number,
                theirs=number.average or Fraction(0),
                ours=run.average,
                run=run,
                requested=not all(run.average_is_bound for run in runs),
                decimals=block.unit.decimals,
            )
        )
    return cells


def composition_cells(dataset: str, runs: Sequence[RunCounts]) -> list[Cell]:
    """Return for each composition of the paper on a dataset the better route, then each route."""
    cells = []
    for composition in COMPOSITIONS:
        number = composition_number(dataset, composition)
        routes = []
        for route in ROUTES if number is not None else ():
            own = comparable(
                r for r in runs if r.route == route and composition.name in r.compositions
            )
            if own and number is not None:
                routes.append(_route_cell(composition, route, number, own))
        if routes:
            fullest = [cell for cell in routes if cell.run in comparable(c.run for c in routes)]
            best = max(fullest, key=lambda cell: cell.ours)
            cells += [replace(best, kind="composition", deformation=composition.name), *routes]
    return cells


def composition_number(dataset: str, composition: Composition) -> Number | None:
    """Return the paper's own number for a composition, if it has one on that dataset."""
    table = family_table(dataset, "affine")
    numbers = [] if table is None else table.of_region(composition.published)
    return next((number for number in numbers if number.method == METHOD), None)


def family_table(dataset: str, family: str) -> PaperTable | None:
    """Return the paper's numbers on a family, with the settings of its tables."""
    return paper_table(dataset, {"name": family, **DCT})


def per(unit: str) -> int:
    """Return the factor from a unit of numbers.csv to the displayed unit."""
    return 100 if UNITS[unit] is Unit.FRACTION else 1


def _route_cell(
    composition: Composition, route: str, number: Number, runs: Sequence[RunCounts]
) -> Cell:
    def share(run: RunCounts) -> Fraction:
        return Fraction(100 * (run.compositions[composition.name].count or 0), run.total)

    run = max(runs, key=share)
    return Cell(
        kind="route",
        dataset=run.dataset,
        deformation=f"{composition.name}, {route}",
        unit=number.unit,
        radius=composition.text,
        number=number,
        theirs=number.accuracy,
        ours=share(run),
        run=run,
        count=run.compositions[composition.name].count,
        requested=any(composition.name in run.decided_compositions for run in runs),
    )


def _why_unused(run: RunCounts) -> str:
    if run.alpha > ALPHA:
        return f"alpha {run.alpha!r}, the paper's is {ALPHA!r}"
    published = {c.name for c in COMPOSITIONS if composition_number(run.dataset, c) is not None}
    if run.family is None and published.isdisjoint(run.compositions):
        return run.unpublished
    return f"{run.total:,} images, fewer than other runs of its kind"
