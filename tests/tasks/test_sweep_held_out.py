"""A sweep that certifies what its trainings held out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from few_digits import FILE, NARROW, OPTIONS, few_digits, sweep_file

from deformrs.cli.sweep_file import read_sweep
from deformrs.cli.sweep_plan import plan_sweep
from deformrs.errors import DeformRSError
from deformrs.runs import load_run, read_config
from inside import inside

HELD_OUT = FILE.replace("epochs = 1", "epochs = 1\nhold_out = 0.1").replace(
    "n0 = 20", 'n0 = 20\nsplit = "held-out"'
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few_digits()


def drawn(run: str) -> object:
    data = read_config(Path(run))["data"]
    assert isinstance(data, dict)
    return data["held_out"]


def test_from_a_file_with_seeds_of_their_own() -> None:
    sweep_file(HELD_OUT + NARROW + "train = { seed = 5 }\n")
    _, errors = inside("sweep", "some.toml", "--report")
    assert errors == ""
    digest = json.loads(Path("runs/wide/training.json").read_text())["data"]["sha256"]
    assert drawn("runs/wide") == {"share": 0.1, "seed": 0, "sha256": digest}
    assert drawn("runs/narrow") == {"share": 0.1, "seed": 5, "sha256": digest}
    wide, narrow = load_run("runs/wide"), load_run("runs/narrow")
    assert len(wide) == len(narrow) == 6
    assert all(result.source.startswith("few.npz train ") for result in wide)
    assert [result.source for result in wide] != [result.source for result in narrow]
    text = Path("runs/report/report.md").read_text()
    assert "## Rotation on few.npz (held out of training)" in text
    assert inside("sweep", "some.toml", "--list")[0].count("  done\n") == 2
    assert inside("sweep", "some.toml")[0].count("done already") == 2
    sweep_file(HELD_OUT.replace('split = "held-out"', 'split = "test"'))
    assert "with other options" in inside("sweep", "some.toml", "--list")[0]
    assert "cannot go on with other settings" in inside("sweep", "some.toml", code=1)[1]


def test_from_options_on_data_without_a_test_split() -> None:
    asked = (
        *("sweep", *OPTIONS, "--data", "flat.npz", "--deformation", "rotation"),
        *("--noise", "uniform:30deg", "--out", "runs", "--hold-out", "0.1"),
    )
    assert "without a test split" in inside(*asked, code=1)[1]
    inside(*asked, "--split", "held-out")
    run = Path("runs/rotation_uniform-30deg")
    lines = (run / "certificates.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 6
    (run / "certificates.jsonl").write_bytes(b"".join(lines[:2]))
    assert "certified 2 of 6" in inside(*asked, "--split", "held-out", "--list")[0]
    inside(*asked, "--split", "held-out")
    assert (run / "certificates.jsonl").read_bytes() == b"".join(lines)


def test_marks_of_sweeps_that_hold_nothing_out_stay_as_they_were() -> None:
    sweep_file(FILE)
    inside("sweep", "some.toml")
    mark = json.loads(Path("runs/wide/sweep.json").read_text())
    assert mark["test"] == {"data": "few.npz", "split": "test"}
    assert mark["data"] == {"data": "few.npz", "split": "train"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HELD_OUT.replace("hold_out = 0.1", ""), "split for .* is held-out; .*add hold_out = 0.1"),
        (HELD_OUT.replace("n = 60", 'data = "b.npz"'), r"data for .* is b.npz; it must be what is"),
        (HELD_OUT.replace('"held-out"', '"train"'), "split in .* must be one of test, held-out"),
        (HELD_OUT.replace('"held-out"', '"heldout"'), "split in .* did you mean 'held-out'"),
        (FILE + 'split = "held-out"\n', r"write certify = \{ split = … \}"),
    ],
)
def test_what_cannot_be(text: str, message: str) -> None:
    sweep_file(text)
    with pytest.raises(DeformRSError, match=message):
        plan_sweep(read_sweep(Path("some.toml")))


def test_what_cannot_be_held_out_is_said_before_anything_is_trained() -> None:
    sweep_file(HELD_OUT.replace("hold_out = 0.1", "hold_out = 0.001"))
    assert "must hold out at least one of 200" in inside("sweep", "some.toml", code=1)[1]
    assert not Path("runs").exists()
    images = np.load("few.npz")["x_train"]
    np.savez("few.npz", x_test=images, y_test=np.zeros(200, np.int64))
    assert "error: " in inside("sweep", "some.toml", code=1)[1]
    assert (
        "--split is given beside some.toml"
        in inside("sweep", "some.toml", "--split", "held-out", code=2)[1]
    )
