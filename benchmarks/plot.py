"""Draw the cost curves of a record, each with the line fitted to it.

python benchmarks/plot.py results/benchmarks/h200.json      # h200.svg next to it
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deformrs.errors import InputError
from deformrs.report.curves import COLOURS, save_figure
from record import read_record


@dataclass(frozen=True)
class Panel:
    """A curve: its two fields, its labels, and what y is divided by."""

    x: str
    y: str
    title: str
    x_label: str
    y_label: str
    unit: float = 1.0


PANELS = {
    "time_against_n": Panel("n", "seconds", "Time against samples", "samples n", "seconds"),
    "time_against_side": Panel(
        "side", "seconds", "Time against image side", "side, pixels", "seconds"
    ),
    "time_against_images": Panel(
        "pictures", "seconds", "Time against images, one radius decided", "images", "seconds"
    ),
    "memory_against_n": Panel(
        "n", "peak_memory_bytes", "Memory against samples", "samples n", "peak, GB", 1e9
    ),
}


@dataclass(frozen=True)
class Line:
    """y = intercept + slope * x; `deviation` is the largest |y - line| / |y| of the points."""

    slope: float
    intercept: float
    deviation: float

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Return the least-squares line through at least two points."""
    x, y = np.asarray(xs, dtype=np.float64), np.asarray(ys, dtype=np.float64)
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred * centred).sum())
    intercept = float(y.mean() - slope * x.mean())
    deviation = np.abs(y - intercept - slope * x) / np.maximum(np.abs(y), 1e-300)
    return Line(slope, intercept, float(deviation.max()))


def draw(record: Path, out: Path) -> None:
    """Draw the four curves of a record."""
    content = read_record(record)
    machine, cost = content["machine"], content["cost"]
    assert isinstance(machine, dict)
    assert isinstance(cost, dict)
    figure = Figure(figsize=(9.6, 6.8), layout="constrained")
    for place, (name, panel) in enumerate(PANELS.items()):
        points = [
            (float(point[panel.x]), float(point[panel.y]))  # type: ignore[arg-type, call-overload, index]
            for point in cost.get(name, [])  # type: ignore[union-attr]
        ]
        if len({x for x, _ in points}) < 2:
            raise InputError(
                f"{name} in {record}",
                f"{len(points)} points",
                "must have at least two to be drawn",
                "measure it with benchmarks/cost.py",
            )
        _draw(figure.add_subplot(2, 2, place + 1), name, points, COLOURS[place])
    title = f"{machine.get('device')}, {machine.get('cpu')}, torch {machine.get('torch')}"
    figure.suptitle(title, parse_math=False, fontsize=11)
    save_figure(figure, out)


def _draw(axes: Axes, name: str, points: list[tuple[float, float]], colour: str) -> None:
    panel = PANELS[name]
    xs, ys = [x for x, _ in points], [y / panel.unit for _, y in points]
    axes.plot(xs, ys, "o", color=colour)
    if name == "time_against_side":
        power = fit_line([math.log(x) for x in xs], [math.log(y) for y in ys])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.set_xticks([], minor=True)
        axes.plot(xs, [math.exp(power.at(math.log(x))) for x in xs], color=colour, linewidth=1.5)
        fit = f"seconds grow as side to the power {power.slope:.2f}"
    else:
        line = fit_line(xs, ys)
        axes.plot([0, max(xs)], [line.at(0), line.at(max(xs))], color=colour, linewidth=1.5)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.15 * max(ys))
        fit = _slope(name, line)
    axes.set_title(f"{panel.title}\n{fit}", fontsize=10)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _slope(name: str, line: Line) -> str:
    if name == "memory_against_n":
        return f"{round(1e9 * line.slope, 1) + 0.0:.1f} bytes per sample"  # never "-0.0"
    if name == "time_against_images":
        return f"{_duration(line.slope)} per image"
    deviation = f"{100 * line.deviation:.1f} % from the line at most"
    return f"{_duration(line.slope)} per sample; {deviation}"


def _duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


@click.command()
@click.argument("record", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="[RECORD, ending in .svg]")
def main(record: Path, out: Path | None) -> None:
    """Draw the cost curves of RECORD."""
    draw(record, out or record.with_suffix(".svg"))


if __name__ == "__main__":
    main()
