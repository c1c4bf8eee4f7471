"""Writes the page, the CSV file and the figures."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from deformrs.errors import InputError
from deformrs.report.against.board import Board, make_board
from deformrs.report.against.cells import Compared
from deformrs.report.against.figure import draw_chapter
from deformrs.report.against.guard import MARKER, check_replaceable
from deformrs.report.against.page import FIGURES, figure_name, heading, to_page
from deformrs.report.against.reading import read
from deformrs.report.csvs import to_csv
from deformrs.rounding import format_down
from deformrs.runs import StoredRun, write_atomically

TITLE = "Our results beside the paper's"
PAGE, SUMMARY = "README.md", "summary.csv"
COLUMNS = (
    *("dataset", "deformation", "unit", "radius", "paper", "ours", "difference"),
    *("scale", "images", "alpha"),
)


def write_against_paper(
    runs: Iterable[StoredRun],
    out: Path,
    *,
    title: str | None = None,
    note: str = "",
) -> dict[str, Path]:
    """Write README.md, summary.csv and figures/ into `out`; files by their names there.

    Runs are taken one after another, so that an iterator of many needs the memory of one. Each is
    on test images that the paper has numbers for, and any order of them gives the same files.
    Files of those two names that this function did not write are an error, before a run is taken.

    Guarantee: no count, share, curve or radius of ours is above that of the results.
    """
    if out.exists() and not out.is_dir():  # before the runs are counted, which takes its time
        raise InputError("the folder for the page", out, "must not be a file", "choose another")
    check_replaceable(out / PAGE, MARKER)
    check_replaceable(out / SUMMARY, ",".join(COLUMNS))
    board = make_board([read(run) for run in runs])
    (out / FIGURES).mkdir(parents=True, exist_ok=True)
    figures = {}
    for chapter in board.chapters:
        name = figure_name(chapter)
        figures[name] = out / name
        draw_chapter(board, chapter, heading(chapter), out / name)
    _write(out / SUMMARY, to_summary(board))
    # Last, so that whatever the page speaks of is there when it is.
    _write(out / PAGE, to_page(board, title or TITLE, note))
    return {PAGE: out / PAGE, SUMMARY: out / SUMMARY} | figures


def to_summary(board: Board) -> str:
    """Every cell as plain numbers: accuracies in per cent, radii as the paper's file has them."""
    return to_csv(COLUMNS, (_row(cell) for cell in board.cells))


def _row(cell: Compared) -> list[str | int]:
    decimals = cell.decimals + (2 if cell.per == 100 else 0)
    ours, theirs = cell.ours / cell.per, cell.theirs / cell.per
    return [
        cell.dataset,
        cell.deformation,
        cell.unit,
        cell.radius,
        _plain(theirs),
        format_down(ours, decimals),
        format_down(ours - theirs, decimals),
        cell.run.scale if cell.given else "",
        cell.run.total,
        repr(cell.run.alpha),
    ]


def _plain(published: Fraction) -> str:
    return f"{float(published):.10g}"


def _write(path: Path, text: str) -> None:
    """Names of files may hold bytes that are no text; they are shown as question marks."""
    write_atomically(path, text.encode("utf-8", "replace").decode("utf-8"))
