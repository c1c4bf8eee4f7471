"""The tables of the page: cells of a family, the headline figures, compositions."""

from __future__ import annotations

from fractions import Fraction

from deformrs.report.against.board import Board, Chapter, paper_on
from deformrs.report.against.cells import AVERAGE, Compared, best_at
from deformrs.report.against.compositions import COMPOSITIONS
from deformrs.report.against.reading import FAMILIES
from deformrs.report.layout import Cell, Table
from deformrs.report.people import noun, shown_down
from deformrs.report.published import HEADLINE, METHOD, SIZES, Number, Paper, explained
from deformrs.rounding import percent_down

BELOW = "below the paper"
UNASKED = "asked of no run"
NONE = Cell("–")
_UNITS = {"deg": "°", "px": " px", "fraction": " %", "1": ""}


def family_table(board: Board, chapter: Chapter) -> Table:
    """A row for each radius of the paper's table, and one for the average radius."""
    cells = [cell for cell in chapter.cells if cell.kind in ("table", "average")]
    used = [cell.paper for cell in cells]
    for cell in cells:
        used += _passed_over(cell, chapter.paper)
    return Table(
        title=chapter.title,
        align="lrrrl",
        columns=("radius", "paper, best scale", "ours", "difference", "our scale"),
        rows=tuple(_row(board, chapter, cell) for cell in cells),
        notes=(*_images_known(chapter), *explained(used)),
    )


def headline_table(board: Board, dataset: str) -> Table | None:
    """What the paper compares with other methods; None where it has nothing on that data set."""
    rows, used = [], list[Number]()
    chapters = {c.family: c for c in board.chapters if c.dataset == dataset}
    for family in FAMILIES:
        paper = paper_on(dataset, family)
        for radius in () if paper is None else paper.headline_radii:
            assert paper is not None
            rows.append(_headline(family, radius, paper, chapters.get(family)))
            used += [*paper.at(radius), *paper.others(radius)]
    if not rows:
        return None
    return Table(
        title="The headline table",
        align="lrrrl",
        columns=("certified for", "paper, best", "ours", "difference", "other methods"),
        rows=tuple(rows),
        notes=tuple(explained(n for n in used if n.table == HEADLINE)),
    )


def compositions_table(board: Board, dataset: str) -> Table | None:
    """Both routes to each composition; None where no run can be asked."""
    rows = []
    for cell in board.compositions[dataset]:
        if cell.kind != "route":
            continue
        name, _, route = cell.deformation.partition(", ")
        published = next(c.published for c in COMPOSITIONS if c.name == name)
        others = _others(dataset, published)
        rows.append(
            (
                Cell(published, cell.radius),
                Cell(route, f"{board.name(cell.run)}: {cell.run.noise}"),
                Cell(cell.paper.shown),
                ours(cell),
                difference(cell),
                others,
            )
        )
    if not rows:
        return None
    return Table(
        title="Compositions",
        align="llrrrl",
        columns=("certified for", "route", "paper", "ours", "difference", "other methods"),
        rows=tuple(rows),
        notes=(
            "The affine route asks whether the certificate of an affine run covers every map of "
            "the region; the composed one asks a run whose noise is drawn for each of the "
            "families. The better of the two is the one that counts.",
        ),
    )


def ours(cell: Compared) -> Cell:
    """Our share with its count."""
    share = percent_down(cell.count or 0, cell.run.total, 2)
    return Cell(f"{share} %", f"{cell.count:,}/{cell.run.total:,}")


def difference(cell: Compared) -> Cell:
    """With a word where the paper is not reached."""
    words = (BELOW,) if cell.asked else (BELOW, UNASKED)
    return Cell(cell.difference, "" if cell.reached else ", ".join(words))


def shown_radius(cell: Compared, chapter: Chapter) -> str:
    """A radius for people: 30°, 20 %, 5 px, 0.1."""
    return AVERAGE if cell.radius == AVERAGE else _shown(cell.paper.radius, chapter.paper.unit)


def _row(board: Board, chapter: Chapter, cell: Compared) -> tuple[Cell, ...]:
    unit = chapter.block.unit
    if cell.kind == "average":
        their = Cell(shown_down(cell.theirs, unit) + cell.paper.dagger, _where(cell))
        our = Cell(shown_down(cell.ours, unit))
    else:
        their, our = Cell(cell.paper.shown, _where(cell)), ours(cell)
    return (
        Cell(shown_radius(cell, chapter)),
        their,
        our,
        difference(cell),
        Cell(cell.run.scale_shown, board.name(cell.run)) if cell.given else NONE,
    )


def _headline(
    family: str, radius: Fraction, paper: Paper, chapter: Chapter | None
) -> tuple[Cell, ...]:
    best = paper.best(radius)
    others = [f"{number.method} {number.shown}" for number in paper.others(radius)]
    question = Cell(f"{noun(family)} up to {_shown(radius, paper.unit)}")
    theirs = NONE if best is None else Cell(best.shown)
    listed = Cell("; ".join(others) or "–")
    if chapter is None:
        return question, theirs, Cell("no run"), NONE, listed
    run, count = best_at(chapter.chosen_from, radius)
    share = Cell(f"{percent_down(count, run.total, 2)} %", f"{count:,}/{run.total:,}")
    cell = next((c for c in chapter.cells if c.paper is best and c.kind != "average"), None)
    return question, theirs, share, NONE if cell is None else difference(cell), listed


def _others(dataset: str, region: str) -> Cell:
    paper = paper_on(dataset, "affine")
    numbers = [] if paper is None else [n for n in paper.of_region(region) if n.method != METHOD]
    return Cell("; ".join(f"{number.method} {number.shown}" for number in numbers) or "–")


def _where(cell: Compared) -> str:
    """The scale of the paper's number, where it is one of its table and not nothing."""
    shown = cell.paper.scale_shown
    return f"scale {shown}" if shown and cell.theirs > 0 else ""


def _passed_over(cell: Compared, paper: Paper) -> list[Number]:
    """Numbers that would be better than the one compared with, were they right."""
    if cell.kind == "average":
        rivals = [n for n in paper.numbers if n.average is not None]
        return [n for n in rivals if n.misprint and (n.average or 0) > cell.theirs]
    rivals = paper.at(cell.paper.radius or Fraction(0))
    return [n for n in rivals if n.misprint and (n.accuracy or 0) > cell.theirs]


def _images_known(chapter: Chapter) -> list[str]:
    """Where the images are not those of the paper."""
    notes, run = [], chapter.chosen_from[0]
    whole = run.facts.images
    if whole is not None and whole != run.total:
        notes.append(f"Chosen from runs over {run.total:,} of the {whole:,} test images.")
    theirs = SIZES[chapter.dataset]
    if chapter.paper.unit == "px" and any(r.sizes != (theirs,) for r in chapter.chosen_from):
        notes.append(
            f"The paper's images have {theirs[0]} x {theirs[1]} pixels, ours have not: a pixel "
            "is not the same length on both."
        )
    return notes


def _shown(radius: Fraction | None, unit: str) -> str:
    return f"{float(radius or 0):.10g}{_UNITS[unit]}"
