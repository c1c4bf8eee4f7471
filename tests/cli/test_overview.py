"""What `certify` says before it samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import deformrs, fails
from deformrs import Compose, Gaussian, Independent, Rotation, Scaling, Uniform
from deformrs.cli.overview import Origin, content_words, image_words, likely_causes
from deformrs.data import load_data
from deformrs.data.preparation import Preparation
from deformrs.runs import CERTIFICATES, CONFIG, load_run, read_config
from deformrs.runs.tally import PARTIAL

FACTORY = """
from torch import nn

from deformrs.models import SmallCNN

def build():
    return SmallCNN(num_classes=3, channels=3, width=4, seed=9)

def untrained():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 3))
"""
TURN = ("--deformation", "rotation", "--noise", "uniform:30deg", "--device", "cpu")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight images of noise for each of three classes, and a factory of an untrained network."""
    generator = np.random.default_rng(0)
    for name in ("cat", "dog", "owl"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            pixels = generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "net.py").write_text(FACTORY)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "weights", "words"),
    [
        ("net.py:build", None, "net.py:build, weights as that function returns them"),
        ("net.py:build", "net.pth", "net.py:build, weights from net.pth"),
        ("timm:resnet18", None, "weights published by timm, downloaded or from its cache"),
        ("timm:resnet18", "mine.pth", "weights from mine.pth"),
        ("robustbench:Standard", None, "weights published by robustbench, downloaded"),
        ("hf:org/name", None, "weights published on Hugging Face"),
        ("net.onnx", None, "weights in that file"),
        ("runs/mine", None, "weights in that folder"),
    ],
)
def test_the_origin_of_the_weights_is_named(source: str, weights: str | None, words: str) -> None:
    origin = Origin(source, weights, None, None)
    assert words in origin.words
    assert origin.unknown == (source == "net.py:build" and weights is None)
    assert origin.normalisation == "none, or inside the network"
    assert Origin(source, weights, [0.5], [0.25]).normalisation == "mean 0.5; std 0.25"


def test_a_dry_run_says_it_all_and_writes_nothing(photos: Path) -> None:
    arguments = ("certify", "--model", "net.py:build", "--data", "photos", *TURN, "--out", "run")
    printed = deformrs(*arguments, "--n", "500", "--dry-run", cwd=photos).stdout
    rows = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert rows["model"] == "net.py:build, weights as that function returns them, twice the same"
    assert rows["normalisation"] == "none, or inside the network"
    assert rows["images"] == "24 of 24 from photos; the first 16 x 16 px, as stored"
    assert rows["labels"] == "the class folders in sorted order: cat = 0, dog = 1, owl = 2"
    assert rows["deformation"] == "rotation: uniform noise of scale 30°; zeros padding"
    assert rows["samples"].startswith("n0 = 100, then n = 500 per image; alpha = 0.001, bound")
    assert rows["seed"] == "a random one"
    assert "on cpu, batches of 256" in rows["execution"]
    assert rows["folder"] == "run, new"
    assert "at 500 samples an image" in rows["time"]
    assert "warning:" not in rows
    assert "--class-names" in rows["note:"]
    assert len(printed.splitlines()) <= 13
    assert not (photos / "run").exists()


def test_weights_that_differ_from_call_to_call_are_called_random(photos: Path) -> None:
    model = ("certify", "--model", "net.py:untrained", "--data", "photos", *TURN, "--out", "run")
    printed = deformrs(*model, "--n", "100", "--dry-run", cwd=photos).stdout
    assert "model          net.py:untrained, weights as that function returns them\n" in printed
    (warning,) = (line for line in printed.splitlines() if line.startswith("warning:"))
    assert "they are random, and an untrained network is certified" in warning
    assert "--weights FILE" in warning


def test_a_run_names_what_is_done_and_what_is_read_from_its_folder(photos: Path) -> None:
    arguments = ("certify", "--model", "net.py:build", "--data", "photos", *TURN, "--out", "run")
    few = (*arguments, "--n", "20", "--n0", "10")
    deformrs(*few, "--max", "20", cwd=photos)
    done, seed = len(load_run(photos / "run")), read_config(photos / "run")["seed"]
    printed = deformrs(*few, cwd=photos)
    folder = f"run, {done} of 24 images are certified already, and read from there"
    assert f"folder         {folder}\n" in printed.stdout
    assert f"seed           {seed}, with which the run in that folder began\n" in printed.stdout
    (warning, *causes) = printed.stderr.splitlines()
    assert warning.startswith("warning: without noise the model is right on ")
    assert [cause.split()[1] for cause in causes] == ["random", "labels", "missing", "images"]
    again = deformrs(*few, cwd=photos).stdout
    assert again.startswith("all 24 images are certified already: read from run\n")
    assert "normalisation" not in again
    assert "next: deformrs report run" in again
    line = fails(*arguments, "--n", "30", "--dry-run", cwd=photos)
    assert "cannot go on with other settings" in line


def test_a_folder_where_the_first_image_was_interrupted_is_not_new(photos: Path) -> None:
    arguments = ("certify", "--model", "net.py:build", "--data", "photos", *TURN, "--out", "run")
    (photos / "run").mkdir()
    (photos / "run" / CERTIFICATES).touch()
    (photos / "run" / PARTIAL).write_text("{}")
    (photos / "run" / CONFIG).write_text(
        '{"noise": {"name": "uniform", "scale": 1}, "alpha": 0.1, "method": "anytime"}'
    )
    printed = deformrs(*arguments, "--n", "20", "--dry-run", cwd=photos).stdout
    assert "folder         run, begun; samples of an interrupted image are kept\n" in printed


def test_only_files_may_differ_in_size(photos: Path) -> None:
    np.savez(photos / "some.npz", images=np.zeros((3, 20, 16), np.uint8), labels=np.arange(3))
    stored = load_data(photos / "some.npz")
    assert image_words(stored, range(2)) == "2 of 3 from some.npz; 20 x 16 px, as stored"
    files = load_data(photos / "photos", Preparation(channels=1))
    assert image_words(files, [0, 8, 16, 1]).endswith("from photos; the first 16 x 16 px, grey")
    assert "4 of 24 (spread over the classes)" in image_words(files, [0, 8, 16, 1])
    cropped = load_data(photos / "photos", Preparation(resize=20, crop=(12, 12)))
    assert "; 12 x 12 px, shorter side to 20 px" in image_words(cropped, range(24))


def test_scaling_says_what_it_does_to_the_content() -> None:
    both = Compose(Rotation(), Scaling()).space((28, 28))
    alone = Scaling().space((28, 28))
    assert content_words(Uniform(0.2), alone) == " (content shown at 84 to 125 % of its size)"
    gaussian = " (content mostly shown at 84 to 125 % of its size)"
    assert content_words(Independent(Uniform(0.5), Gaussian(0.1)), both) == gaussian
    assert content_words(Uniform(0.5), Rotation().space((28, 28))) == ""


def test_only_causes_that_apply_are_named() -> None:
    digits = load_data("digits")
    normalised = Origin("net.py:build", "net.pth", [0.5], [0.5])
    assert len(likely_causes(normalised, digits, below=False)) == 1
    below = likely_causes(Origin("net.py:build", None, None, None), digits, below=True)
    assert [cause.split()[0] for cause in below] == ["labels", "random", "missing", "images"]
    library = likely_causes(Origin("timm:resnet18", None, [0.5], [0.5]), digits, below=False)
    assert [cause.split()[0] for cause in library] == ["images"]
