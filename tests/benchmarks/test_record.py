"""The JSON file: whole at any moment, added to on one machine only; and its plot."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from deformrs.benchmarks.fits import fit_line, fit_power
from deformrs.benchmarks.plot import draw_cost
from deformrs.benchmarks.record import CURVES, Record, read_record, this_machine
from deformrs.benchmarks.rows import Row
from deformrs.config import Config
from deformrs.errors import InputError

MACHINE = this_machine(torch.device("cpu"))
ROW = Row("cpu", "small_cnn", "rotation", 28, "float32", "no", 256, 100, 5, 3)


def points(across: str, up: str) -> list[Config]:
    return [{across: 10 * k, up: 3.0 * k * 10 + 1} for k in (1, 2, 3)]


def whole(path: Path) -> Record:
    record = Record(MACHINE, path)
    record.add_row(dataclasses.replace(ROW, samples_per_s=10.0))
    for name, across in zip(CURVES, ("n", "side", "pictures", "n"), strict=True):
        up = "peak_memory_bytes" if name == "memory_against_n" else "seconds"
        record.add_curve(name, points(across, up))
    return record


def test_the_file_has_all_parts_after_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    Record(MACHINE, path).add_row(ROW)
    content = json.loads(path.read_text())
    assert list(content) == ["rows", "samples_used", "paths", "cost", "machine"]
    assert set(content["cost"]) == set(CURVES)
    wanted = {"device", "model", "family", "samples_per_s", "bare_samples_per_s"}
    wanted |= {"naive_samples_per_s", "peak_memory_bytes", "ratio_to_bare", "compile_seconds"}
    assert wanted <= set(content["rows"][0])
    assert content["machine"]["torch"] == torch.__version__
    assert [file.name for file in tmp_path.iterdir()] == ["bench.json"]


def test_a_later_row_of_the_same_takes_its_place_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    whole(path)
    later = Record(MACHINE, path)
    later.add_row(dataclasses.replace(ROW, samples_per_s=20.0))
    later.add_row(dataclasses.replace(ROW, family="dct"))
    content = json.loads(path.read_text())
    assert [row["samples_per_s"] for row in content["rows"]] == [20.0, None]
    assert len(content["cost"]["time_against_n"]) == 3


def test_figures_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    whole(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="write to another file"):
        Record(dataclasses.replace(MACHINE, device="cuda (NVIDIA H200)"), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"rows": 3}', "null", "\0"])
def test_another_file_is_neither_read_nor_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(content)
    with pytest.raises(InputError, match="not a record of deformrs bench"):
        Record(MACHINE, path)
    with pytest.raises(InputError, match="not a record of deformrs bench"):
        draw_cost(path)
    assert path.read_text() == content


def test_the_plot_lies_beside_the_record_and_names_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    whole(path)
    drawn = draw_cost(path)
    assert drawn == tmp_path / "bench.svg"
    assert drawn.read_text().count("<svg") == 1
    assert MACHINE.cpu in drawn.read_text()
    first = drawn.read_bytes()
    assert draw_cost(path).read_bytes() == first
    assert draw_cost(path, tmp_path / "other.png").read_bytes()[:4] == b"\x89PNG"


def test_a_plot_needs_its_points(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    record = whole(path)
    with pytest.raises(InputError, match="must end in"):
        draw_cost(path, tmp_path / "plot.txt")
    record.add_curve("time_against_n", [{"n": 5, "seconds": 1.0}])
    with pytest.raises(InputError, match="at least two"):
        draw_cost(path)
    record.add_curve("time_against_n", [{"n": 5, "seconds": "1"}, {"n": 6, "seconds": 2.0}])
    with pytest.raises(InputError, match="must have n and seconds"):
        draw_cost(path)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="absent"):
        read_record(tmp_path / "none.json")


def test_fits_find_slopes() -> None:
    line = fit_line([0, 1, 2], [1.0, 3.0, 5.0])
    assert (line.slope, line.start, line.furthest) == pytest.approx((2, 1, 0))
    assert line.at(10) == pytest.approx(21)
    assert fit_line([0, 1, 2], [1.0, 4.0, 5.0]).furthest > 0.1
    assert fit_power([28, 32, 64, 224], [28.0**2, 32.0**2, 64.0**2, 224.0**2]).slope == (
        pytest.approx(2)
    )
