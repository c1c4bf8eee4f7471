"""The first two minutes: the command, its files, its figures."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from deformrs import __version__
from deformrs.cli import commands
from deformrs.rounding import percent_down
from deformrs.runs import load_run

SMALL = ["--digits", "12", "--epochs", "2", "--n", "300"]


def deformrs(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deformrs", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("runs") / "quickstart"
    finished = deformrs("quickstart", *SMALL, "--out", str(out))
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return out, finished.stdout


def test_writes_every_file(tour: tuple[Path, str]) -> None:
    out, printed = tour
    shown = {"certificates.jsonl", "curve.png", "gallery.png", "table.md"}
    network = {"model.json", "model.safetensors", "training.json", "epochs.jsonl", "best"}
    assert {path.name for path in out.iterdir()} == shown | network | {"config.json", "times.tsv"}
    for name in shown:
        assert name in printed
    for name in ("curve.png", "gallery.png"):
        with Image.open(out / name) as image:
            assert min(image.size) > 300


def test_prints_what_the_certificates_say(tour: tuple[Path, str]) -> None:
    out, printed = tour
    results = load_run(out)
    assert len(results) == 12
    for degrees in (10, 30, 60):
        held = sum(result.holds(math.radians(degrees)) for result in results)
        assert re.search(rf"up to +{degrees}° +{percent_down(held, 12)} %", printed)
        assert f"| {degrees}° | {percent_down(held, 12)} % |" in (out / "table.md").read_text()


def test_progress_is_plain_without_a_terminal(tour: tuple[Path, str]) -> None:
    _, printed = tour
    assert "training, epochs: 2/2" in printed
    assert "certifying: 12/12" in printed
    assert "\x1b" not in printed


def test_the_same_seed_gives_the_same_bytes(tour: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = tour
    assert deformrs("quickstart", *SMALL, "--out", str(tmp_path)).returncode == 0
    for name in ("certificates.jsonl", "model.safetensors", "table.md"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()


def test_records_can_be_certified_again_at_another_alpha(tour: tuple[Path, str]) -> None:
    out, _ = tour
    lines = (out / "certificates.jsonl").read_text().splitlines()
    for result, line in zip(load_run(out), lines, strict=True):
        record = json.loads(line)
        assert list(result.certificate.radii) == record["radii"]
        assert result.certificate.prediction == record["prediction"]
        assert result.certificate.counts.n == 300
    usual, strict = (
        sum(result.certificate.radius for result in load_run(out, alpha=alpha))
        for alpha in (0.001, 1e-9)
    )
    assert strict < usual


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--digits", "0"], "digits is 0"),
        (["--digits", "1001"], r"must lie in \[1, 1000\]"),
        (["--alpha", "1.5"], "alpha is 1.5"),
        (["--alpha", "nan"], "alpha is nan"),
        (["--epochs", "0"], "epochs is 0"),
        (["--n", "0"], "n is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--seed", "99999999999999999999999"], "below 2"),
        (["--out", "/dev/null/here"], "Not a directory"),
    ],
)
def test_failures_are_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    finished = deformrs("quickstart", "--out", str(tmp_path), *arguments)
    assert finished.returncode == 1
    assert re.search(message, finished.stderr)
    assert finished.stderr.startswith("error: ")
    assert len(finished.stderr.splitlines()) == 1


def test_a_killed_run_goes_on_to_the_same_bytes(tour: tuple[Path, str], tmp_path: Path) -> None:
    whole = tour[0] / "certificates.jsonl"
    command = [sys.executable, "-m", "deformrs", "quickstart", *SMALL, "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        path = tmp_path / "certificates.jsonl"
        while process.poll() is None:
            if path.exists() and path.read_bytes().count(b"\n") >= 3:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
    assert process.returncode == -signal.SIGKILL
    assert len(path.read_bytes()) < len(whole.read_bytes())
    assert deformrs("quickstart", *SMALL, "--out", str(tmp_path)).returncode == 0
    assert path.read_bytes() == whole.read_bytes()


def test_a_finished_run_is_only_drawn_again(tour: tuple[Path, str]) -> None:
    again = deformrs("quickstart", *SMALL, "--out", str(tour[0]))
    assert again.returncode == 0
    assert "training, epochs" not in again.stdout
    assert "trained already" in again.stdout
    figures = tour[1][tour[1].index("Certified accuracy") :]
    assert again.stdout.endswith(figures)
    assert "samples/s" not in again.stdout


def test_other_settings_in_the_same_folder_are_refused(tour: tuple[Path, str]) -> None:
    before = (tour[0] / "certificates.jsonl").read_bytes()
    refused = deformrs("quickstart", *SMALL, "--epochs", "3", "--out", str(tour[0]))
    assert refused.returncode == 1
    assert "cannot go on with other settings" in refused.stderr
    assert "epochs: 2 there, 3 here" in refused.stderr
    refused = deformrs("quickstart", *SMALL, "--n", "301", "--out", str(tour[0]))
    assert refused.returncode == 1
    assert "n: 300 there, 301 here" in refused.stderr
    assert (tour[0] / "certificates.jsonl").read_bytes() == before


def test_help_and_version() -> None:
    runner = CliRunner()
    assert __version__ in runner.invoke(commands, ["--version"]).output
    for arguments in (["--help"], ["quickstart", "--help"]):
        shown = runner.invoke(commands, arguments).output
        assert "Example:" in shown
        assert re.search(r"deformrs quickstart", shown)


def test_a_folder_of_another_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    refused = deformrs("quickstart", *SMALL, "--out", str(tmp_path))
    assert refused.returncode == 1
    assert "holds another run or model already" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
