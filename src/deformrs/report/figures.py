"""Figures of certified accuracy against radius."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from deformrs.errors import InputError
from deformrs.report.captions import axis_words, legend_label
from deformrs.report.curves import (
    Curve,
    Envelope,
    Points,
    add_steps,
    axis_start,
    dress,
    largest_radius,
    line_style,
    save_figure,
    visible,
)
from deformrs.report.groups import Group, Member, run_names
from deformrs.runs import CertifiedRun, Result, StoredRun, read_run, runs_in

Source = StoredRun | Path | str | Sequence[Result]
"""A run: as read, as a folder, or as a list of results."""


class NotebookFigure(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=120)
        return file.getvalue()


def curve(
    runs: Source | Sequence[Source] | Mapping[str, Source],
    *,
    path: Path | str | None = None,
    title: str | None = None,
) -> Figure:
    """Return a figure of certified accuracy against radius, of one or several runs.

    A run is a folder, what `certify` returns, or a list of results. Several are a list, or a
    mapping from labels; a folder of runs stands for all of them. `path` also writes the figure to a
    file whose ending is the format: .png, .svg, .pdf. A run that was only sampled until requested
    radii were decided has a curve up to the largest of them; a list of results does not tell that.

    Guarantee: no curve is above the truth.

    >>> from deformrs import Rotation, Uniform, curve
    >>> from deformrs.certificate import Counts
    >>> from deformrs.runs import Result
    >>> space = Rotation().space((28, 28))
    >>> certificate = Uniform(0.5).certify(Counts((100, 0), (990, 10)), space, 0.001)
    >>> figure = curve([Result(0, 0, certificate)])
    >>> figure.axes[0].get_xlabel()
    'rotation radius (degrees)'
    """
    members = _members(runs)
    group = _compared(members)
    curves = {}
    for member in members:
        if member.curve is None or group.block is None:
            raise InputError(
                f"the run {member.name}",
                "of a composition, or sampled until regions were decided",
                "must have a radius to draw a curve",
                "count its images on regions with deformrs report",
            )
        curves[legend_label(member) if len(members) > 1 else ""] = member.curve
    first = members[0].first
    if title is None:
        images = f"{len(members[0].results):,} images, " if len(members) == 1 else ""
        title = f"{images}{members[0].noise}, " if len(members) == 1 else ""
        title += f"alpha = {first.alpha:g}"
    figure = figure_of(curves, title=title, radius=axis_words(group, first.space.blocks[0]))
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def draw_curve(results: Sequence[Result], path: Path) -> None:
    """Draw the certified accuracy of one run against the radius."""
    curve(results, path=path)


def figure_of(
    curves: Mapping[str, Curve],
    *,
    best: Envelope | None = None,
    references: Mapping[str, Points] | None = None,
    title: str,
    radius: str,
) -> Figure:
    """Return a figure of curves by their labels, the best of them, and reference points.

    `radius` labels the horizontal axis. A single curve without a label is filled.
    """
    figure = NotebookFigure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    points = references or {}
    if best is not None:
        add_steps(axes, best, "best of these runs", "0.6", width=5, alpha=0.35)
    accuracies = [float(y) / 100 for some in points.values() for _, y in some]
    lowest = min([*accuracies, *(one.lowest for one in curves.values())], default=0.0)
    for k, (label, one) in enumerate(curves.items()):
        # An area says how much there is, so it must begin at 0.
        add_steps(axes, one, label, *line_style(k), fill=not label and axis_start(lowest) == 0)
    for k, (label, some) in enumerate(points.items()):
        xs, ys = [float(x) for x, _ in some], [float(y) / 100 for _, y in some]
        grey = str(min(0.3 + 0.2 * k, 0.7))
        axes.plot(xs, ys, "D:", color=grey, markersize=5, label=visible(label))
    axes.set_title(title, parse_math=False)
    dress(axes, radius, lowest)
    axes.set_xlim(0, 1.03 * largest_radius(curves.values()))
    if axes.get_legend_handles_labels()[1]:
        for text in axes.legend(fontsize=8, loc="lower left").get_texts():
            text.set_parse_math(False)
    return figure


def _members(runs: Source | Sequence[Source] | Mapping[str, Source]) -> list[Member]:
    if isinstance(runs, Mapping):
        return [Member(str(name), run) for name, one in runs.items() for run in _read(one)]
    sources: list[object] = [runs]
    if isinstance(runs, Sequence) and not isinstance(runs, str):
        sources = [runs] if any(isinstance(one, Result) for one in runs) else list(runs)
    stored = [run for k, one in enumerate(sources) for run in _read(one, f"run {k + 1}")]
    names = run_names([run.folder for run in stored])
    return [Member(name, run) for name, run in zip(names, stored, strict=True)]


def _read(source: object, name: str = "run") -> list[StoredRun]:
    if isinstance(source, StoredRun):
        return [source]
    if isinstance(source, Path | str):
        return [read_run(folder) for folder in runs_in(Path(source))]
    items = source if isinstance(source, Sequence) else [source]
    results = [item for item in items if isinstance(item, Result)]
    if len(results) < len(items):
        raise InputError(
            "a run",
            repr(source)[:60],
            "must be a folder, a StoredRun or a list of results",
            'e.g. curve("runs/quickstart")',
        )
    config = source.config if isinstance(source, CertifiedRun) else {}
    return [StoredRun(Path(name), config, results)]


def _compared(members: Sequence[Member]) -> Group:
    """Return the runs as a group; raise unless their radii can share an axis."""
    if not members or not all(member.results for member in members):
        raise InputError(
            "the runs", "empty", "must have at least one image certified", "certify some images"
        )
    kinds = {
        tuple((b.family, b.unit, b.dim, member.first.law.norm(k)) for k, b in enumerate(blocks))
        for member in members
        for blocks in [member.first.space.blocks]
    }
    if len(kinds) > 1:
        families = sorted({family for kind in kinds for family, *_ in kind})
        raise InputError(
            "the runs",
            f"of radii that cannot be compared ({', '.join(families)})",
            "must be of one deformation and norm",
            "draw one figure for each",
        )
    return Group(None, {"name": members[0].first.space.blocks[0].family}, tuple(members))
