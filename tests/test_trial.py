"""Two strangers try deformrs: real files, real processes, an installation of their own.

An engineer has a model and a folder of images and wants a report; a researcher trains a network and
wants a table. Then everything that either of them got wrong on the way, with the message it gets.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from deformrs import load_data, load_run
from deformrs.data.preparation import Preparation

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MODEL = """
import torch
from torch import nn

from deformrs.data.preparation import Preparation
from deformrs.models import NetworkSpec


def build():
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 10))
    return NetworkSpec(network, Preparation(channels=1), mean=({mean},), std=({std},))


def binary():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1))
"""
SMOOTHING = ("--deformation", "rotation", "--noise", "uniform:30deg")
FEW = ("--n", "1000", "--radii", "10deg", "--max", "20", "--device", "cpu")
MODEL_OPTIONS = ("--model", "net.py:build", "--weights", "net.safetensors")
ENGINEER = (*MODEL_OPTIONS, *SMOOTHING, *FEW)


@dataclass(frozen=True)
class Desk:
    """A working directory with a model and images, and the program as it was installed."""

    folder: Path
    program: Path

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Run the program; return its output and its errors, of which none is a traceback."""
        done = subprocess.run(
            [self.program, *words],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    def python(self, code: str) -> str:
        """Run a script with the interpreter of the installation; return its output."""
        done = subprocess.run(
            [self.program.with_name("python"), "-c", code],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


def _environment() -> dict[str, str]:
    """Return the environment of a user who has no checkout on the path."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return own | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Desk:
    """Install the package as docs/installing.md says, beside the libraries that are here."""
    folder = tmp_path_factory.mktemp("desk")
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    packages = next((venv / "lib").glob("python3*")) / "site-packages"
    # The libraries are those of these tests; what is installed is the package alone.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(root)], check=True, env=_environment())
    _write_model(folder)
    return Desk(folder, venv / "bin/deformrs")


def _write_model(folder: Path) -> None:
    """Write net.py, its weights, photos/0 … photos/9 and words/zero … words/nine.

    The network has random features and a last layer fitted by least squares, which takes a second.
    """
    training = load_data("digits", Preparation(channels=1), split="train")
    pixels = np.stack([image.ravel() for image, _ in training])
    mean, std = float(pixels.mean()), float(pixels.std())
    generator = np.random.default_rng(0)
    weight = (generator.standard_normal((400, 784)) / 28).astype(np.float32)
    bias = (generator.standard_normal(400) / 28).astype(np.float32)
    features = np.maximum((pixels - mean) / std @ weight.T + bias, 0)
    table = np.concatenate([features, np.ones((len(features), 1))], axis=1).astype(float)
    targets = 2 * np.eye(10)[list(training.labels)] - 1
    last = np.linalg.solve(table.T @ table + 10 * np.eye(401), table.T @ targets)
    layers = {"1.weight": weight, "1.bias": bias}
    layers |= {"3.weight": last[:-1].T.astype(np.float32), "3.bias": last[-1].astype(np.float32)}
    layers = {name: np.ascontiguousarray(array) for name, array in layers.items()}
    save_file(layers, folder / "net.safetensors")
    (folder / "net.py").write_text(MODEL.format(mean=mean, std=std))
    (folder / "names.txt").write_text("\n".join(NUMBERS) + "\n")
    torch.save(torch.nn.Linear(784, 10), folder / "whole.pth")
    seen = dict.fromkeys(range(10), 0)
    for image, label in load_data("digits", Preparation(channels=1)):
        if seen[label] == 3:
            continue
        seen[label] += 1
        for place in (folder / "photos" / str(label), folder / "words" / NUMBERS[label]):
            place.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(np.rint(255 * image[0]).astype(np.uint8))
            picture.save(place / f"{seen[label]}.png")
    shutil.copytree(folder / "words", folder / "misspelt")
    (folder / "misspelt/seven").rename(folder / "misspelt/sevn")


def test_an_engineer_goes_from_installation_to_a_report(desk: Desk) -> None:
    said, _ = desk.run("certify", *ENGINEER, "--data", "photos", "--out", "run", "--dry-run")
    for expected in ("net.safetensors", "rotation", "30°", "1,000", "10 classes", "20"):
        assert expected in said, said
    assert not (desk.folder / "run").exists()

    # Interrupted once, as soon as there is a folder to resume.
    words = ["certify", *ENGINEER, "--data", "photos", "--out", "run"]
    process = subprocess.Popen(
        [desk.program, *words],
        cwd=desk.folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (desk.folder / "run/config.json").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=240)
    assert process.returncode == 0 or "the same command resumes it" in complaint
    said, complaint = desk.run(*words)
    assert complaint == ""
    assert "right, certified up to 10deg" in said
    run = load_run(desk.folder / "run")
    # Spread over the classes, rather than the first of them.
    assert sorted(result.label for result in run) == sorted(2 * list(range(10)))
    certified = sum(result.holds(math.radians(10)) for result in run)
    assert certified >= 10

    said, _ = desk.run("report", "run")
    assert f"({certified}/20)" in said
    assert "report.html" in said
    page = (desk.folder / "run/report/report.html").read_text()
    assert "not requested" in page

    (desk.folder / "photos/3/README.md").write_text("three photographs")
    files = sorted(str(path) for path in (desk.folder / "photos/3").iterdir())
    own = (
        "--run",
        "run",
        "--model",
        "net.py:build",
    )  # code of hers, which a run may not name alone
    said, complaint = desk.run("predict", *files, *own, "--n", "500")
    assert "README.md" in complaint
    assert len(said.splitlines()) == 3
    (desk.folder / "photos/3/README.md").unlink()
    desk.run("gallery", *own, "--columns", "2")
    with Image.open(desk.folder / "run/gallery.png") as image:
        assert min(image.size) > 300


def test_a_researcher_goes_from_training_to_a_table(desk: Desk) -> None:
    quick = ["--epochs", "1", "--batch-size", "64", "--device", "cpu", "--no-tensorboard"]
    model = ["--data", "digits", "--model", "small_cnn:width=8"]
    desk.run("train", *model, *SMOOTHING, *quick, "--out", "trained")
    desk.run("certify", "--model", "trained", *FEW, "--out", "trained/decided")
    desk.run("certify", "--model", "trained", "--n", "200", "--max", "20", "--device", "cpu")
    said, _ = desk.run("report", "trained", "trained/decided", "--radii", "5deg,10deg")
    assert "10°" in said
    tables = desk.folder / "trained/report/tables"
    assert any("tabular" in path.read_text() for path in tables.glob("*.tex"))
    assert "not requested" in (desk.folder / "trained/report/report.md").read_text()


NOTEBOOK = """
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

import deformrs
from deformrs import Gaussian, Rotation, SmoothedClassifier, Translation, Uniform, load_model

run = deformrs.certify(
    "net.py:build", "photos", "rotation", "uniform:30deg", weights="net.safetensors", n=200, max=10
)
assert len(run) == 10 and str(run)
assert isinstance(deformrs.curve(run), matplotlib.figure.Figure)

loaded = load_model("net.py:build", weights=Path("net.safetensors"))
g = SmoothedClassifier(loaded, Rotation(), Uniform("30deg"))
assert len(repr(g)) < 120, repr(g)
picture = Image.open("photos/0/1.png")
array = np.asarray(picture)
tensor = torch.tensor(array)[None].float() / 255
certificates = [g.certify(image, n=500) for image in (picture, array, tensor)]
assert len({c.counts for c in certificates}) == 1
c = certificates[0]
assert c.covers("0deg") and "°" in str(c) and "svg" in c._repr_html_()
assert c.at(alpha=0.01).radius >= c.radius
assert c.radius_in("deg") == 0 or 0 < c.radius_in("deg") < 30

images = torch.stack([tensor, tensor.flip(-1)])
assert len(g.certify_batch(images)) == 2
loader = DataLoader(TensorDataset(images, torch.tensor([0, 0])), batch_size=2)
for data in (loader, loader.dataset, (images.numpy(), np.array([0, 0])), [(picture, 0)]):
    assert [result.label for result in deformrs.certify_dataset(g, data, n=100)][0] == 0

network = load_model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 3)).eval())
shifted = SmoothedClassifier(network, Translation(), Gaussian("4px"))
assert shifted.predict(tensor, n=50) in (None, 0, 1, 2)


class Output(dict):
    logits = property(lambda self: self["logits"])


def as_libraries_do(x):
    return Output(logits=loaded.module(x))


wrapped = SmoothedClassifier(as_libraries_do, Rotation(), Uniform("30deg"))
assert wrapped.certify(tensor, n=500).counts == c.counts
print("all of it")
"""


def test_a_notebook_is_written_as_people_write_it(desk: Desk) -> None:
    assert desk.python(NOTEBOOK).endswith("all of it\n")


NETWORK = "--model net.py:build --weights net.safetensors"
ROTATED = f"{NETWORK} --deformation rotation --noise uniform:30deg --device cpu"
PHOTOS = "--data photos --out x"
# The command, and what its error must mention.
MISTAKES = {
    "length without a unit": (
        f"certify {NETWORK} --deformation translation --noise gaussian:4 {PHOTOS}",
        ["56 px", "gaussian:4px"],
    ),
    "percentage without its sign": (
        f"certify {NETWORK} --deformation scaling --noise uniform:30 {PHOTOS}",
        ["3,000 %", "uniform:30%"],
    ),
    "radius beyond the noise": (
        f"certify {ROTATED} --n 1000 --radii 60deg {PHOTOS}",
        ["60deg", "29."],
    ),
    "too few samples": (f"certify {ROTATED} --n 5 {PHOTOS}", ["n is 5", "alpha"]),
    "mean of bytes": (
        f"certify {ROTATED} --mean 123.675 --std 58.395 {PHOTOS}",
        ["--mean 0.485", "--std 0.229"],
    ),
    "output of an unset variable": (f"certify {ROTATED} --data photos --out=", ["--out", "empty"]),
    "one score": (
        f"certify --model net.py:binary --deformation rotation --noise uniform:30deg {PHOTOS}",
        ["two"],
    ),
    "pickled network": (
        f"certify {ROTATED} --weights whole.pth {PHOTOS}",
        ["state_dict"],
    ),
    "misspelt class": (
        f"certify {ROTATED} --class-names names.txt --data misspelt --out x",
        ["'sevn'", "did you mean 'seven'"],
    ),
    "no image at all": ("predict net.py --run run", ["net.py"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_line_that_says_what_to_do(desk: Desk, mistake: str) -> None:
    command, expected = MISTAKES[mistake]
    _, complaint = desk.run(*command.split(), code=2 if command.endswith("=") else 1)
    errors = [line for line in complaint.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, complaint
    for fragment in expected:
        assert fragment in errors[0]
    assert not (desk.folder / "x").exists()


def test_labels_matched_by_a_guess_are_announced_and_named_when_accuracy_is_at_chance(
    desk: Desk,
) -> None:
    words = ["certify", *ENGINEER, "--data", "words", "--out", "guessed"]
    said, complaint = desk.run(*words)
    assert "sorted order" in said
    assert "eight" in said  # taken for class 0
    assert "near the 10 % of guessing" in complaint
    assert "--class-names" in complaint
    named = [*words[:-1], "named", "--class-names", "names.txt"]
    said, complaint = desk.run(*named)
    assert complaint == ""
    right = sum(result.correct for result in load_run(desk.folder / "named"))
    assert right >= 10


def test_a_network_without_weights_is_called_random(desk: Desk) -> None:
    model = ["--model", "net.py:build", *SMOOTHING]
    said, complaint = desk.run(
        "certify", *model, *FEW, "--data", "photos", "--out", "x", "--dry-run"
    )
    assert "random" in said + complaint
