"""Certified accuracy against radius: step curves that are nowhere above the truth, and figures."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from deformrs.report.radii import float_down, radius_of
from deformrs.report.summary import check_results
from deformrs.rounding import format_down
from deformrs.runs import Result
from deformrs.space import Block

MAX_STEPS = 600
"""Steps of one curve on the page: more than a screen has pixels to show."""
COLOURS = (
    *("#1f5fa8", "#d1622b", "#2e8b57", "#8e44ad", "#b8860b", "#c0392b", "#16808c", "#7a5c3e"),
)
_DASHES = ("solid", (0, (6, 2)), (0, (2, 2)))
Dash = str | tuple[int, tuple[int, int]]
Points = Sequence[tuple[Fraction, Fraction]]
"""Radii in the displayed unit, and accuracies in per cent."""


@dataclass(frozen=True)
class Curve:
    """Certified accuracy of a run as a step function.

    `counts[k]` of `total` images are correct and certified at every radius up to `ends[k]`, in
    the displayed unit. `ends` rises, `counts` falls; beyond the last end the count is 0, up to the
    radius `until`. Beyond that nothing is known, because no larger radius was requested of the
    run; None: there is no such limit.
    """

    ends: tuple[Fraction, ...]
    counts: tuple[int, ...]
    total: int
    until: Fraction | None = None

    @property
    def shares(self) -> list[float]:
        """The certified accuracy of each step."""
        return [count / self.total for count in self.counts]

    def at(self, radius: Fraction) -> int | None:
        """Return how many images are correct and certified at a radius, None beyond `until`.

        Guarantee: never more than there are.
        """
        if self.until is not None and radius > self.until:
            return None
        step = bisect_left(self.ends, radius)
        return self.counts[step] if step < len(self.ends) else 0

    def thinned(self, keep: Sequence[Fraction] = (), most: int = MAX_STEPS) -> Curve:
        """Return the curve with about `most` steps.

        Guarantee: nowhere above this curve, and equal to it at the radii of `keep`.
        """
        # Where a step is left out, the curve falls to the next one sooner.
        stride = -(-len(self.ends) // most) or 1
        steps = {*range(0, len(self.ends), stride), len(self.ends) - 1}
        steps |= {bisect_left(self.ends, radius) for radius in keep}
        kept = [step for step in sorted(steps) if 0 <= step < len(self.ends)]
        return Curve(
            tuple(self.ends[step] for step in kept),
            tuple(self.counts[step] for step in kept),
            self.total,
            self.until,
        )


@dataclass(frozen=True)
class Envelope:
    """The best of several runs at each radius: `counts[k]` of `totals[k]`, by run `runs[k]`.

    Beyond `until` no run knows anything; None: there is no such limit.
    """

    ends: tuple[Fraction, ...]
    counts: tuple[int, ...]
    totals: tuple[int, ...]
    runs: tuple[int, ...]
    until: Fraction | None = None

    @property
    def shares(self) -> list[float]:
        """The certified accuracy of each step."""
        return [count / total for count, total in zip(self.counts, self.totals, strict=True)]


def curve_of(results: Sequence[Result], block: Block, until: Fraction | None = None) -> Curve:
    """Return the curve of a run, its radii rounded down a little finer than they are displayed.

    `until` is the largest radius for which the images had their samples, in the displayed unit.
    """
    fine = block.unit.decimals + 2
    by_end: dict[Fraction, int] = {}
    for result in results:
        if result.correct:
            end = Fraction(format_down(radius_of(result), fine))
            end = end if until is None else min(end, until)
            by_end[end] = by_end.get(end, 0) + 1
    ends = sorted(by_end)
    counts = list(accumulate(by_end[end] for end in reversed(ends)))[::-1]
    return Curve(tuple(ends), tuple(counts), len(results), until)


def largest_radius(curves: Iterable[Curve]) -> float:
    """Return the largest radius that any of the curves reaches, 1 where that is 0."""
    reached = [curve.until or max(curve.ends, default=0) for curve in curves]
    return float(max(reached, default=0)) or 1.0


def envelope(curves: Sequence[Curve]) -> Envelope:
    """Return the best of the curves at each radius, of those that reach it; the first of equals."""
    limits = [curve.until for curve in curves if curve.until is not None]
    steps: list[tuple[Fraction, int, int, int]] = []
    for end in sorted({*limits, *(end for curve in curves for end in curve.ends)}):
        held = [curve.at(end) or 0 for curve in curves]
        shares = [Fraction(n, curve.total) for n, curve in zip(held, curves, strict=True)]
        run = shares.index(max(shares))
        if held[run] == 0:
            break
        step = (end, held[run], curves[run].total, run)
        # A step that continues the one before only moves its end.
        if steps and steps[-1][1:] == step[1:]:
            steps.pop()
        steps.append(step)
    ends, counts, totals, runs = tuple(zip(*steps, strict=True)) or ((), (), (), ())
    until = max(limits) if len(limits) == len(curves) else None
    return Envelope(ends, counts, totals, runs, until)


def draw_curve(results: Sequence[Result], path: Path) -> None:
    """Draw the certified accuracy of one run against the radius."""
    first = check_results(results)
    block = first.space.blocks[0]
    curve = curve_of(results, block)
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    add_steps(axes, curve, "", COLOURS[0])
    xs, ys = _corners(curve)
    axes.fill_between(xs, ys, step="post", color=COLOURS[0], alpha=0.12)
    axes.set_title(
        f"{len(results)} images, {first.law.describe(first.space)}, alpha = {first.alpha}"
    )
    dress(axes, f"{block.family.replace('_', ' ')} radius ({block.unit.words})")
    save_figure(figure, path)


def draw_curves(
    curves: Mapping[str, Curve],
    path: Path,
    *,
    best: Envelope | None,
    references: Mapping[str, Points],
    title: str,
    radius: str,
) -> None:
    """Draw the curves of several runs by their labels, the best of them, and reference points.

    `radius` labels the horizontal axis.
    """
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    if best is not None:
        add_steps(axes, best, "best of these runs", "0.6", width=5, alpha=0.35)
    for k, (label, curve) in enumerate(curves.items()):
        dash = _DASHES[k // len(COLOURS) % len(_DASHES)]
        add_steps(axes, curve, label, COLOURS[k % len(COLOURS)], dash)
    for k, (label, points) in enumerate(references.items()):
        xs, ys = [float(x) for x, _ in points], [float(y) / 100 for _, y in points]
        grey = str(min(0.3 + 0.2 * k, 0.7))
        axes.plot(xs, ys, "D:", color=grey, markersize=5, label=_visible(label))
    axes.set_title(title, parse_math=False)
    dress(axes, radius)
    axes.set_xlim(0, 1.03 * largest_radius(curves.values()))
    legend = axes.legend(fontsize=8, loc="lower left")
    for text in legend.get_texts():
        text.set_parse_math(False)
    save_figure(figure, path)


def add_steps(
    axes: Axes,
    curve: Curve | Envelope,
    label: str,
    colour: str,
    dash: Dash = "solid",
    *,
    width: float = 2,
    alpha: float = 1,
    zorder: float = 2,
) -> None:
    """Add a step curve to the axes."""
    xs, ys = _corners(curve)
    axes.step(
        xs,
        ys,
        where="post",
        color=colour,
        linestyle=dash,
        linewidth=width,
        alpha=alpha,
        zorder=zorder,
        label=_visible(label),
    )


def dress(axes: Axes, radius: str) -> None:
    """Label and scale axes of certified accuracy against `radius`."""
    axes.set_xlabel(radius)
    axes.set_ylabel("certified accuracy")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a figure to a file; equal figures give equal bytes.

    Guarantee: the file holds either its old content or the whole new image.
    """
    partial = path.with_name(path.name + ".partial")
    kind = path.suffix.removeprefix(".")
    # Some formats carry the date and random names unless told not to.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with matplotlib.rc_context({"svg.hashsalt": "deformrs"}), warnings.catch_warnings():
        # Names in scripts that the font lacks are drawn as boxes; the tables have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(partial, dpi=dpi, format=kind, metadata=metadata)
    partial.replace(path)


def _corners(curve: Curve | Envelope) -> tuple[list[float], list[float]]:
    """Return the corners of a step curve, which falls to 0 at its end unless it stops there."""
    xs, ys = [0.0, *map(float_down, curve.ends)], [*curve.shares, 0.0]
    if curve.until is not None:
        xs.append(float_down(curve.until))
        ys[-1:] = [ys[-2]] * 2 if curve.ends and curve.ends[-1] == curve.until else [0.0] * 2
    return xs, ys


def _visible(label: str) -> str:
    # matplotlib leaves labels that begin with an underscore out of the legend.
    return f"\u200b{label}" if label.startswith("_") else label
