"""Benchmark records: one machine each, entries replaced by their key, and their plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import plot
import record
from deformrs.cli.throughput import machine
from deformrs.config import Config
from deformrs.errors import InputError
from record import Record, read_record

MACHINE = machine(torch.device("cpu"))


def row(family: str, speed: float | None) -> Config:
    key: Config = {"model": "net", "family": family, "side": 28, "precision": "float32"}
    error = "no memory" if speed is None else None
    more: Config = {"compiled": "no", "batch_size": 1, "n": 9, "samples_per_s": speed}
    return key | more | {"error": error}


def test_rows_of_bench_are_merged_and_failed_ones_left_out(tmp_path: Path) -> None:
    path, bench = tmp_path / "record.json", tmp_path / "bench.json"
    Record(MACHINE, path).add("rows", row("dct", 1.0))
    rows = [row("rotation", 2.0), row("dct", 3.0), row("affine", None)]
    bench.write_text(json.dumps({"rows": rows, "machine": MACHINE}))
    done = CliRunner().invoke(record.main, [str(bench), str(path)], catch_exceptions=False)
    assert done.exit_code == 0
    content = read_record(path)
    assert content["rows"] == [row("dct", 3.0), row("rotation", 2.0)]
    assert content["machine"] == MACHINE
    assert [file.name for file in tmp_path.iterdir() if "partial" in file.name] == []


def test_figures_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    Record(MACHINE, path).add("rows", row("dct", 1.0))
    before = path.read_bytes()
    with pytest.raises(InputError, match="write to another file"):
        Record(MACHINE | {"device": "cuda (NVIDIA H200)"}, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rows": 3}'])
def test_another_file_is_neither_read_nor_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(content)
    with pytest.raises(InputError, match="not a benchmark record"):
        Record(MACHINE, path)
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("name", "slopes"),
    [
        ("cpu", ("13.2 µs per sample; 4.8 %", "3.99 ms per image", "244.7 bytes per sample")),
        ("h200", ("2.68 µs per sample; 2.3 %", "3.2 ms per image", "to the power 1.89")),
    ],
)
def test_stored_records_give_the_stored_figures(
    name: str, slopes: tuple[str, ...], root: Path, tmp_path: Path
) -> None:
    """The slopes are those that docs/speed.md and the figures in results/benchmarks show."""
    stored = root / "results/benchmarks" / f"{name}.json"
    plot.draw(stored, tmp_path / "cost.svg")
    for svg in (tmp_path / "cost.svg", stored.with_suffix(".svg")):
        assert all(slope in svg.read_text() for slope in slopes)


def test_stored_entries_are_told_apart_by_their_keys(root: Path) -> None:
    for stored in (root / "results/benchmarks").glob("*.json"):
        content = read_record(stored)
        for table, key in record.KEYS.items():
            entries = content.get(table, [])
            assert isinstance(entries, list)
            keys = {json.dumps([entry[field] for field in key]) for entry in entries}  # type: ignore[call-overload, index]
            assert len(keys) == len(entries)


def test_a_plot_needs_two_points_per_curve(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    Record(MACHINE, path).add_curve("time_against_n", [{"n": 5, "seconds": 1.0}])
    with pytest.raises(InputError, match="at least two"):
        plot.draw(path, tmp_path / "cost.svg")
    assert list(tmp_path.iterdir()) == [path]


def test_fits_find_slopes() -> None:
    line = plot.fit_line([0, 1, 2], [1.0, 3.0, 5.0])
    assert (line.slope, line.intercept, line.deviation) == pytest.approx((2, 1, 0))
    assert plot.fit_line([0, 1, 2], [1.0, 4.0, 5.0]).deviation > 0.1
