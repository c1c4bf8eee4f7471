"""The results page README.md, summary.csv and the figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deformrs.report.curves import (
    COLOURS,
    add_steps,
    dress,
    envelope,
    largest_radius,
    save_figure,
)
from deformrs.report.formats import escape_markdown, titled_markdown, to_csv, to_markdown
from deformrs.report.groups import TITLES
from deformrs.rounding import format_down
from deformrs.runs import StoredRun, write_atomically
from paper.cells import Board, Cell, Chapter, Kind, make_board
from paper.numbers import ALPHA, SETTINGS, UNITS
from paper.runs import count_run
from paper.tables import (
    NOT_REQUESTED,
    chapter_table,
    compositions_table,
    headline_table,
    radius_label,
    radius_text,
    runs_table,
    twins_table,
)

PAGE, SUMMARY = "README.md", "summary.csv"
TITLE = "Our results and the paper's"
COLUMNS = (
    *("dataset", "deformation", "unit", "radius", "paper", "ours", "difference"),
    *("scale", "images", "alpha"),
)
_KINDS: dict[Kind, tuple[str, str]] = {
    "table": ("cell of certified accuracy", "cells of certified accuracy"),
    "average": ("average certified radius", "average certified radii"),
    "headline": ("further headline figure", "further headline figures"),
    "composition": ("composition", "compositions"),
}
_INTRODUCTION = (
    "Certified accuracy of our runs, compared with the paper's tables: the share of test images "
    "whose prediction is correct and, with confidence 1 - alpha, provably stays so under every "
    "deformation of at most that size. At each radius, ours is the best of the runs of that family "
    f"over the largest number of images, at an alpha of at most the paper's {ALPHA}; the paper's "
    "is the best of its noise scales. Both are thus chosen with the test images, as is usual in "
    "the literature. A number of the paper that cannot be right is skipped if the paper has "
    "another. Each of our figures is computed from the counts stored with the runs and rounded "
    "down, as is each difference (in percentage points, or in the unit of the radius). `python "
    "results/make.py` reproduces this page, `summary.csv` and the figures."
)
_AVERAGES = (
    "ACR is the average certified radius over all images, 0 if the prediction is wrong or the "
    "classifier abstains. It rewards a constant classifier, which certifies any radius on the "
    "images of its class: its rows compare the largest of ours with the largest of the paper's, "
    "and no other figure here is chosen by it."
)
_BOUND = (
    " For runs that were sampled only until the requested radii were decided it is a lower bound, "
    "since more samples would increase it."
)
_CHOICES = "How the settings were chosen"
_FIGURES = (
    "The accuracies of the figures are spread logarithmically by the share of images that is not "
    "certified, so that 99 and 97 % are as far apart as 67 and 0 %."
)
_UNREQUESTED = (
    " A curve ends with a bar at the largest radius that was requested of its run: what lies "
    "beyond is not 0 but unknown. Between requested radii it is a lower bound."
)
_OURS, _THEIRS = "#3a3a3a", "#c0392b"
_TICKS = (0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
_LEAST_UNCERTIFIED = 1e-3


def write_results(runs: Iterable[StoredRun], out: Path, note: str = "") -> dict[str, Path]:
    """Write README.md, summary.csv and figures/ into `out`; return files by their names.

    Runs are taken one after another, so that an iterator of many needs the memory of one. Any
    order of the runs gives the same files.

    Guarantee: no count, share, curve or radius of ours is above that of the results.
    """
    board = make_board([count_run(run) for run in runs])
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for chapter in board.chapters:
        draw_chapter(chapter, out / chapter.figure)
    write_atomically(out / SUMMARY, to_summary(board))
    # Last, so that the files a page refers to exist before it does.
    write_atomically(out / PAGE, to_page(board, note))
    names = (PAGE, SUMMARY, *(chapter.figure for chapter in board.chapters))
    return {name: out / name for name in names}


def to_summary(board: Board) -> str:
    """Return every cell in CSV: accuracies in per cent, radii as in numbers.csv."""
    return to_csv(COLUMNS, (_summary_row(cell) for cell in board.cells))


def to_page(board: Board, note: str = "") -> str:
    """Return all cells as tables in Markdown, first of all how many of them reach the paper.

    `note` tells in Markdown how the settings were chosen.
    """
    lines = [f"# {TITLE}", "", _INTRODUCTION]
    if note:
        anchor = _CHOICES.lower().replace(" ", "-")
        lines += ["", f"What else was seen of the test images: [{_CHOICES.lower()}](#{anchor})."]
    bound = any(run.average_is_bound for run in board.runs)
    lines += ["", *_verdict(board), "", _AVERAGES + (_BOUND if bound else "")]
    lines += ["", _FIGURES + (_UNREQUESTED if bound else "")] if board.chapters else []
    for dataset in board.datasets:
        lines += ["", f"## {TITLES[dataset]}", "", f"The paper certified {SETTINGS[dataset]}."]
        for chapter in board.chapters:
            if chapter.dataset == dataset:
                lines += titled_markdown(chapter_table(chapter))
                lines += ["", f"![{chapter.heading}: ours over the paper's]({chapter.figure})"]
        for table in (headline_table(board, dataset), compositions_table(board, dataset)):
            lines += titled_markdown(table) if table is not None else []
    lines += ["", "## The runs", "", to_markdown(runs_table(board)).rstrip()]
    twins = twins_table(board)
    lines += titled_markdown(twins) if twins is not None else []
    lines += ["", "## Tables without a run", "", _missing(board)]
    lines += ["", f"## {_CHOICES}", "", note.rstrip()] if note else []
    return "\n".join(lines) + "\n"


def draw_chapter(chapter: Chapter, path: Path) -> None:
    """Draw a thin line per run, the best of them thick with squares, the paper's dashed."""
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.add_subplot()
    drawn = [(run, run.curve) for run in chapter.runs if run.curve is not None]
    best = envelope([curve for _, curve in drawn])
    numbers = [n for radius in chapter.table.table_radii if (n := chapter.table.best(radius))]
    radii = [float(number.radius or 0) for number in numbers]
    accuracies = [float(number.accuracy) / 100 for number in numbers]
    end = max([largest_radius([curve for _, curve in drawn]), *radii])
    add_steps(axes, best, "ours, best run", _OURS, width=2.4, zorder=3)
    for k, (run, curve) in enumerate(drawn):
        label = f"{run.name}: {run.noise}"
        if curve.until is not None and curve.until < end:
            label += f", not requested beyond {radius_text(curve.until, chapter.table.unit)}"
        add_steps(axes, curve, label, COLOURS[k % len(COLOURS)], width=0.8, zorder=4)
    cells = [cell for cell in chapter.cells if cell.kind == "table" and cell.requested]
    axes.plot(
        [float(cell.number.radius or 0) for cell in cells],
        [float(cell.ours) / 100 for cell in cells],
        "s",
        color=_OURS,
        markersize=5,
        label="ours at the paper's radii, best run",
        clip_on=False,
        zorder=5,
    )
    axes.plot(
        radii,
        accuracies,
        "o--",
        color=_THEIRS,
        markersize=4.5,
        linewidth=1.6,
        label="paper, best scale",
        clip_on=False,
        zorder=5,
    )
    norm = ", l2 norm" if chapter.block.dim > 1 else ""
    axes.set_title(chapter.heading, parse_math=False)
    dress(axes, f"radius ({chapter.block.unit.words}{norm})")
    axes.set_xlim(0, end)
    _spread(axes, max([*best.shares, *accuracies], default=0.0))
    # Outside the axes: curves fill most of them.
    for text in figure.legend(loc="outside lower left", fontsize=7, frameon=False).get_texts():
        text.set_parse_math(False)
    save_figure(figure, path)


def _spread(axes: Axes, highest: float) -> None:
    """Space accuracies by the logarithm of the share that is not certified."""
    axes.set_yscale(
        "function",
        functions=(
            lambda share: -np.log10(np.maximum(1 - share, _LEAST_UNCERTIFIED)),
            lambda height: 1 - 10.0**-height,
        ),
    )
    top = 1 - max(0.8 * (1 - highest), _LEAST_UNCERTIFIED)
    ticks = [tick for tick in _TICKS if tick <= top]
    axes.set_ylim(0, top)
    axes.set_yticks(ticks, [f"{100 * tick:g} %" for tick in ticks])
    axes.set_ylabel("certified accuracy (logarithmic in 100 % − accuracy)")


def _summary_row(cell: Cell) -> list[str | int]:
    decimals = cell.decimals + (2 if cell.per == 100 else 0)
    ours, theirs = cell.ours / cell.per, cell.theirs / cell.per
    return [
        *(cell.dataset, cell.deformation, cell.unit, cell.radius),
        f"{float(theirs):.10g}",
        format_down(ours, decimals),
        format_down(ours - theirs, decimals),
        cell.run.scale if cell.ours > 0 else "",
        cell.run.total,
        repr(cell.run.alpha),
    ]


def _verdict(board: Board) -> list[str]:
    """How many cells reach the paper, and which do not."""
    cells = [cell for cell in board.cells if cell.kind in _KINDS]
    parts = []
    for kind, nouns in _KINDS.items():
        own = [cell for cell in cells if cell.kind == kind]
        if own:
            reached = sum(cell.reached for cell in own)
            zeros = sum(cell.ours == cell.theirs == 0 for cell in own)
            note = f" ({zeros} of them 0 against 0)" if zeros else ""
            parts.append(f"{reached} of {len(own)} {nouns[len(own) > 1]}{note}")
    sentences = [f"At least the paper's: {', '.join(parts) or 'nothing is compared'}."]
    below = [cell for cell in cells if not cell.reached]
    if below:
        sentences.append(f"Below it: {len(below)}.")
    elif cells:
        sentences.append("None of these is below it.")
    if board.missing:
        noun = "table of the paper has" if len(board.missing) == 1 else "tables of the paper have"
        sentences.append(f"{len(board.missing)} {noun} no run to compare.")
    listed = [f"- {escape_markdown(_shortfall(cell))}" for cell in below]
    return [f"**{' '.join(sentences)}**", *(["", *listed] if listed else [])]


def _shortfall(cell: Cell) -> str:
    where = f"{TITLES[cell.dataset]}, {cell.deformation.replace('_', ' ')}"
    why = "" if cell.requested else f" ({NOT_REQUESTED})"
    if cell.kind == "composition":
        return f"{where}: {cell.difference} points{why}"
    unit = UNITS[cell.unit].symbol if cell.kind == "average" else " points"
    return f"{where}, {radius_label(cell)}: {cell.difference}{unit}{why}"


def _missing(board: Board) -> str:
    if not board.missing:
        return "There is a run for every table and every composition."
    names = (f"{TITLES[dataset]} {name.replace('_', ' ')}" for dataset, name in board.missing)
    return f"These tables of the paper have no run of ours: {', '.join(names)}."
