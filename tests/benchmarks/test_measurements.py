"""The benchmark scripts on tiny cases: samples, agreement, cost and stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import cost
import regularisers
import training
from agreement import compare
from deformrs import Rotation, SmoothedClassifier, Uniform
from deformrs.cli.throughput import Case, machine
from deformrs.data import load_data
from deformrs.data.image_set import Subset
from images import ramp
from record import Record, read_record
from samples import measure, print_table, protocols
from stages import report
from subject import Options, Subject, load_subject

CPU = torch.device("cpu")
TINY = Case("small_cnn:width=4", 16, 1, 32, 20, 2, 20, repeats=1)


@pytest.fixture
def untrained(network: Path) -> Subject:
    return load_subject(Options(str(network), device="cpu", precision="float32"))


def of_ramps(model: Callable[[Tensor], Tensor]) -> Subject:
    classifier = SmoothedClassifier(model, Rotation(), Uniform(1.0), 2, batch_size=40)
    images = [(float(k) * ramp(9).numpy() / 4, 0) for k in range(5)]
    return Subject(classifier, images, "net", "ramps", "float32", CPU)  # type: ignore[arg-type]


def by_batch(images: Tensor) -> Tensor:
    """Predict class 1 for the first image of a batch only."""
    scores = torch.zeros(len(images), 2)
    scores[:, 0] = 0.5
    scores[0, 1] = 1
    return scores


def test_samples_of_every_protocol(
    untrained: Subject, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An untrained network predicts anything: this checks the arithmetic."""
    chosen = protocols(1000, "10deg", ("0deg", "30deg"), "1deg")
    entries = list(measure(untrained, chosen, 4))
    names = [entry["protocol"] for entry in entries]
    assert names == ["fixed", "adaptive", "decide", "decide", "decide"]
    fixed, *others = entries
    assert (fixed["samples"], fixed["share_of_fixed"], fixed["pictures"]) == (4 * 1100, 1, 4)
    assert set(fixed["certified"]) == {"0deg", "30deg", "10deg"}  # type: ignore[arg-type]
    assert fixed["points_from_fixed"] is None
    for entry in others:
        assert 4 * 100 < entry["samples"] <= 4 * (entry["n"] + 100)  # type: ignore[operator]
        assert entry["share_of_fixed"] == entry["samples"] / 4400  # type: ignore[operator]
        for radius, share in entry["certified"].items():  # type: ignore[union-attr]
            points = share - fixed["certified"][radius]  # type: ignore[index, operator]
            assert entry["points_from_fixed"][radius] == pytest.approx(points)  # type: ignore[index]
    assert set(others[1]["certified"]) == {"10deg"}  # type: ignore[arg-type]
    assert others[-1]["n"] == 100
    print_table(entries)
    assert "adaptive" in capsys.readouterr().out
    record = Record(machine(CPU), tmp_path / "record.json")
    for entry in entries:
        record.add("samples_used", entry)
    assert read_record(tmp_path / "record.json")["samples_used"] == entries


def test_differing_predictions_are_counted() -> None:
    again, turns, quarter = compare(of_ramps(by_batch), 5, 64)
    assert (again["samples"], again["differing"]) == (320, 0)
    assert turns["differing"] != 0
    # 8 batches of 40 have 8 first images, 32 of 10 have these and 24 more.
    assert quarter["differing"] == 24
    assert quarter["per_million"] == 24 / 320 * 1e6


def test_on_a_cpu_in_float32_every_way_of_execution_agrees(untrained: Subject) -> None:
    assert [entry["differing"] for entry in compare(untrained, 3, 70)] == [0, 0, 0]


def test_cost_curves_are_measured_and_recorded(untrained: Subject, tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    values = cost.Range(TINY, 50, (32, 64), (8, 16), (1, 2))
    cost.measure(values, untrained, "10deg", Record(machine(CPU), out))
    curves = read_record(out)["cost"]
    assert isinstance(curves, dict)
    for name, x, expected in (
        ("time_against_n", "n", [32, 64]),
        ("memory_against_n", "n", [32, 64]),
        ("time_against_side", "side", [8, 16]),
        ("time_against_images", "pictures", [1, 2]),
    ):
        points = curves[name]
        assert isinstance(points, list)
        assert [point[x] for point in points] == expected  # type: ignore[call-overload, index]


def test_the_peak_is_that_of_the_work_alone() -> None:
    large = cost.peak_bytes(lambda: torch.ones(2**26), CPU)  # 268 MB
    small = cost.peak_bytes(lambda: torch.ones(2**10), CPU)
    assert large - small > 200_000_000


def test_stages_and_operations_are_named() -> None:
    lines = "\n".join(report(TINY))
    assert all(stage in lines for stage in ("draw", "warp", "network", "count"))
    assert "grid_sampler" in lines


def test_training_is_measured_against_the_bare_network() -> None:
    row = training.measure("rotation", training.Size(4, 8, 2), CPU)
    assert row.ratio == row.images_per_s / row.bare_images_per_s > 0


def test_a_regularised_variant_is_trained_and_certified() -> None:
    digits = load_data("digits", split="train")
    few = tuple(range(60))
    labels = tuple(digits.labels[index] for index in few)
    subset = Subset("digits", None, labels, {}, digits.preparation, digits, few)
    variant = regularisers.Variant(2, tilt=2.0, consistency=10.0)
    row = regularisers.measure(variant, subset, epochs=1, width=4, n=20, device=CPU)
    assert row["copies"] == 2
    assert set(row["certified"]) == {"10", "30", "45"}  # type: ignore[call-overload]
