"""Certified accuracy against radius."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from deformrs.report.figures import save_figure
from deformrs.report.tables import check_results
from deformrs.runs import Result


def draw_curve(results: Sequence[Result], path: Path) -> None:
    """The share of pictures that are right and certified at each radius, as a step curve."""
    first = check_results(results)
    space = first.space
    block = space.blocks[0]
    factor = block.unit.factor(space.size)
    radii = sorted(result.certificate.radius * factor for result in results if result.correct)
    shares = [(len(radii) - k) / len(results) for k in range(len(radii))]

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.step([0, *radii], [*shares, 0], where="post", color="#1f5fa8", linewidth=2)
    axes.fill_between([0, *radii], [*shares, 0], step="post", color="#1f5fa8", alpha=0.12)
    axes.set(
        xlabel=f"{block.family.replace('_', ' ')} radius ({block.unit.words})",
        ylabel="certified accuracy",
        ylim=(0, 1.02),
        title=f"{len(results)} pictures, {first.law.describe(space)}, alpha = {first.alpha}",
    )
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path, dpi=150)
