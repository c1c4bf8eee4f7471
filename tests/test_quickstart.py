"""`deformrs quickstart`: its files, its figures, its errors."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from commands import deformrs, fails, inside
from deformrs import __version__
from deformrs.rounding import percent_down
from deformrs.runs import load_run

SMALL = ["--digits", "12", "--epochs", "2", "--n", "300"]


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of a short run, and its output."""
    place = tmp_path_factory.mktemp("runs")
    finished = deformrs("quickstart", *SMALL, "--out", "quickstart", cwd=place)
    assert finished.stderr == ""
    return place / "quickstart", finished.stdout


def test_writes_every_file(tour: tuple[Path, str]) -> None:
    out, printed = tour
    made = {"certificates.jsonl", "gallery.png", "report"}
    network = {"model.json", "model.safetensors", "training.json", "epochs.jsonl", "best"}
    assert {path.name for path in out.iterdir()} == made | network | {"config.json", "times.tsv"}
    for name in ("report.html", "gallery.png"):
        assert name in printed
    with Image.open(out / "gallery.png") as image:
        assert min(image.size) > 300


def test_prints_what_the_certificates_say(tour: tuple[Path, str]) -> None:
    out, printed = tour
    results = load_run(out)
    assert len(results) == 12
    with (out / "report/tables/digits-rotation-accuracy.csv").open() as table:
        reported = {row["requested"]: row["certified"] for row in csv.DictReader(table)}
    for degrees in (10, 30, 60):
        certified = sum(result.holds(math.radians(degrees)) for result in results)
        share = percent_down(certified, 12)
        assert re.search(rf"up to +{degrees}° +{share} %", printed)
        assert reported[f"{degrees}°"] == str(certified)
    page = (out / "report" / "report.html").read_text()
    assert "data:image/png;base64," in page, "the least robust images are shown"
    assert "deformrs certify --model net.py:build" in printed.partition("next")[2]


def test_progress_is_plain_without_a_terminal(tour: tuple[Path, str]) -> None:
    _, printed = tour
    assert "training, epochs: 2/2" in printed
    assert "certifying: 12/12" in printed
    assert "\x1b" not in printed


def test_the_same_seed_gives_the_same_bytes(tour: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = tour
    deformrs("quickstart", *SMALL, "--out", "quickstart", cwd=tmp_path)
    table = "report/tables/digits-rotation-accuracy.csv"
    for name in ("certificates.jsonl", "model.safetensors", "gallery.png", table):
        assert (tmp_path / "quickstart" / name).read_bytes() == (out / name).read_bytes()


def test_a_run_that_was_cut_off_goes_on_to_the_same_bytes(
    tour: tuple[Path, str], tmp_path: Path
) -> None:
    whole = (tour[0] / "certificates.jsonl").read_bytes()
    shutil.copytree(tour[0], tmp_path / "cut")
    (tmp_path / "cut" / "certificates.jsonl").write_bytes(whole[: len(whole) // 2])
    deformrs("quickstart", *SMALL, "--out", "cut", cwd=tmp_path)
    assert (tmp_path / "cut" / "certificates.jsonl").read_bytes() == whole


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
        (["--alpha", "nan"], "alpha is nan"),
        (["--epochs", "0"], "epochs is 0"),
        (["--n", "0"], "n is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--seed", "99999999999999999999999"], "below 2"),
    ],
)
def test_bad_options_are_named_before_anything_is_written(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    _, error = inside("quickstart", "--out", str(tmp_path / "run"), *arguments, code=1)
    assert re.search(message, error)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(tmp_path: Path) -> None:
    assert "Not a directory" in fails("quickstart", "--out", "/dev/null/here", cwd=tmp_path)


def test_a_finished_run_is_only_drawn_again(tour: tuple[Path, str]) -> None:
    printed, _ = inside("quickstart", *SMALL, "--out", str(tour[0]))
    assert "training, epochs" not in printed
    assert "trained already" in printed
    figures = tour[1][tour[1].index("Certified accuracy") : tour[1].index("\nreport ")]
    assert figures in printed
    assert "samples/s" not in printed


def test_other_settings_in_the_same_folder_are_refused(tour: tuple[Path, str]) -> None:
    out = tour[0]
    before = (out / "certificates.jsonl").read_bytes()
    for option, value, difference in (
        ("--epochs", "3", "epochs: 2 there, 3 here"),
        ("--n", "301", "n: 300 there, 301 here"),
    ):
        _, error = inside("quickstart", *SMALL, option, value, "--out", str(out), code=1)
        assert difference in error
    assert (out / "certificates.jsonl").read_bytes() == before


def test_help_and_version() -> None:
    assert __version__ in inside("--version")[0]
    for arguments in (["--help"], ["quickstart", "--help"]):
        text, _ = inside(*arguments)
        assert "Example" in text
        assert "deformrs quickstart" in text


def test_a_folder_of_another_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    _, error = inside("quickstart", *SMALL, "--out", str(tmp_path), code=1)
    assert "holds another run or model already" in error
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
