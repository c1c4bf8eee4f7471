"""`deformrs certify --split held-out`: what training held out, to choose by."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_training import trained
from PIL import Image

from commands import QUICK, inside, run_inside
from deformrs.data import ImageSet, load_data
from deformrs.data.preparation import Preparation, pixels_digest
from deformrs.runs import load_run, read_config
from deformrs.runs.records import sealed, unsealed

SAMPLES = ("--n", "40", "--n0", "20", "--device", "cpu")
NET = """
from torch import nn
def build():
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16, 2))
"""


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data, and networks trained on three quarters of them."""
    place = tmp_path_factory.mktemp("held_out")
    shutil.copytree(data, place / "halves")
    (place / "net.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        options = ("--hold-out", "0.25", "--seed", "3", "--epochs", "1")
        run_inside("train", "--data", "halves", *QUICK, *options, "--out", "run")
        for name, model in (("normal", "resnet18:width=4"), ("own", "net.py:build")):
            network = (*QUICK, *options, "--model", model, "--out", name)
            run_inside("train", "--data", "halves", *network)
    return place


@pytest.fixture(autouse=True)
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def digests(images: ImageSet) -> list[str]:
    return [pixels_digest(pixels) for pixels, _ in images]


def test_exactly_what_was_not_trained_on() -> None:
    """The mean that the network subtracts is that of the images it was trained on."""
    said, errors = inside("certify", "--model", "normal", "--split", "held-out", *SAMPLES)
    assert errors == "", "no note: it has not seen them"
    assert "next: deformrs report normal/held-out" in said
    results = load_run("normal/held-out")
    held = {result.pixels for result in results}
    whole = load_data("halves", Preparation(channels=1), split="train")
    assert len(held) == len(results) == 10
    assert [result.index for result in results] == list(range(10))
    assert held < set(digests(whole))
    others = np.stack([pixels for pixels, _ in whole if pixels_digest(pixels) not in held])
    assert len(others) == 30
    about = json.loads(Path("normal/model.json").read_text())
    found = (*about["mean"], *about["std"])  # to four places
    assert found == pytest.approx((others.mean(), others.std()), abs=5.1e-5)
    everything = np.stack([pixels for pixels, _ in whole])
    assert found != pytest.approx((everything.mean(), everything.std()), abs=5.1e-5)
    sources = {whole.source(k): digest for k, digest in enumerate(digests(whole))}
    assert all(sources[result.source] == result.pixels for result in results)


def test_a_network_of_ones_own() -> None:
    network = ("--model", "net.py:build", "--weights", "own/best/model.safetensors")
    inside("certify", *network, "--split", "held-out", *SAMPLES, "--max", "2")
    assert len(load_run("own/best/held-out")) == 2


def test_the_run_is_bound_to_them() -> None:
    inside("certify", "--model", "run", "--split", "held-out", *SAMPLES, "--skip", "3")
    config = read_config(Path("run/held-out"))
    about = config["data"]
    assert isinstance(about, dict)
    training = json.loads(Path("run/training.json").read_text())
    assert about["held_out"] == {
        "share": 0.25,
        "seed": 3,
        "sha256": training["data"]["sha256"],
    }
    assert (about["split"], about["pictures"]) == ("held-out", 10)
    assert [result.index for result in load_run("run/held-out")] == [0, 3, 6, 9]
    assert not Path("run/config.json").exists()
    split = ("--split", "test", "--skip", "3", "--out", "run/held-out")
    assert "another one (" in inside("certify", "--model", "run", *SAMPLES, *split, code=1)[1]


def test_the_report_and_the_gallery_find_the_images_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside("certify", "--model", "run", "--split", "held-out", *SAMPLES, "--max", "5")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    _, errors = inside("report", "../run/held-out")
    assert errors == "", "every image was found"
    text = Path("../run/held-out/report/report.md").read_text()
    assert "## Rotation on halves (held out of training)" in text
    assert "of halves (held out of training), from 10" in text
    assert "data:image/png" in Path("../run/held-out/report/report.html").read_text()
    inside(
        *("gallery", "--run", "../run/held-out", "--images", "4", "--columns", "2"),
        *(*SAMPLES, "--predict-n", "10", "--out", "a.png"),
    )
    assert Path("a.png").stat().st_size > 1000
    # Another order of the images would show others: it is noticed.
    Image.new("L", (16, 16)).save("../halves/train/left/a.png")
    _, errors = inside("report", "../run/held-out", "--out", "again")
    assert "are not shown: the training split of halves is not the one trained on" in errors


def test_held_out_images_of_a_known_dataset_are_not_called_its_test_images() -> None:
    digest = load_data("digits", split="train").about["sha256"]
    trained(Path("digits"), digest=digest)
    note: Any = unsealed(Path("digits/training.json").read_text())
    note |= {"seed": 0, "data": note["data"] | {"hold_out": 0.1}}
    Path("digits/training.json").write_text(sealed(note))
    inside("certify", "--model", "digits", "--split", "held-out", *SAMPLES, "--max", "3")
    results = load_run("digits/held-out")
    assert all(result.source.startswith("digits train ") for result in results)
    config = json.loads(Path("digits/held-out/config.json").read_text())
    assert config["data"]["name"] == "digits (held out of training)"


def test_data_that_were_moved_are_named() -> None:
    Path("halves").rename("moved")
    asked = ("certify", "--model", "run", "--split", "held-out", *SAMPLES, "--max", "2")
    assert "which does not exist" in inside(*asked, code=1)[1]
    inside(*asked, "--data", "moved")
    assert len(load_run("run/held-out")) == 2


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "moved to another class"])
def test_a_folder_that_changed_is_refused(change: str) -> None:
    some = sorted(Path("halves/train/left").iterdir())[3]
    match change:
        case "added":
            shutil.copy(some, some.with_name("a.png"))
        case "removed":
            some.unlink()
        case "renamed":
            some.rename(some.with_name("z.png"))
        case _:
            some.rename(Path("halves/train/right/a.png"))
    _, errors = inside("certify", "--model", "run", "--split", "held-out", *SAMPLES, code=1)
    assert "the training split of halves is not the one trained on" in errors
    assert not Path("run/held-out").exists()


def test_splits_that_do_not_exist() -> None:
    shutil.copytree("halves", "others")
    np.savez("other.npz", images=np.zeros((40, 16, 16), np.uint8), labels=[0, 1] * 20)
    inside("train", "--data", "halves", *QUICK, "--epochs", "1", "--out", "all")
    for arguments, message in (
        (("--model", "all"), "--split is held-out; .* all was trained on all of them"),
        (("--model", "all/best"), "all was trained on all of them"),
        (("--model", "run", "--data", "others"), "--data is others; it must be halves"),
        (("--model", "run", "--data", "other.npz"), "the training split of other.npz is not"),
        (("--model", "net.py:build", "--data", "halves"), "net.py:build is no folder"),
        (("--model", "rum"), "the model is 'rum'"),
    ):
        _, errors = inside("certify", *arguments, "--split", "held-out", *SAMPLES, code=1)
        assert re.search(message, errors), errors
    assert (
        "did you mean 'held-out'"
        in inside("certify", "--model", "run", "--split", "heldout", code=2)[1]
    )
    Path("run/model.json").unlink()
    _, errors = inside("certify", "--model", "run", "--split", "held-out", code=1)
    assert "the training in run is not finished" in errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": None}, "seed or sha256 is missing"),
        ({"seed": -1}, "seed is -1"),
        ({"data": {"sha256": None}}, "seed or sha256 is missing"),
        ({"data": {"hold_out": "a"}}, "the share to hold out is 'a'"),
        ({"data": {"hold_out": 2}}, "the share to hold out is 2"),
    ],
)
def test_a_note_that_is_damaged(change: dict[str, object], message: str) -> None:
    note: Any = unsealed(Path("run/training.json").read_text())
    data = change.pop("data", {})
    assert isinstance(data, dict)
    note = note | change | {"data": note["data"] | data}
    Path("run/training.json").write_text(sealed(note))
    _, errors = inside("certify", "--model", "run", "--split", "held-out", code=1)
    assert "training.json is damaged" in errors
    assert message in errors
