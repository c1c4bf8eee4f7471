"""Figures of certified accuracy: from runs however given, with an axis that misleads nobody."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from deformrs import Compose, Gaussian, Independent, NoiseLaw, Rotation, Scaling, Uniform, curve
from deformrs.errors import InputError
from deformrs.report import draw_curve
from deformrs.report.curves import axis_start
from deformrs.report.figures import NotebookFigure, Source
from made_runs import Entry, decided, many, stored


def labels(figure: Figure) -> list[str]:
    return list(figure.axes[0].get_legend_handles_labels()[1])


@pytest.mark.parametrize("law", [Uniform(1.0), Gaussian(0.2)])
def test_a_curve_is_drawn(law: NoiseLaw, tmp_path: Path) -> None:
    draw_curve(stored(tmp_path, [Entry(0, 0, 900)], Scaling(), law).results, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        assert len(image.convert("RGB").getcolors(10**6) or []) > 10


def test_runs_are_taken_however_they_are_given(tmp_path: Path) -> None:
    wide = stored(tmp_path / "runs" / "wide", law=Uniform(1.5), on_disk=True)
    narrow = stored(tmp_path / "runs" / "narrow", law=Uniform(0.5), on_disk=True)
    for one in (wide, wide.folder, str(wide.folder), wide.results):
        figure = curve(one)
        assert labels(figure) == []
        assert figure.axes[0].get_title().startswith("40 images, uniform noise of scale 85.9")
        assert figure.axes[0].get_xlabel() == "rotation radius (degrees)"
    mixed: list[Source] = [wide, narrow.folder]
    both = ["wide: uniform 85.94°", "narrow: uniform 28.65°"]
    assert labels(curve(mixed)) == both
    assert labels(curve(tmp_path / "runs")) == both[::-1], "a folder of runs stands for all"
    assert labels(curve({"a": wide, "b": narrow.results})) == [
        *("a: uniform 85.94°", "b: uniform 28.65°")
    ]
    assert labels(curve([wide.results, narrow.results]))[1].startswith("run 2")


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    turn = stored(tmp_path / "a")
    parts = (Compose(Rotation(), Scaling()), Independent(Uniform(1.0), Uniform(0.3)))
    with pytest.raises(InputError, match="rotation, scaling"):
        curve([turn, stored(tmp_path / "b", None, Scaling())])
    with pytest.raises(InputError, match="of a composition"):
        curve(stored(tmp_path / "c", None, *parts))
    nothing: list[list[Source]] = [[], [[]]]
    for runs in nothing:
        with pytest.raises(InputError, match="at least one image"):
            curve(runs)
    with pytest.raises(InputError, match="must be a folder, a StoredRun or a list of results"):
        curve(3)  # type: ignore[arg-type]


def test_a_figure_is_saved_and_shown_by_notebooks(tmp_path: Path) -> None:
    figure = curve(stored(tmp_path / "a"), path=tmp_path / "c.svg", title="$Ours_")
    assert "$Ours_" in (tmp_path / "c.svg").read_text(encoding="utf-8")
    assert isinstance(figure, NotebookFigure)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_the_axis_shows_differences_and_says_where_it_starts(tmp_path: Path) -> None:
    """Curves that end high are enlarged; one that falls to 0 keeps the whole axis."""
    images = [Entry(0, 0, 1000)] * 97 + [Entry(0, 1, 1000)] * 3
    high = decided(stored(tmp_path / "a", images), radii=["20deg"])
    axes = curve(high).axes[0]
    assert axes.get_ylim()[0] == 0.95
    assert axes.get_ylabel() == "certified accuracy (from 95 %)"
    drawn = np.concatenate([line.get_ydata() for line in axes.lines[:2]])
    assert drawn.min() >= 0.95, "nothing lies below the axis"
    axes = curve([high, stored(tmp_path / "b")]).axes[0]
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylabel() == "certified accuracy"
    for lowest in np.linspace(0, 1, 101):
        assert 0 <= axis_start(lowest) <= lowest


def test_a_decided_run_ends_where_the_requests_do(tmp_path: Path) -> None:
    run = decided(stored(tmp_path / "a", many(80)), radii=["10deg", "30deg"])
    held = sum(result.holds(math.radians(30)) for result in run.results)
    line = curve(run).axes[0].lines[0]
    assert np.asarray(line.get_xydata())[-1].tolist() == [30, held / 80]
