"""The page for people, in Markdown."""

from __future__ import annotations

from deformrs.report.against.agreement import agreement_table
from deformrs.report.against.board import Board, Chapter
from deformrs.report.against.cells import Compared, Kind
from deformrs.report.against.guard import MARKER
from deformrs.report.against.runs_table import runs_table
from deformrs.report.against.tables import (
    UNASKED,
    compositions_table,
    family_table,
    headline_table,
    shown_radius,
)
from deformrs.report.layout import Table, escape_markdown, to_markdown
from deformrs.report.published import ALPHA, SETTINGS, TITLES

FIGURES = "figures"
_KINDS: dict[Kind, tuple[str, str]] = {
    "table": ("cell of certified accuracy", "cells of certified accuracy"),
    "average": ("average certified radius", "average certified radii"),
    "headline": ("further headline figure", "further headline figures"),
    "composition": ("composition", "compositions"),
}
_INTRODUCTION = (
    "Certified accuracy of our runs beside the paper's tables: the share of test images whose "
    "answer is right and provably stays so under every deformation of at most that size.",
    "Ours is at each radius the best of the runs of that family over the largest number of "
    f"images, at an alpha of at most the paper's {ALPHA}; the paper's is the best of its noise "
    "scales. Both are thus chosen with the test images, as the literature does. Numbers of the "
    "paper that cannot be right are passed over where it has another.",
    "Every figure of ours is computed from the counts stored with the runs and rounded down, a "
    "difference (in percentage points, or in the unit of the radius) likewise. "
    "`deformrs report RUNS --paper` writes this page, `summary.csv` and the figures anew.",
)
_AVERAGES = (
    "ACR is the average certified radius over all images, 0 where the answer is wrong or abstains"
)
_SETTLED = (
    "; of runs that were sampled only until the radii asked for were settled it is a lower bound, "
    "since more samples would give more"
)


def to_page(board: Board, title: str, note: str) -> str:
    """All cells in tables, first of all how many of them reach the paper."""
    lines = [MARKER, "", f"# {escape_markdown(title)}", "", " ".join(_INTRODUCTION)]
    lines += ["", escape_markdown(note)] if note else []
    lines += ["", *_summary(board), "", _AVERAGES + (_SETTLED if board.settled_only else "") + "."]
    for dataset in board.datasets:
        lines += ["", f"## {TITLES[dataset]}", "", f"The paper certified {SETTINGS[dataset]}."]
        for chapter in board.chapters:
            if chapter.dataset == dataset:
                lines += ["", f"### {heading(chapter)}", ""]
                lines += [to_markdown(family_table(board, chapter)).rstrip(), ""]
                lines += [f"![{heading(chapter)}: ours over the paper's]({figure_name(chapter)})"]
        for table in (headline_table(board, dataset), compositions_table(board, dataset)):
            lines += _titled(table, f"{TITLES[dataset]}: ") if table is not None else []
    lines += ["", "## The runs", "", to_markdown(runs_table(board)).rstrip()]
    agreement = agreement_table(board)
    lines += _titled(agreement) if agreement is not None else []
    lines += ["", "## Tables without a run", "", _missing(board)]
    return "\n".join(lines) + "\n"


def figure_name(chapter: Chapter) -> str:
    """Where its figure lies beside the page."""
    return f"{FIGURES}/{chapter.dataset}-{chapter.family}.svg"


def heading(chapter: Chapter) -> str:
    """The family and the data set, for people."""
    return f"{chapter.title[0].upper()}{chapter.title[1:]} on {TITLES[chapter.dataset]}"


def _titled(table: Table, before: str = "") -> list[str]:
    title = before + table.title[0].lower() + table.title[1:] if before else table.title
    return ["", f"### {escape_markdown(title)}", "", to_markdown(table).rstrip()]


def _summary(board: Board) -> list[str]:
    """How many cells reach the paper, and which do not."""
    cells = [cell for cell in board.cells if cell.kind in _KINDS]
    parts = []
    for kind, (one, several) in _KINDS.items():
        own = [cell for cell in cells if cell.kind == kind]
        if own:
            reached = sum(cell.reached for cell in own)
            nothing = sum(cell.ours == cell.theirs == 0 for cell in own)
            parts.append(
                f"{reached} of {len(own)} {one if len(own) == 1 else several}"
                + (f" ({nothing} of them 0 against 0)" if nothing else "")
            )
    said = [f"At least the paper's: {', '.join(parts) or 'nothing is compared'}."]
    below = [cell for cell in cells if not cell.reached]
    if below:
        said.append(f"Below it: {len(below)}.")
    elif cells:
        said.append("None of these is below it.")
    if board.missing:
        one, several = "table of the paper has", "tables of the paper have"
        tables = f"{len(board.missing)} {one if len(board.missing) == 1 else several}"
        said.append(f"{tables} no run to compare.")
    listed = [f"- {escape_markdown(_spoken(board, cell))}" for cell in below]
    return [f"**{' '.join(said)}**", *(["", *listed] if listed else [])]


def _spoken(board: Board, cell: Compared) -> str:
    where = f"{TITLES[cell.dataset]}, {cell.deformation.replace('_', ' ')}"
    unasked = "" if cell.asked else f" ({UNASKED})"
    if cell.kind == "composition":
        return f"{where}: {cell.difference} points{unasked}"
    chapter = next(
        c for c in board.chapters if (c.dataset, c.family) == (cell.dataset, cell.deformation)
    )
    unit = {"deg": "°", "px": " px", "fraction": " %"}.get(cell.unit, "")
    points = unit if cell.kind == "average" else " points"
    return f"{where}, {shown_radius(cell, chapter)}: {cell.difference}{points}{unasked}"


def _missing(board: Board) -> str:
    if not board.missing:
        return "There is a run for every table and every composition."
    listed = ", ".join(
        f"{TITLES[dataset]} {name.replace('_', ' ')}" for dataset, name in board.missing
    )
    return f"The paper has these, and there is no run of ours beside them: {listed}."
