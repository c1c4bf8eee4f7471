"""Options of models, and paths among the options of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from deformrs.cli.options import ModelOptions
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.execution import chosen_device
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


@pytest.mark.parametrize("text", ["cudda", "meta", "cuda:77", ""])
def test_devices_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="cannot be used here"):
        chosen_device(text)
