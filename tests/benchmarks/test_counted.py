"""Samples of runs that are there, counted without sampling again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deformrs import Rotation, SmoothedClassifier, Uniform, certify_dataset
from deformrs.benchmarks.counted import count_runs, record_for
from deformrs.benchmarks.record import this_machine
from deformrs.errors import InputError
from deformrs.models import SmallCNN
from deformrs.runs import StoredRun, read_run
from deformrs.stopping import Stopping
from images import ramp
from inside import inside

ANSWERS = SmallCNN(width=4, seed=3).eval()
RADII = ("0deg", "10deg")


def made(
    folder: Path,
    stopping: Stopping | None,
    *,
    n: int = 400,
    n0: int = 100,
    skip: int = 1,
    scale: float = 0.5,
    seed: int = 0,
    model: Callable[[Tensor], Tensor] = ANSWERS,
    method: str | None = None,
) -> StoredRun:
    g = SmoothedClassifier(model, Rotation(), Uniform(scale), 10)
    images = [((k + 1) / 8 * ramp()[:1], k % 2) for k in range(8)]
    about = {"data": {"name": "ramps"}, "model": {"precision": "float32"}}
    asked = certify_dataset(
        g,
        images,
        n=n,
        n0=n0,
        seed=seed,
        method=method,
        skip=skip,
        stopping=stopping,
        out=folder,
        about=about,  # type: ignore[arg-type]
    )
    assert len(list(asked)) == len(images[::skip])
    return read_run(folder)


def test_rows_say_what_the_runs_hold(tmp_path: Path) -> None:
    fixed = made(tmp_path / "fixed", None, skip=2)
    decided = made(tmp_path / "decided", Stopping(radii=("10deg", "0deg")))
    gained = made(tmp_path / "gained", Stopping(tolerance="5deg"))
    rows = count_runs([decided, fixed, gained], RADII)
    assert [(row.protocol, row.images) for row in rows] == [
        *(("decide", 4), ("decide", 8), ("fixed", 4), ("adaptive", 4), ("adaptive", 8)),
    ]
    some, every, all_of_it, *_ = rows
    assert all_of_it.samples == 4 * 500
    assert all_of_it.share_of_fixed == 1
    assert some.asked == "0deg, 10deg"
    taken = [r.certificate.counts.n0 + r.certificate.counts.n for r in decided.results]
    assert (some.samples, every.samples) == (sum(taken[::2]), sum(taken))
    assert every.share_of_fixed == sum(taken) / (8 * 500)
    assert every.points_from_fixed is None
    assert some.points_from_fixed is not None
    for radius, value in zip(RADII, (0.0, 0.17453292519943298), strict=True):
        right = [r.holds(value) for r in decided.results]
        assert every.certified[radius] == 100 * sum(right) / 8
        theirs = sum(r.holds(value) for r in fixed.results)
        assert some.points_from_fixed[radius] == 100 * (sum(right[::2]) - theirs) / 4
        assert all_of_it.certified[radius] == 100 * theirs / 4


def test_without_a_fixed_run_each_is_beside_its_own_n(tmp_path: Path) -> None:
    (row,) = count_runs([made(tmp_path, Stopping(radii=RADII))], RADII)
    assert row.share_of_fixed == row.samples / (8 * 500)
    assert row.points_from_fixed is None


def test_all_that_was_asked_is_told(tmp_path: Path) -> None:
    both = made(tmp_path / "both", Stopping(radii=RADII, regions=("rotation<=2deg",)))
    gain = made(tmp_path / "gain", Stopping(radii=("10deg",), tolerance="5deg"))
    rows = count_runs([both, gain], ("5px",))  # which is asked of neither
    assert [row.asked for row in rows] == [
        "0deg, 10deg, rotation<=2deg",
        "10deg, gain below 5deg",
    ]
    assert [list(row.certified) for row in rows] == [["0deg", "10deg"], ["10deg"]]


def test_time_is_that_of_the_images_counted(tmp_path: Path) -> None:
    fixed = made(tmp_path / "fixed", None, skip=2)
    decided = made(tmp_path / "decided", Stopping(radii=RADII))
    times = "".join(f"{index}\t{index}.500000\n" for index in range(8))
    (decided.folder / "times.tsv").write_text(times)
    some, every, _ = count_runs([decided, fixed], RADII)
    assert (some.seconds, every.seconds) == (0 + 2 + 4 + 6 + 4 * 0.5, 28 + 8 * 0.5)
    assert every.samples_per_s == pytest.approx(every.samples / 32, abs=0.1)
    (decided.folder / "times.tsv").write_text(times[:22])
    with pytest.raises(InputError, match="the times of .* without image 2"):
        count_runs([decided], RADII)


def test_images_are_the_same_by_pixels_and_label(tmp_path: Path) -> None:
    fixed, decided = made(tmp_path / "fixed", None), made(tmp_path / "d", Stopping(radii=RADII))
    for change in ({"pixels": "other"}, {"label": 7}):
        others = [dataclasses.replace(result, **change) for result in fixed.results[:3]]
        changed = dataclasses.replace(fixed, results=[*others, *fixed.results[3:]])
        assert [row.images for row in count_runs([decided, changed], RADII)] == [5, 8, 8]
    assert [row.images for row in count_runs([decided, fixed], RADII)] == [8, 8]


def test_runs_that_do_not_belong_together(tmp_path: Path) -> None:
    first = made(tmp_path / "first", None)
    for name, options in (
        ("noise", {"scale": 0.6}),
        ("seed", {"seed": 1}),
        ("model", {"model": SmallCNN(width=4, seed=4).eval()}),
    ):
        other = made(tmp_path / name, Stopping(radii=RADII), **options)
        with pytest.raises(InputError, match=f"^{name} of .* is not that of .*first"):
            count_runs([first, other], RADII)
    plugged = made(tmp_path / "plugged", Stopping(radii=RADII))
    plugged.config["plugins"] = {"lens.py": "digest"}
    with pytest.raises(InputError, match="^plugins of"):
        count_runs([first, plugged], RADII)
    patient, hasty = (made(tmp_path / name, Stopping(radii=RADII)) for name in ("one", "two"))
    hasty.config["stopping"]["given_up"] = 0.2  # type: ignore[index,call-overload]
    with pytest.raises(InputError, match="the rule to stop by is not the same"):
        count_runs([first, patient, hasty], RADII)


def test_runs_that_cannot_be_counted(tmp_path: Path) -> None:
    first = made(tmp_path / "first", None)
    with pytest.raises(InputError, match="first twice"):
        count_runs([first, first], RADII)
    with pytest.raises(InputError, match="the angle is .5px"):
        count_runs([first], ("5px",))
    with pytest.raises(InputError, match="must be one, with which"):
        count_runs([first, made(tmp_path / "second", None)], RADII)
    longer = made(tmp_path / "longer", Stopping(radii=RADII), n=500)
    with pytest.raises(InputError, match="clopper_pearson, with n of at least 500"):
        count_runs([first, longer], RADII)
    with pytest.raises(InputError, match="the protocol of .* anytime with n = 400"):
        count_runs([made(tmp_path / "anytime", None, method="anytime")], RADII)
    with pytest.raises(InputError, match="must have results"):
        count_runs([dataclasses.replace(first, results=[])], RADII)
    with pytest.raises(InputError, match="n0 of .* is 50; it must be 100"):
        count_runs([made(tmp_path / "n0", None, n0=50)], RADII)
    with pytest.raises(InputError, match="a function, known by its name only"):
        count_runs([made(tmp_path / "function", None, model=lambda some: ANSWERS(some))], RADII)
    for number, stopping in enumerate(
        (Stopping(regions=("rotation<=2deg",)), Stopping(radii=(0.1,)))
    ):
        with pytest.raises(InputError, match="must be radii with their units"):
            count_runs([made(tmp_path / str(number), stopping)], RADII)


def test_a_record_is_added_to(tmp_path: Path) -> None:
    made(tmp_path / "fixed", None, skip=2)
    made(tmp_path / "decided", Stopping(radii=RADII))
    record = tmp_path / "bench.json"
    inside(
        *("bench", "--only", "rows", "--network", "small_cnn", "--family", "rotation"),
        *("--n", "20", "--images", "1", "--repeats", "1", "--out", str(record)),
    )
    runs = ("--count", str(tmp_path / "fixed"), "--count", str(tmp_path / "decided"))
    said, _ = inside("bench", *runs, "--radii", "0deg,10deg", "--out", str(record))
    assert "decide" in said
    content = json.loads(record.read_text())
    assert len(content["rows"]) == 1
    assert [used["pictures"] for used in content["samples_used"]] == [4, 4, 8]
    inside("bench", *runs, "--radii", "0deg,10deg", "--out", str(record))
    assert json.loads(record.read_text()) == content, "what is counted again takes its place"
    for key in ("device", "cpu"):
        changed = content | {"machine": content["machine"] | {key: "another"}}
        record.write_text(json.dumps(changed))
        _, errors = inside("bench", *runs, "--out", str(record), code=1)
        assert f"{key} of {record} is 'another'" in errors
    new = tmp_path / "new.json"
    inside("bench", *runs, "--radii", "0deg,10deg", "--out", str(new))
    assert json.loads(new.read_text())["samples_used"] == content["samples_used"]


def test_the_record_of_a_gpu_is_added_to_anywhere(tmp_path: Path) -> None:
    """What runs tell of their machine is what must agree."""
    run = made(tmp_path / "run", Stopping(radii=RADII))
    config = json.loads((run.folder / "config.json").read_text())
    assert config["device"] == "cpu"
    record = tmp_path / "bench.json"
    machine = dataclasses.asdict(this_machine(torch.device("cpu"))) | {"device": "cuda (a GPU)"}
    empty = {"rows": [], "samples_used": [], "paths": [], "cost": {}, "machine": machine}
    record.write_text(json.dumps(empty))
    made_there = config | {"device": "cuda (a GPU)"}
    row = count_runs([run], RADII)[0]
    record_for(record, made_there).add_used(row)
    found = json.loads(record.read_text())
    assert found["machine"] == machine
    assert len(found["samples_used"]) == 1
    with pytest.raises(InputError, match="torch of .*bench.json"):
        record_for(record, made_there | {"torch": "1.0"})
    record.write_text(json.dumps(empty | {"machine": {"device": "cuda (a GPU)"}}))
    with pytest.raises(InputError, match="not a record of deformrs bench"):
        record_for(record, made_there)
