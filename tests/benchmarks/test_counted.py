"""Samples of runs that are there, counted without sampling again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deformrs import Rotation, SmoothedClassifier, Uniform, certify_dataset
from deformrs.benchmarks.counted import count_runs
from deformrs.errors import InputError
from deformrs.models import SmallCNN
from deformrs.runs import StoredRun, read_run
from deformrs.stopping import Stopping
from inside import inside
from pictures import ramp

ANSWERS = SmallCNN(width=4, seed=3).eval()
RADII = ("0deg", "10deg")


def made(
    folder: Path, stopping: Stopping | None, n: int = 400, skip: int = 1, scale: float = 0.5
) -> StoredRun:
    g = SmoothedClassifier(ANSWERS, Rotation(), Uniform(scale), 10)
    pictures = [((k + 1) / 8 * ramp()[:1], k % 2) for k in range(8)]
    about = {"data": {"name": "ramps"}, "model": {"precision": "float32"}}
    asked = certify_dataset(
        g,
        pictures,
        n=n,
        skip=skip,
        stopping=stopping,
        out=folder,
        about=about,  # type: ignore[arg-type]
    )
    assert len(list(asked)) == len(pictures[::skip])
    return read_run(folder)


def test_rows_say_what_the_runs_hold(tmp_path: Path) -> None:
    fixed = made(tmp_path / "fixed", None, skip=2)
    decided = made(tmp_path / "decided", Stopping(radii=("10deg", "0deg")))
    gained = made(tmp_path / "gained", Stopping(tolerance="5deg"))
    rows = count_runs([decided, fixed, gained], RADII)
    assert [(row.protocol, row.pictures) for row in rows] == [
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


def test_runs_that_do_not_belong_together(tmp_path: Path) -> None:
    first = made(tmp_path / "first", None)
    other = made(tmp_path / "other", None, scale=0.6)
    with pytest.raises(InputError, match="noise of .*other is not that of .*first"):
        count_runs([first, other], RADII)
    with pytest.raises(InputError, match="the angle is .5px"):
        count_runs([first], ("5px",))


def test_a_record_is_added_to(tmp_path: Path) -> None:
    made(tmp_path / "fixed", None, skip=2)
    made(tmp_path / "decided", Stopping(radii=RADII))
    record = tmp_path / "bench.json"
    inside(
        *("bench", "--only", "rows", "--network", "small_cnn", "--family", "rotation"),
        *("--n", "20", "--pictures", "1", "--repeats", "1", "--out", str(record)),
    )
    runs = ("--count", str(tmp_path / "fixed"), "--count", str(tmp_path / "decided"))
    said, _ = inside("bench", *runs, "--radii", "0deg,10deg", "--out", str(record))
    assert "decide" in said
    content = json.loads(record.read_text())
    assert len(content["rows"]) == 1
    assert [used["pictures"] for used in content["samples_used"]] == [4, 4, 8]
    inside("bench", *runs, "--radii", "0deg,10deg", "--out", str(record))
    assert json.loads(record.read_text()) == content, "what is counted again takes its place"
    content["machine"]["device"] = "cuda (some GPU)"
    record.write_text(json.dumps(content))
    _, errors = inside("bench", *runs, "--out", str(record), code=1)
    assert "must be that of the runs, 'cpu'" in errors
