"""Certified accuracy against radius, ours over the paper's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deformrs.report.against.board import Board, Chapter
from deformrs.report.curves import COLOURS, dress, save_figure
from deformrs.report.people import float_down
from deformrs.report.steps import envelope

_OURS, _THEIRS = "#3a3a3a", "#c0392b"


def draw_chapter(board: Board, chapter: Chapter, title: str, path: Path) -> None:
    """A thin line a run, our best of them thick, the paper's best over its scales dashed."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.add_subplot()
    curves = [r.curve for r in chapter.chosen_from if r.curve is not None]
    best = envelope(curves)
    shares = [count / total for count, total in zip(best.counts, best.totals, strict=True)]
    _stairs(axes, best.ends, shares, "ours, best run", _OURS, width=3.2)
    for place, reading in enumerate(chapter.chosen_from):
        if reading.curve is not None:
            curve = reading.curve
            shares = [count / curve.total for count in curve.counts]
            label = f"{board.name(reading)}: {reading.noise}"
            _stairs(axes, curve.ends, shares, label, COLOURS[place % len(COLOURS)], width=0.8)
    points = [n for radius in chapter.paper.table_radii if (n := chapter.paper.best(radius))]
    axes.plot(
        [float(number.radius or 0) for number in points],
        [float(number.accuracy or 0) / 100 for number in points],
        "o--",
        color=_THEIRS,
        markersize=4.5,
        linewidth=1.6,
        label="paper, best scale",
        clip_on=False,
        zorder=5,
    )
    norm = ", l2 norm" if chapter.block.dim > 1 else ""
    axes.set_title(title, parse_math=False)
    dress(axes, f"radius ({chapter.block.unit.words}{norm})")
    ends = [float(curve.ends[-1]) for curve in curves if curve.ends]
    axes.set_xlim(0, max([*ends, *(float(n.radius or 0) for n in points)], default=1.0) or 1.0)
    _legend(axes)
    with warnings.catch_warnings():
        # Names in scripts that the font lacks are drawn as boxes; the tables have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        save_figure(figure, path)


def _stairs(
    axes: Axes,
    ends: Sequence[Fraction],
    shares: Sequence[float],
    label: str,
    colour: str,
    width: float,
) -> None:
    # A label that begins with an underscore would be left out of the legend.
    axes.step(
        [0.0, *map(float_down, ends)],
        [*shares, 0.0],
        where="post",
        color=colour,
        linewidth=width,
        label=f"\u200b{label}" if label.startswith("_") else label,
        zorder=3 if width > 1 else 4,
    )


def _legend(axes: Axes) -> None:
    """Beside the axes: curves fill most of them."""
    legend = axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
