"""`deformrs report`: what it prints, which arguments it takes, which images it finds."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import deformrs, run_inside
from deformrs import Uniform
from deformrs.rounding import percent_down
from deformrs.runs import load_run
from made_runs import stored

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs and a README, which is the working directory's `runs`."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    stored(folder / "narrow", law=Uniform(math.radians(36)), on_disk=True)
    stored(folder / "wide", law=Uniform(math.radians(90)), on_disk=True)
    (folder / "README.md").write_text("Two runs.")
    return folder


@pytest.fixture
def digits(tmp_path: Path, network: Path) -> Path:
    """A working directory with a network and three images to certify."""
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "some.npz", images=images, labels=[0, 1, 2])
    return tmp_path


def _certify(place: Path, *words: str) -> str:
    few = ("--n", "50", "--n0", "10", "--device", "cpu", "--out", "run")
    done = deformrs("certify", "--model", "network", "--data", "some.npz", *words, *few, cwd=place)
    return done.stdout


def test_the_answer_is_printed(runs: Path) -> None:
    said = run_inside("report", "runs", "--radii", "10deg,30deg", "--region", "rotation<=5deg")
    lines = {line.strip()[:19].strip(): line for line in said.splitlines()}
    both = [load_run(runs / name) for name in ("narrow", "wide")]
    for name, radius in (("10°", 10), ("30°", 30)):
        for results in both:
            held = sum(result.holds(math.radians(radius)) for result in results)
            answer = f"{percent_down(held, 40)} % ({held}/40)"
            assert answer in lines[f"certified up to {name}"]
    plain = sum(result.plain == result.label for result in both[0])
    assert f"{percent_down(plain, 40)} % ({plain}/40)" in lines["plain accuracy"]
    assert "rotation up to 5°" in lines
    assert "average radius" in lines
    assert said.count("report.html") == 1
    assert "tables/" in said
    assert said.splitlines()[-1].startswith("report: runs/report/report.html")


def test_radius_0_is_the_smoothed_accuracy_and_not_printed_again(runs: Path) -> None:
    said = run_inside("report", "runs", "--no-images")
    assert "certified up to 5°" in said or "certified up to 15°" in said
    assert "up to 0°" not in said


def test_files_among_the_runs_are_left_out(runs: Path) -> None:
    done = deformrs("report", *sorted(str(path) for path in runs.iterdir()), cwd=runs.parent)
    assert "README.md is a file, not the folder of a run" in done.stderr
    assert (runs / "narrow" / "report" / "report.html").is_file()


def test_the_page_is_opened(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def no_browser(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", no_browser)
    said = deformrs("report", "runs/narrow", "--open").stderr
    assert opened == [(runs / "narrow/report/report.html").as_uri()]
    assert "open the file in one" in said


def test_images_that_moved_are_found_and_still_verified(digits: Path) -> None:
    _certify(digits, "--deformation", "rotation", "--noise", "uniform:30deg")
    (digits / "elsewhere").mkdir()
    moved = digits / "elsewhere" / "some.npz"
    shutil.move(digits / "some.npz", moved)
    missing = deformrs("report", "run", cwd=digits).stderr
    assert "some.npz" in missing
    assert "--images DIR" in missing
    found = deformrs("report", "run", "--images", "elsewhere/some.npz", cwd=digits)
    assert found.stderr == ""
    assert "data:image/png" in (digits / "run/report/report.html").read_text()
    np.savez(moved, images=np.zeros((3, 28, 28), np.uint8), labels=[0, 1, 2])
    other = deformrs("report", "run", "--images", "elsewhere/some.npz", cwd=digits).stderr
    assert "changed since it was certified" in other


def test_a_stricter_alpha_than_that_of_an_early_stop_gets_a_note(digits: Path) -> None:
    _certify(digits, "--deformation", "rotation", "--noise", "uniform:30deg", "--radii", "1deg")
    plain = deformrs("report", "run", "--no-images", cwd=digits)
    assert "uniform 30°, alpha = 0.001" in plain.stdout
    assert plain.stderr == ""
    strict = deformrs("report", "run", "--no-images", "--alpha", "1e-6", cwd=digits)
    assert "uniform 30°, alpha = 1e-06" in strict.stdout
    assert "sampled until decided at alpha = 0.001; at 1e-06 these samples are too few" in (
        strict.stderr
    )


def test_a_composition_is_asked_for_its_region(digits: Path) -> None:
    both = ("--deformation", "rotation+scaling", "--noise", "uniform:30deg+uniform:20%")
    region = "rotation<=5deg, scale=0.95..1.05"
    assert f'next: deformrs report run --region "{region}"' in _certify(digits, *both)
    alone = deformrs("report", "run", "--no-images", cwd=digits)
    assert f'--region "{region}"' in alone.stderr
    given = deformrs("report", "run", "--no-images", "--region", region, cwd=digits)
    assert given.stderr == ""
    assert "rotation up to 5°, then scale from 0.95 to 1.05" in given.stdout
