"""Images that a network was trained on are known when it is certified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_training import QUICK, trained
from PIL import Image

from deformrs.cli.defaults import find_trained
from deformrs.data import load_data
from inside import inside


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_images_it_was_trained_on_are_certified_with_a_note() -> None:
    digest = load_data("digits", split="train").about["sha256"]
    trained(Path("run"), digest=digest)
    asked_for = ("certify", "--model", "run", *QUICK)
    _, errors = inside(*asked_for, "--split", "train", "--out", "seen")
    assert errors == (
        "note: these are the images it was trained on; certified accuracy on them says little\n"
    )
    assert inside(*asked_for, "--out", "unseen")[1] == ""


@pytest.mark.parametrize("there", [True, False])
def test_folders_of_other_images_with_the_same_names(tmp_path: Path, there: bool) -> None:
    """The digest of a folder is of its files' names and labels."""
    for name in ("mine", "other"):
        for kind in ("cat", "dog"):
            (tmp_path / name / kind).mkdir(parents=True)
            Image.new("L", (28, 28)).save(tmp_path / name / kind / "1.png")
    seen, unseen = (load_data(tmp_path / name) for name in ("mine", "other"))
    assert seen.about["sha256"] == unseen.about["sha256"]
    place = tmp_path / "mine" if there else Path("gone") / "mine"
    trained(Path("run"), None, data=str(place), digest=seen.about["sha256"])
    about = json.loads(Path("run/training.json").read_text())
    about["data"]["name"] = "mine"
    Path("run/training.json").write_text(json.dumps(about))
    folder = find_trained("run")
    assert folder is not None
    assert folder.has_seen(seen)
    assert not folder.has_seen(unseen)
