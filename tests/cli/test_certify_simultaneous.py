"""`deformrs certify --simultaneous`, and what the other verbs make of such a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commands import deformrs, fails, run_inside
from deformrs.cli.options import SamplingOptions
from deformrs.runs import load_run, read_config

CERTIFY = (
    *("certify", "--model", "network", "--data", "digits", "--deformation", "rotation"),
    *("--noise", "uniform:30deg", "--n", "60", "--n0", "20", "--device", "cpu"),
    *("--precision", "float32", "--out", "run"),
)
SHARED = (*CERTIFY, "--simultaneous", "--alpha", "0.004", "--max")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a network and a run of four images that share alpha."""
    from deformrs.data.preparation import Preparation
    from deformrs.models import SmallCNN, save_model

    place = tmp_path_factory.mktemp("shared")
    save_model(place / "network", SmallCNN(width=2, seed=1).eval(), Preparation(channels=1))
    said = deformrs(*SHARED, "4", cwd=place).stdout
    (place / "said.txt").write_text(said)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_certify_says_so_before_and_after(place: Path) -> None:
    said = (place / "said.txt").read_text()
    assert "alpha = 0.001, bound auto; all 4 together alpha = 0.004" in said
    assert "\n  With 99.6 % confidence all 4 certificates hold together.\n" in said
    config = read_config(place / "run")
    assert (config["alpha"], config["simultaneous"]) == (0.001, {"images": 4, "alpha": 0.004})
    again = deformrs(*SHARED, "4").stdout
    assert "all 4 images are certified already" in again
    assert "With 99.6 % confidence all 4 certificates hold together." in again


def test_without_it_certify_says_how_many_may_be_false(place: Path) -> None:
    said = deformrs(*CERTIFY[:-1], "other", "--max", "9").stdout
    assert "\n  With 99.9 % confidence at most 1 of these 9 certificates is false.\n" in said
    assert "together" not in said
    assert "simultaneous" not in read_config(place / "other")


@pytest.mark.parametrize("command", [(*SHARED, "5"), (*CERTIFY, "--max", "5")])
def test_more_images_are_refused(place: Path, command: tuple[str, ...]) -> None:
    line = fails(*command)
    assert "one of 4 images that share alpha = 0.004" in line
    assert "certify all of the images into another folder" in line
    assert len(load_run(place / "run")) == 4


def test_a_dry_run_says_it_and_writes_nothing(place: Path) -> None:
    said = deformrs(*SHARED[:-4], "--out", "new", *SHARED[-4:], "8", "--dry-run").stdout
    assert "alpha = 0.0005, bound auto; all 8 together alpha = 0.004" in said
    assert not (place / "new").exists()


@pytest.mark.usefixtures("no_figures")
def test_report_shares_another_alpha_too(place: Path) -> None:
    said = run_inside("report", "run", "--no-images")
    assert "\n    With 99.6 % confidence all 4 certificates hold together.\n" in said
    strict = run_inside("report", "run", "--no-images", "--alpha", "0.0004", "--out", "strict")
    assert "uniform 30°, alpha = 0.0001" in strict
    sentence = (
        "With 99.96 % confidence all 4 certificates hold together, if this alpha and bound were "
        "chosen before the results were seen."
    )
    assert f"\n    {sentence}\n" in strict
    done = deformrs("report", "run", "--no-images", "--alpha", "0.0004", "--out", "again")
    assert "Choosing after looking is not the protocol" in done.stderr
    text = (place / "strict" / "report.md").read_text()
    assert "0.0001 (a share of each of 4 images; certified anew; the run used 0.001)" in text
    assert sentence in text
    assert "alpha is 2.0; it must lie in (0, 1)" in fails("report", "run", "--alpha", "2")


@pytest.mark.usefixtures("place")
def test_it_is_packed_unpacked_and_verified() -> None:
    assert "verified: 1 run" in deformrs("verify", "run").stdout
    run_inside("pack", "run")
    assert "verified: 1 run" in deformrs("verify", "run").stdout
    assert [result.certificate.alpha for result in load_run("run")] == [0.001] * 4
    run_inside("pack", "--undo", "run")
    assert "all 4 images are certified already" in deformrs(*SHARED, "4").stdout


def test_a_sweep_file_takes_it(place: Path) -> None:
    (place / "sweep.toml").write_text("""
out = "swept"
[train]
data = "digits"
model = "small_cnn:width=2"
epochs = 1
[certify]
n = 60
n0 = 20
max = 4
alpha = 0.004
simultaneous = true
[[runs]]
deformation = "rotation"
noise = "uniform:30deg"
""")
    run_inside("sweep", "sweep.toml", "--device", "cpu")
    (run,) = (path.parent for path in (place / "swept").glob("*/config.json"))
    assert read_config(run)["simultaneous"] == {"images": 4, "alpha": 0.004}
    assert json.loads((run / "sweep.json").read_text())["sampling"]["simultaneous"] is True
    assert "done already" in run_inside("sweep", "sweep.toml", "--device", "cpu")


def test_it_is_off_unless_it_is_given() -> None:
    assert SamplingOptions().simultaneous is False
