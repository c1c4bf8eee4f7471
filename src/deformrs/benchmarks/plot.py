"""The four curves of cost, each with the line that fits it, drawn for one machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deformrs.benchmarks.fits import Line, fit_line, fit_power
from deformrs.benchmarks.record import CURVES, read_record
from deformrs.benchmarks.shown import in_bytes, in_seconds
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.report.curves import COLOURS, save_figure

FORMATS = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class _Panel:
    """A curve: its two fields, and what its axes are called."""

    x: str
    y: str
    title: str
    across: str
    up: str
    unit: float = 1.0
    """What y is divided by."""


_PANELS = {
    "time_against_n": _Panel("n", "seconds", "Time against samples", "samples n", "seconds"),
    "time_against_side": _Panel(
        "side", "seconds", "Time against image side", "side, pixels", "seconds"
    ),
    "time_against_images": _Panel(
        "pictures", "seconds", "Time against images, one radius decided", "pictures", "seconds"
    ),
    "memory_against_n": _Panel(
        "n", "peak_memory_bytes", "Memory against samples", "samples n", "peak, GB", 1e9
    ),
}


def draw_cost(record: Path, out: Path | None = None) -> Path:
    """Draw the curves of a record of `deformrs bench` beside it, or to `out`; where they are."""
    path = record.with_suffix(".svg") if out is None else out
    if path.suffix not in FORMATS:
        raise InputError(
            "the plot", path, "must end in " + ", ".join(FORMATS), f"e.g. {path.stem}.svg"
        )
    found = read_record(record)
    curves = {name: _points(record, found, name) for name in CURVES}
    machine = found["machine"]
    assert isinstance(machine, dict)
    figure = Figure(figsize=(9.6, 6.8), layout="constrained")
    for place, (name, points) in enumerate(curves.items()):
        _draw(figure.add_subplot(2, 2, place + 1), name, points, COLOURS[place])
    figure.suptitle(
        f"{machine.get('device')}, {machine.get('cpu')}, torch {machine.get('torch')}",
        parse_math=False,
        fontsize=11,
    )
    save_figure(figure, path)
    return path


def _draw(axes: Axes, name: str, points: list[tuple[float, float]], colour: str) -> None:
    panel = _PANELS[name]
    xs, ys = [x for x, _ in points], [y / panel.unit for _, y in points]
    axes.plot(xs, ys, "o", color=colour)
    if name == "time_against_side":
        power = fit_power(xs, ys)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.set_xticks([], minor=True)
        axes.plot(xs, [math.exp(power.at(math.log(x))) for x in xs], color=colour, linewidth=1.5)
        said = f"seconds grow as side to the power {power.slope:.2f}"
    else:
        line = fit_line(xs, ys)
        axes.plot([0, max(xs)], [line.at(0), line.at(max(xs))], color=colour, linewidth=1.5)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.15 * max(ys))
        said = _words(name, line)
    axes.set_title(f"{panel.title}\n{said}", fontsize=10)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _words(name: str, line: Line) -> str:
    if name == "memory_against_n":
        return f"{in_bytes(1e9 * line.slope)} a sample"
    if name == "time_against_images":
        return f"{in_seconds(line.slope)} an image"
    return f"{in_seconds(line.slope)} a sample; {100 * line.furthest:.1f} % off the line at most"


def _points(record: Path, found: Config, name: str) -> list[tuple[float, float]]:
    cost = found["cost"]
    listed = cost.get(name) if isinstance(cost, dict) else None
    panel = _PANELS[name]
    points: list[tuple[float, float]] = []
    for point in listed if isinstance(listed, list) else []:
        x, y = (point.get(panel.x), point.get(panel.y)) if isinstance(point, dict) else (None, None)
        if not isinstance(x, int | float) or not isinstance(y, int | float) or min(x, y) <= 0:
            raise InputError(
                f"a point of {name} in {record}",
                repr(point),
                f"must have {panel.x} and {panel.y}",
                "measure it again with --only cost",
            )
        points.append((float(x), float(y)))
    if len({x for x, _ in points}) < 2:
        raise InputError(
            f"{name} in {record}",
            f"of {len(points)} points",
            "must have at least two to be drawn",
            "measure it with --only cost",
        )
    return points
