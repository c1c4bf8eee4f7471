"""The tables of a section: certified accuracy, the runs, classes and regions."""

from __future__ import annotations

from fractions import Fraction

from deformrs.config import ConfigValue
from deformrs.report.groups import Group
from deformrs.report.layout import Cell, Table
from deformrs.report.people import noun, shown_down
from deformrs.report.section import Entry, Section
from deformrs.report.words import (
    BEST,
    average_words,
    chosen_words,
    share,
    spread,
    stopping_words,
    time_words,
)
from deformrs.rounding import percent_up

FEW_CLASSES = 30
NONE = Cell("–")
UNASKED = Cell("–", "not asked")


def accuracy_table(section: Section) -> Table | None:
    """Certified accuracy at the radii, a row a run; None for compositions."""
    if not section.radii:
        return None
    rows = []
    for entry in section.entries:
        counts = [
            _counted(count, entry.summary.total) if radius.settled_by(entry.member.run) else UNASKED
            for radius, count in zip(section.radii, entry.summary.certified, strict=True)
        ]
        average = Cell(
            averages_words(entry.summary.averages, section.group),
            average_words(entry.member.run.config),
        )
        rows.append((Cell(entry.member.name), Cell(entry.member.short_noise), *counts, average))
    notes = []
    if section.best is not None:
        rows.append((Cell("best of these runs"), NONE, *_best_cells(section), NONE))
        notes.append(BEST)
        if not section.same_images:
            notes.append("These runs did not certify the same images: compare them with care.")
    return Table(
        title=f"Certified accuracy: {section.group.title}",
        align="ll" + "r" * (len(section.radii) + 1),
        columns=("run", "noise", *(r.shown for r in section.radii), "average radius"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def runs_table(section: Section) -> Table:
    """How each run was made and what else it counted, a column a run."""
    columns = [_facts(entry, section.group) for entry in section.entries]
    return Table(
        title=f"The runs: {section.group.title}",
        align="l" * (len(columns) + 1),
        columns=("", *(entry.member.name for entry in section.entries)),
        rows=tuple((Cell(name), *(facts[name] for facts in columns)) for name in columns[0]),
        notes=(
            "Average certified radius: the mean over all images, 0 where the answer is wrong or "
            "abstains.",
        ),
    )


def regions_table(section: Section) -> Table | None:
    """Certified accuracy on whole regions; None where none was asked."""
    answers: dict[tuple[str, Cell], list[str]] = {}
    for entry in section.entries:
        for answer in entry.regions:
            cell = (
                Cell("cannot be asked of this run", answer.reason)
                if answer.count is None
                else _counted(answer.count, answer.total)
            )
            answers.setdefault((answer.region, cell), []).append(entry.member.name)
    if not answers:
        return None
    return Table(
        title=f"Regions: {section.group.title}",
        align="llr",
        columns=("every transformation of", "run", "certified accuracy"),
        rows=tuple(
            (Cell(region), Cell(", ".join(runs)), cell) for (region, cell), runs in answers.items()
        ),
        notes=(
            "An image counts if its answer is right and provably stays so under every "
            "transformation of the region, in the order named.",
        ),
    )


def classes_tables(section: Section) -> list[Table]:
    """A table a run, where the classes are few enough to be read; all are in the CSV."""
    tables = []
    for entry in section.entries:
        if len(entry.classes) > FEW_CLASSES:
            continue
        rows = [
            (
                Cell(entry.member.class_name(label)),
                Cell(f"{summary.total:,}"),
                NONE if summary.plain is None else _counted(summary.plain, summary.total),
                _counted(summary.right, summary.total),
                *(_counted(count, summary.total) for count in summary.certified),
                Cell(averages_words(summary.averages, section.group)),
            )
            for label, summary in entry.classes.items()
        ]
        tables.append(
            Table(
                title=f"By class: {entry.member.name}",
                align="l" + "r" * (4 + len(section.radii)),
                columns=(
                    *("class", "pictures", "plain right", "smoothed right"),
                    *(radius.shown for radius in section.radii),
                    "average radius",
                ),
                rows=tuple(rows),
            )
        )
    return tables


def averages_words(averages: tuple[Fraction, ...], group: Group) -> str:
    """Average radii in words, one a block."""
    shown = [
        shown_down(average, block.unit)
        for average, block in zip(averages, group.blocks, strict=True)
    ]
    if len(shown) == 1:
        return shown[0]
    families = [noun(block.family) for block in group.blocks]
    return ", ".join(f"{f} {s}" for f, s in zip(families, shown, strict=True))


def _facts(entry: Entry, group: Group) -> dict[str, Cell]:
    time, config = time_words(entry.member), entry.member.run.config
    summary, first, results = entry.summary, entry.member.first, entry.member.results
    padding = config.get("padding")
    plain = NONE if summary.plain is None else _counted(summary.plain, summary.total)
    return {
        "model": Cell(entry.model),
        "pictures": Cell(f"{summary.total:,}", chosen_words(entry.member)),
        "noise": Cell(entry.member.short_noise),
        "outside the image": NONE if padding is None else Cell(str(padding)),
        "smoothed classifier right": _counted(summary.right, summary.total),
        "plain classifier right": plain,
        "abstained": Cell(
            f"{percent_up(summary.abstained, summary.total)} %",
            f"{summary.abstained:,}/{summary.total:,}",
        ),
        "average certified radius": Cell(
            averages_words(summary.averages, group), average_words(config)
        ),
        "samples that select (n0)": Cell(spread([r.certificate.counts.n0 for r in results])),
        "samples that estimate (n)": Cell(
            spread([r.certificate.counts.n for r in results]), stopping_words(config)
        ),
        "alpha, for each image": _anew(f"{first.alpha:g}", config["alpha"], first.alpha),
        "bound": _anew(first.method.replace("_", "-"), config["method"], first.method),
        "time": NONE if time is None else Cell(*time),
    }


def _anew(shown: str, made_with: ConfigValue, now: float | str) -> Cell:
    return Cell(shown, "" if made_with == now else f"certified anew; the run asked {made_with}")


def _best_cells(section: Section) -> list[Cell]:
    cells = []
    for place in range(len(section.radii)):
        entry = section.best_at(place)
        count = entry.summary.certified[place]
        counted = f"{count:,}/{entry.summary.total:,}"
        detail = f"{counted}, {entry.member.name}" if count else counted
        cells.append(Cell(share(count, entry.summary.total), detail))
    return cells


def _counted(count: int, total: int) -> Cell:
    return Cell(share(count, total), f"{count:,}/{total:,}")
