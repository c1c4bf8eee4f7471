"""Samples of stored runs, counted without sampling again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import stored_runs
from deformrs import Rotation, SmoothedClassifier, Uniform, certify_dataset
from deformrs.cli.throughput import machine
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models import SmallCNN
from deformrs.runs import StoredRun, read_run
from deformrs.stopping import Stopping
from images import ramp
from record import read_record
from stored_runs import entries_of, record_for

RADII = ("0deg", "10deg")


def run(
    folder: Path,
    stopping: Stopping | None,
    *,
    n: int = 400,
    skip: int = 1,
    scale: float = 0.5,
    seed: int = 0,
    method: str | None = None,
) -> StoredRun:
    network = SmallCNN(width=4, seed=3).eval()
    classifier = SmoothedClassifier(network, Rotation(), Uniform(scale), 10)
    images = [((k + 1) / 8 * ramp()[:1], k % 2) for k in range(8)]
    about = {"data": {"name": "ramps"}, "model": {"precision": "float32"}}
    results = certify_dataset(
        classifier,
        images,
        n=n,
        seed=seed,
        method=method,
        skip=skip,
        stopping=stopping,
        out=folder,
        about=about,  # type: ignore[arg-type]
    )
    assert len(list(results)) == len(images[::skip])
    return read_run(folder)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return run(tmp_path_factory.mktemp("runs") / "fixed", None, skip=2, method="clopper_pearson")


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return run(tmp_path_factory.mktemp("runs") / "decided", Stopping(radii=("10deg", "0deg")))


def test_entries_hold_what_the_runs_do(
    fixed: StoredRun, decided: StoredRun, tmp_path: Path
) -> None:
    adaptive = run(tmp_path, Stopping(tolerance="5deg"))
    entries = entries_of([decided, fixed, adaptive], RADII)
    assert [(entry["protocol"], entry["pictures"]) for entry in entries] == [
        *(("decide", 4), ("decide", 8), ("fixed", 4), ("adaptive", 4), ("adaptive", 8)),
    ]
    common, whole, reference, *_ = entries
    assert (reference["samples"], reference["share_of_fixed"]) == (4 * 500, 1)
    assert common["asked"] == "0deg, 10deg"
    samples = [r.certificate.counts.n0 + r.certificate.counts.n for r in decided.results]
    assert (common["samples"], whole["samples"]) == (sum(samples[::2]), sum(samples))
    assert whole["share_of_fixed"] == sum(samples) / (8 * 500)
    assert whole["points_from_fixed"] is None
    for radius, value in zip(RADII, (0.0, 0.17453292519943298), strict=True):
        ours = [r.holds(value) for r in decided.results]
        theirs = sum(r.holds(value) for r in fixed.results)
        assert whole["certified"][radius] == 100 * sum(ours) / 8  # type: ignore[call-overload, index]
        points = common["points_from_fixed"][radius]  # type: ignore[call-overload, index]
        assert points == 100 * (sum(ours[::2]) - theirs) / 4
        assert reference["certified"][radius] == 100 * theirs / 4  # type: ignore[call-overload, index]


def test_without_a_fixed_run_each_is_compared_with_its_own_n(decided: StoredRun) -> None:
    (entry,) = entries_of([decided], RADII)
    assert entry["share_of_fixed"] == entry["samples"] / (8 * 500)  # type: ignore[operator]
    assert entry["points_from_fixed"] is None


def test_images_are_matched_by_pixels_and_label(fixed: StoredRun, decided: StoredRun) -> None:
    for change in ({"pixels": "other"}, {"label": 7}):
        others = [dataclasses.replace(result, **change) for result in fixed.results[:1]]
        changed = dataclasses.replace(fixed, results=[*others, *fixed.results[1:]])
        entries = entries_of([decided, changed], RADII)
        assert [entry["pictures"] for entry in entries] == [3, 8, 4]


def test_runs_that_cannot_be_compared(fixed: StoredRun, decided: StoredRun, tmp_path: Path) -> None:
    for key in ("noise", "seed", "model", "plugins"):
        config = decided.config | {key: {"another": 1}}
        other = dataclasses.replace(decided, config=config)
        with pytest.raises(InputError, match=f"^{key} of .* is not that of .*fixed"):
            entries_of([fixed, other], RADII)
    newer = decided.config | {"stopping": {"radii": list(RADII), "given_up": 0.2}}
    with pytest.raises(InputError, match="the stopping rule"):
        entries_of([decided, dataclasses.replace(decided, config=newer)], RADII)
    with pytest.raises(InputError, match="must be one, which"):
        entries_of([fixed, fixed], RADII)
    with pytest.raises(InputError, match="must have results"):
        entries_of([dataclasses.replace(fixed, results=[])], RADII)
    with pytest.raises(InputError, match="the angle is .5px"):
        entries_of([fixed], ("5px",))
    longer = run(tmp_path / "longer", Stopping(radii=RADII), n=500)
    with pytest.raises(InputError, match="clopper_pearson with n of at least 500"):
        entries_of([fixed, longer], RADII)
    region = run(tmp_path / "region", Stopping(regions=("rotation<=2deg",)))
    with pytest.raises(InputError, match="must be a radius with its unit"):
        entries_of([region], RADII)


def test_a_record_is_extended_once(fixed: StoredRun, decided: StoredRun, tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    arguments = [str(decided.folder), str(fixed.folder), "--radii", ",".join(RADII)]
    for _ in range(2):
        CliRunner().invoke(
            stored_runs.main, [*arguments, "--out", str(out)], catch_exceptions=False
        )
        entries = read_record(out)["samples_used"]
        assert entries == entries_of([decided, fixed], RADII)


def test_the_record_of_a_gpu_is_extended_on_any_machine(tmp_path: Path) -> None:
    about = machine(torch.device("cpu")) | {"device": "cuda (a GPU)", "cpu": "another"}
    content = {"rows": [], "samples_used": [], "paths": [], "cost": {}, "machine": about}
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content))
    made_there: Config = {"device": "cuda (a GPU)", "torch": torch.__version__}
    assert record_for(path, made_there).content["machine"] == about
    with pytest.raises(InputError, match="torch of the record"):
        record_for(path, made_there | {"torch": "1.0"})
