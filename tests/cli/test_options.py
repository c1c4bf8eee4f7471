"""Options of models, and paths among the options of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import deformrs, fails
from deformrs.cli.options import ModelOptions
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.execution import chosen_device
from deformrs.runs import load_run, read_config
from deformrs.runs.folder import RELATIVE_TO, located, located_code, start_of

FACTORY = """
from deformrs.models import NetworkSpec, SmallCNN
from deformrs.data.preparation import Preparation

def build():
    preparation = Preparation(64, (56, 56), "bicubic", 3)
    return NetworkSpec(SmallCNN(channels=3, width=4), preparation)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(FACTORY)
    return f"{tmp_path / 'net.py'}:build"


def test_what_is_not_asked_for_stays_as_the_model_expects(source: str) -> None:
    assert ModelOptions(source).load().preparation == Preparation(64, (56, 56), "bicubic", 3)
    only_resize = ModelOptions(source, resize=60).load().preparation
    assert only_resize == Preparation(60, (56, 56), "bicubic", 3)
    other = ModelOptions(source, crop=32, interpolation="nearest").load().preparation
    assert other == Preparation(64, (32, 32), "nearest", 3)


def test_normalisation_that_is_asked_for_wins(source: str) -> None:
    about = ModelOptions(source, mean=(0.5,), std=(0.25,)).load().about
    assert about["mean"] == [0.5]
    assert about["std"] == [0.25]


@pytest.mark.parametrize("text", ["photos", "hf:photos", "mnist:photos", "photos/net.py:build"])
def test_files_are_found_from_where_the_run_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    start = tmp_path / "start"
    (start / "photos").mkdir(parents=True)
    (start / "photos" / "net.py").write_text("")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(start)
    options: Config = {RELATIVE_TO: start_of(Path("runs/a"))}
    assert options == {RELATIVE_TO: "../.."}
    assert located(text, Path("runs/a"), options) == text
    monkeypatch.chdir(tmp_path / "else")
    found = located(text, Path("../start/runs/a"), options)
    assert found == text.replace("photos", "../start/photos")
    # The whole tree may be moved.
    start.rename(tmp_path / "moved")
    found = located(text, Path("../moved/runs/a"), options)
    assert found == text.replace("photos", "../moved/photos")


def test_names_are_no_paths_even_where_folders_are_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("digits", "rotation", "runs"):
        (tmp_path / "start" / name).mkdir(parents=True)
    (tmp_path / "start" / "lens.py").write_text("")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    options: Config = {RELATIVE_TO: ".."}
    assert located("digits", Path("../start/runs"), options) == "digits"
    found = located_code("rotation+lens.py:Lens", Path("../start/runs"), options)
    assert found == "rotation+../start/lens.py:Lens"


@pytest.mark.parametrize("text", ["timm:resnet18", "digits", "/nowhere/at/all", "rotation"])
def test_what_is_no_file_stays_as_it_is(tmp_path: Path, text: str) -> None:
    assert located(text, tmp_path, {RELATIVE_TO: ".."}) == text


WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FEW = ["--n", "30", "--n0", "20", "--device", "cpu"]


@pytest.mark.usefixtures("no_figures")
def test_class_names_match_folders_and_go_with_the_run(tmp_path: Path, network: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 28, 28), dtype=np.uint8)
    for number in (9, 4, 0):
        folder = tmp_path / "photos" / WORDS[number]
        folder.mkdir(parents=True)
        Image.fromarray(pixels[number]).save(folder / "a.png")
    names = tmp_path / "names.txt"
    names.write_text("\n".join(WORDS))
    run = ["--model", "network", "--deformation", "rotation", "--noise", "uniform:20deg", *FEW]
    certify = ["certify", *run, "--data", "photos"]
    assert "number of class folders is 3" in fails(*certify, "--out", "no", cwd=tmp_path)
    deformrs(*certify, "--class-names", "names.txt", "--out", "run", cwd=tmp_path)
    results = load_run(tmp_path / "run")
    assert {r.source: r.label for r in results} == {
        "four/a.png": 4,
        "nine/a.png": 9,
        "zero/a.png": 0,
    }
    config = read_config(tmp_path / "run")
    assert config["data"]["class_names"] == list(WORDS)  # type: ignore[index,call-overload]
    assert "class_names" not in config["options"]  # type: ignore[operator]
    names.rename(tmp_path / "elsewhere.txt")
    deformrs("report", "run", cwd=tmp_path)
    for word in ("zero", "four", "nine"):
        assert word in (tmp_path / "run" / "report" / "report.html").read_text()
    image = "photos/four/a.png"
    predict = ["predict", image, *FEW[:-2], "--alpha", "0.5", "--n", "200", "--json"]
    plain = json.loads(deformrs(*predict, *run, cwd=tmp_path).stdout)
    assert plain["class_name"] is None
    name = WORDS[plain["prediction"]]
    found = deformrs(*predict, "--run", "run", cwd=tmp_path).stdout
    assert json.loads(found)["class_name"] == name
    given = deformrs(*predict, *run, "--class-names", "elsewhere.txt", cwd=tmp_path).stdout
    assert json.loads(given)["class_name"] == name
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    short = ["--class-names", "short.txt"]
    assert "2; it must be that of its scores, 10" in fails(*predict, *run, *short, cwd=tmp_path)
    assert "must name the 10 classes" in fails("report", "run", *short, cwd=tmp_path)
    (tmp_path / "photos").rename(tmp_path / "numbered")
    for folder in sorted((tmp_path / "numbered").iterdir()):
        folder.rename(folder.with_name(str(WORDS.index(folder.name))))
    numbered = ["certify", *run, "--data", "numbered", "--out", "no"]
    few = fails(*numbered, *short, cwd=tmp_path)
    assert "0 to 1, which has 2 class names" in few
    assert "complete the class names" in few
    assert "names.txt is not readable" in fails(
        *certify, "--class-names", "names.txt", "--out", "run", cwd=tmp_path
    )


@pytest.mark.usefixtures("no_figures")
def test_a_report_names_the_classes_of_a_run_without_names(tmp_path: Path, network: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "some.npz", images=pixels, labels=[3, 4, 5])
    deformrs(
        *("certify", "--model", network, "--data", "some.npz", "--deformation", "rotation"),
        *("--noise", "uniform:20deg", *FEW, "--out", "run"),
        cwd=tmp_path,
    )
    (tmp_path / "names.json").write_text(json.dumps(WORDS))
    deformrs("report", "run", "--class-names", "names.json", cwd=tmp_path)
    assert "three" in (tmp_path / "run" / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    "command",
    [
        ["certify", "--model", "net", "--data", ""],
        ["certify", "--model", "net", "--noise", " "],
        ["certify", "--model", "net", "--region="],
        ["train", "--data", "digits", "--model", ""],
        ["predict", "a.png", "--run", "", "--n", "10"],
        ["gallery", "--deformation", "\t"],
        ["report", "run", "--class-names", ""],
        ["sweep", "--out", ""],
        ["pack", "run", ""],
        ["bench", "--device", ""],
        ["quickstart", "--out", ""],
    ],
)
def test_an_empty_value_is_an_error_that_names_its_option(command: list[str]) -> None:
    line = fails(*command, code=2)
    option = next((part for part in reversed(command[:4]) if part.startswith("--")), "argument")
    assert f"{option.rstrip('=')} " in line
    assert "is empty" in line


@pytest.mark.parametrize("text", ["cudda", "meta", "cuda:77", ""])
def test_devices_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="cannot be used here"):
        chosen_device(text)
