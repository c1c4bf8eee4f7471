"""Certified accuracy against radius: step curves that are nowhere above the truth, and figures."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from itertools import accumulate
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from deformrs.report.radii import float_down, radius_of
from deformrs.rounding import format_down
from deformrs.runs import Result, write_atomically
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

    @property
    def lowest(self) -> float:
        """The certified accuracy at the end of the curve, 0 unless it ends at `until`."""
        return 0.0 if self.until is None else (self.at(self.until) or 0) / self.total

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
    fill: bool = False,
) -> None:
    """Add a step curve to the axes."""
    xs, ys = _corners(curve)
    if fill:
        axes.fill_between(xs, ys, step="post", color=colour, alpha=0.12)
    axes.step(
        xs,
        ys,
        where="post",
        color=colour,
        linestyle=dash,
        linewidth=width,
        alpha=alpha,
        zorder=zorder,
        label=visible(label),
    )
    if curve.until is not None:  # the curve ends here, it does not fall
        axes.plot(xs[-1:], ys[-1:], "|", color=colour, markersize=9, alpha=alpha, zorder=zorder)


def line_style(k: int) -> tuple[str, Dash]:
    """Return colour and dashes of the curve with that number."""
    return COLOURS[k % len(COLOURS)], _DASHES[k // len(COLOURS) % len(_DASHES)]


def axis_start(lowest: float) -> float:
    """Return where an axis of accuracies may start that shows none below `lowest`.

    >>> axis_start(0.93), axis_start(0.3)
    (0.9, 0.0)
    """
    starts = (0.99, 0.98, 0.95, 0.9, 0.8, 0.5)
    return next((start for start in starts if start + (1 - start) / 10 <= lowest), 0.0)


def dress(axes: Axes, radius: str, lowest: float = 0.0) -> None:
    """Label and scale axes of certified accuracy against `radius`.

    Where every accuracy is at least `lowest`, the axis may start above 0, and says so.
    """
    start = axis_start(lowest)
    axes.set_xlabel(radius)
    axes.set_ylabel("certified accuracy" + (f" (from {100 * start:g} %)" if start else ""))
    axes.set_ylim(start, 1 + 0.02 * (1 - start))
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    if start:  # the usual sign of a broken axis
        for y in (0.012, 0.032):
            xs, ys = [-0.009, 0.009], [y - 0.012, y + 0.012]
            axes.plot(xs, ys, "k", linewidth=1, transform=axes.transAxes, clip_on=False)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a figure to a file; equal figures give equal bytes.

    Guarantee: the file holds either its old content or the whole new image.
    """
    content = BytesIO()
    kind = path.suffix.removeprefix(".")
    # Some formats carry the date and random names unless told not to.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with matplotlib.rc_context({"svg.hashsalt": "deformrs"}), warnings.catch_warnings():
        # Names in scripts that the font lacks are drawn as boxes; the tables have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(content, dpi=dpi, format=kind, metadata=metadata)
    write_atomically(path, content.getvalue())


def _corners(curve: Curve | Envelope) -> tuple[list[float], list[float]]:
    """Return the corners of a step curve, which falls to 0 at its end unless it stops there."""
    xs, ys = [0.0, *map(float_down, curve.ends)], [*curve.shares, 0.0]
    if curve.until is not None:
        xs.append(float_down(curve.until))
        ys[-1:] = [ys[-2]] * 2 if curve.ends and curve.ends[-1] == curve.until else [0.0] * 2
    return xs, ys


def visible(label: str) -> str:
    """Return a label that a legend shows."""
    # matplotlib leaves labels that begin with an underscore out of the legend.
    return f"\u200b{label}" if label.startswith("_") else label
