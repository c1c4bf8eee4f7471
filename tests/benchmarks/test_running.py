"""A whole benchmark, small enough for a test."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from deformrs.benchmarks.plan import PARTS, SMALL, Case, Execution, Size
from deformrs.benchmarks.plot import draw_cost
from deformrs.benchmarks.questions import Questions
from deformrs.benchmarks.running import Bench, run_bench
from deformrs.benchmarks.subject import SubjectOptions
from deformrs.errors import InputError, ModelError

CASE = Case("small_cnn:width=4", 16, 1, 32, 20, 2, 20, ("rotation",))
SIZE = Size(
    "tiny",
    (CASE,),
    repeats=1,
    fixed_n=50,
    subset=3,
    cost_case=CASE,
    cost_n=(32, 64, 128),
    cost_sides=(8, 16),
    cost_images=(1, 2, 4),
    paths_images=3,
    paths_n=70,
)


def tiny(network: Path, *cases: Case) -> Bench:
    return Bench(
        SIZE,
        cases,
        PARTS,
        Execution("cpu", "float32", "no", 1),
        SubjectOptions(str(network), "digits", None, "rotation", "uniform:54deg"),
        Questions(n=50, subset=3, whole=False),
    )


def test_all_parts_are_measured_shown_written_and_drawn(network: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "bench.json", io.StringIO()
    content = run_bench(tiny(network, CASE), out, Console(file=said, width=100))
    assert json.loads(out.read_text()) == content
    parts = ("rows", "samples_used", "cost", "paths")
    assert [len(content[part]) for part in parts] == [1, 5, 4, 3]  # type: ignore[arg-type]
    cost = content["cost"]
    assert isinstance(cost, dict)
    assert [point["n"] for point in cost["time_against_n"]] == [32, 64, 128]  # type: ignore[index, union-attr, call-overload]
    assert [point["side"] for point in cost["time_against_side"]] == [8, 16]  # type: ignore[index, union-attr, call-overload]
    assert [point["pictures"] for point in cost["time_against_images"]] == [1, 2, 4]  # type: ignore[index, union-attr, call-overload]
    shown = said.getvalue()
    assert "of bare" in shown
    assert "points from fixed" in shown
    assert shown.count(" against ") == 4
    assert shown.count("answers that differ") == 3
    assert draw_cost(out).is_file()


def test_a_row_that_fails_is_told_when_the_others_are_done(network: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "bench.json", io.StringIO()
    absent = dataclasses.replace(CASE, network="no_such_network")
    bench = dataclasses.replace(tiny(network, absent, CASE), parts=("rows",))
    with pytest.raises(ModelError, match="without 1 of its rows .*no_such_network"):
        run_bench(bench, out, Console(file=said, width=100))
    failed, done = json.loads(out.read_text())["rows"]
    assert "no_such_network" in failed["error"]
    assert failed["samples_per_s"] is None
    assert done["error"] is None
    assert "failed" in said.getvalue()


def test_radii_that_cannot_be_asked_are_told_before_training() -> None:
    bench = Bench(
        SMALL,
        (),
        ("samples",),
        Execution("cpu", "float32", "no", 1),
        SubjectOptions(),
        Questions(n=10, subset=1, radii=("3px",)),
    )
    said = io.StringIO()
    with pytest.raises(InputError, match="3px"):
        run_bench(bench, None, Console(file=said))
    assert "training" not in said.getvalue()
