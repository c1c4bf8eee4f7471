"""Certified accuracy against radius, drawn."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from deformrs.report.section import Section
from deformrs.report.summary import check_results
from deformrs.report.words import axis_words
from deformrs.runs import Result
from deformrs.space import Block


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Guarantee: the file holds either its old content or the whole new image."""
    partial = path.with_name(path.name + ".partial")
    kind = path.suffix.removeprefix(".")
    # Some formats carry the date and random names unless told not to; equal figures, equal files.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with matplotlib.rc_context({"svg.hashsalt": "deformrs"}):
        figure.savefig(partial, dpi=dpi, format=kind, metadata=metadata)
    partial.replace(path)


COLOURS = (
    *("#1f5fa8", "#d1622b", "#2e8b57", "#8e44ad", "#b8860b", "#c0392b", "#16808c", "#7a5c3e"),
)
_DASHES = ("solid", (0, (6, 2)), (0, (2, 2)))


def draw_curve(results: Sequence[Result], path: Path) -> None:
    """The share of images that are right and certified at each radius, as a step curve."""
    first = check_results(results)
    space = first.space
    block = space.blocks[0]
    factor = block.unit.factor(space.size)
    radii = sorted(result.certificate.radius * factor for result in results if result.correct)
    shares = [(len(radii) - k) / len(results) for k in range(len(radii))]

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.step([0, *radii], [*shares, 0], where="post", color=COLOURS[0], linewidth=2)
    axes.fill_between([0, *radii], [*shares, 0], step="post", color=COLOURS[0], alpha=0.12)
    axes.set_title(f"{len(results)} images, {first.law.describe(space)}, alpha = {first.alpha}")
    dress(axes, f"{block.family.replace('_', ' ')} radius ({block.unit.words})")
    save_figure(figure, path, dpi=150)


def draw_curves(section: Section, block: Block, path: Path) -> None:
    """All runs of a section, the best of them at each radius, and the paper's numbers."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    curves = [entry.curve for entry in section.entries if entry.curve is not None]
    if section.best is not None:
        best = section.best
        shares = [c / n for c, n in zip(best.counts, best.totals, strict=True)]
        _stairs(axes, best.ends, shares, "best of these runs", "0.6", width=5)
    for k, (entry, curve) in enumerate(zip(section.entries, curves, strict=True)):
        colour, dash = COLOURS[k % len(COLOURS)], _DASHES[k // len(COLOURS) % len(_DASHES)]
        shares = [count / curve.total for count in curve.counts]
        label = f"{entry.member.name}: {entry.member.short_noise}"
        _stairs(axes, curve.ends, shares, label, colour, dash)
    largest = max((float(curve.ends[-1]) for curve in curves if curve.ends), default=1.0)
    largest = 1.03 * largest or 1.0
    paper = section.group.paper
    if paper is not None:
        points = [number for radius in paper.radii if (number := paper.best(radius)) is not None]
        xs, ys = [float(n.radius or 0) for n in points], [float(n.accuracy or 0) for n in points]
        shares = [y / 100 for y in ys]
        axes.plot(xs, shares, "D:", color="0.3", markersize=5, label="paper, best scale")
    axes.set_title(section.group.title, parse_math=False)
    dress(axes, axis_words(section.group, block))
    axes.set_xlim(0, largest)
    legend = axes.legend(fontsize=8, loc="lower left")
    for text in legend.get_texts():
        text.set_parse_math(False)
    with warnings.catch_warnings():
        # Names in scripts that the font lacks are drawn as boxes; the tables have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        save_figure(figure, path, dpi=150)


def _stairs(
    axes: Axes,
    ends: Sequence[Fraction],
    shares: Sequence[float],
    label: str,
    colour: str,
    dash: str | tuple[int, tuple[int, int]] = "solid",
    width: float = 2,
) -> None:
    # A label that begins with an underscore would be left out of the legend.
    axes.step(
        [0, *map(float, ends)],
        [*shares, 0],
        where="post",
        color=colour,
        linestyle=dash,
        linewidth=width,
        label=f"\u200b{label}" if label.startswith("_") else label,
        alpha=0.35 if width > 2 else 1,
    )


def dress(axes: Axes, radius: str) -> None:
    """Certified accuracy against a radius of that kind."""
    axes.set_xlabel(radius)
    axes.set_ylabel("certified accuracy")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
