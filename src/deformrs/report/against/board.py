"""All runs sorted into data sets and families, and all cells of them, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deformrs.errors import InputError
from deformrs.report.against.cells import (
    Compared,
    composition_cells,
    counted,
    family_cells,
    published_composition,
)
from deformrs.report.against.compositions import COMPOSITIONS
from deformrs.report.against.names import short_names
from deformrs.report.against.reading import FAMILIES, Reading
from deformrs.report.groups import Group
from deformrs.report.published import ALPHA, SIZES, Paper, paper_for
from deformrs.space import Block

DCT = {"k": 2, "basis": "cosine"}
"""What the paper's DCT tables were made with."""


@dataclass(frozen=True)
class Chapter:
    """One family on one data set: its runs, those that are chosen from, and its cells."""

    dataset: str
    family: str
    paper: Paper
    block: Block
    readings: tuple[Reading, ...]
    cells: tuple[Compared, ...]

    @property
    def title(self) -> str:
        return Group(self.dataset, {"name": self.family}, ()).family

    @property
    def chosen_from(self) -> tuple[Reading, ...]:
        return counted(self.readings)


@dataclass(frozen=True)
class Board:
    """Everything that is compared."""

    readings: tuple[Reading, ...]
    names: dict[Path, str]
    """A short name for each run, by its folder."""

    @property
    def datasets(self) -> list[str]:
        return [name for name in SIZES if any(r.dataset == name for r in self.readings)]

    @cached_property
    def chapters(self) -> tuple[Chapter, ...]:
        found = []
        for dataset in self.datasets:
            for family in FAMILIES:
                some = tuple(r for r in self.readings if (r.dataset, r.family) == (dataset, family))
                chosen = counted(some)
                if chosen and chosen[0].paper is not None and chosen[0].block is not None:
                    paper, block = chosen[0].paper, chosen[0].block
                    cells = tuple(family_cells(chosen, paper, block))
                    found.append(Chapter(dataset, family, paper, block, some, cells))
        return tuple(found)

    @cached_property
    def compositions(self) -> dict[str, tuple[Compared, ...]]:
        """By data set: the better route of each composition, then its routes."""
        return {
            dataset: tuple(
                composition_cells(dataset, [r for r in self.readings if r.dataset == dataset])
            )
            for dataset in self.datasets
        }

    def cells_of(self, dataset: str) -> list[Compared]:
        """All cells of a data set, in the order of the CSV file."""
        own = [cell for c in self.chapters if c.dataset == dataset for cell in c.cells]
        return [*own, *self.compositions[dataset]]

    @property
    def cells(self) -> list[Compared]:
        return [cell for dataset in self.datasets for cell in self.cells_of(dataset)]

    def name(self, reading: Reading) -> str:
        return self.names[reading.folder]

    @property
    def settled_only(self) -> bool:
        """Is there a run whose average radius is a lower bound?"""
        return any(reading.facts.settled_only for reading in self.readings)

    @property
    def unused(self) -> list[tuple[Reading, str]]:
        """The runs that no cell is chosen from, and why."""
        chosen = {r.folder for c in self.chapters for r in c.chosen_from}
        for cell in (cell for cells in self.compositions.values() for cell in cells):
            if cell.kind == "route":
                name = cell.deformation.partition(", ")[0]
                asked = (
                    other
                    for other in self.readings
                    if (other.dataset, other.route) == (cell.dataset, cell.run.route)
                    and name in other.compositions
                )
                chosen |= {reading.folder for reading in counted(asked)}
        return [(r, self._why(r)) for r in self.readings if r.folder not in chosen]

    def _why(self, reading: Reading) -> str:
        if reading.alpha > ALPHA:
            return f"alpha {reading.alpha!r}, the paper's is {ALPHA!r}"
        published = (
            c.name for c in COMPOSITIONS if published_composition(reading.dataset, c) is not None
        )
        if reading.family is None and reading.compositions.keys().isdisjoint(published):
            return reading.unpublished
        return f"{reading.total:,} images, fewer than other runs of its kind"

    @property
    def missing(self) -> list[tuple[str, str]]:
        """(data set, family or composition) of the published tables without any run."""
        have = {(chapter.dataset, chapter.family) for chapter in self.chapters}
        have |= {(cell.dataset, cell.deformation) for cell in self.cells}
        wanted = [
            (dataset, family)
            for dataset in SIZES
            for family in FAMILIES
            if (paper := paper_on(dataset, family)) is not None and paper.table_radii
        ]
        wanted += [
            (dataset, composition.name)
            for dataset in SIZES
            for composition in COMPOSITIONS
            if published_composition(dataset, composition) is not None
        ]
        return [pair for pair in wanted if pair not in have]


def make_board(readings: Sequence[Reading]) -> Board:
    """The runs in a fixed order, whatever the one they are given in; none twice."""
    if not readings:
        raise InputError("the runs", "none", "must be at least one", "give a run's folder")
    places = [reading.folder.resolve() for reading in readings]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise InputError(
                "the runs",
                f"{readings[number].folder} twice",
                "must be different ones",
                "give each once",
            )
    names = dict(zip((r.folder for r in readings), short_names(places), strict=True))
    order = {name: place for place, name in enumerate((*FAMILIES, None))}
    ordered = sorted(
        readings,
        key=lambda r: (
            list(SIZES).index(r.dataset),
            order[r.family],
            r.deformation,
            r.order,
            names[r.folder],
        ),
    )
    return Board(tuple(ordered), names)


def paper_on(dataset: str, family: str) -> Paper | None:
    """What the paper has on a family, with the settings of its tables."""
    return paper_for(dataset, {"name": family, **DCT})
