"""`deformrs certify`, end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torchvision_ops
from commands import deformrs, fails
from deformrs import Counts, Region, Rotation, Uniform
from deformrs.cli.certify import _Display
from deformrs.cli.jobs import prepare
from deformrs.cli.options import DataOptions, ModelOptions, SmoothingOptions
from deformrs.data import ImageSet, load_data
from deformrs.models import SmallCNN, load_model
from deformrs.rounding import percent_down
from deformrs.rule import GIVEN_UP, looks
from deformrs.runs import CERTIFICATES, Result, load_run, read_config

FACTORY = """
from deformrs.models import SmallCNN

def build():
    return SmallCNN(num_classes=3, channels=3, width=4, seed=9)
"""
QUICK = ["--n", "60", "--n0", "20", "--device", "cpu", "--precision", "float32"]
TURN = ("--deformation", "rotation", "--noise", "uniform:30deg")
WIDE = ("--deformation", "rotation", "--noise", "uniform:60deg")
COLOURS = {"blue": (20, 30, 220), "green": (20, 200, 40), "red": (210, 20, 30)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two photographs of each of three classes, of different sizes."""
    generator = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            pixels = np.clip(
                np.array(colour) + generator.integers(-20, 20, (40 + 8 * number, 48, 3)), 0, 255
            )
            image = Image.fromarray(pixels.astype(np.uint8))
            image.save(tmp_path / "photos" / name / f"{number}.jpg")
    return tmp_path / "photos"


def colour_net() -> SmallCNN:
    return SmallCNN(num_classes=3, channels=3, width=4, seed=11).eval()


def certified(folder: Path, *arguments: str | Path) -> list[int | None]:
    """Certify the photographs by that model; the plain answers."""
    deformrs("certify", *QUICK, *TURN, *arguments, "--data", "photos", "--out", "run", cwd=folder)
    results = load_run(folder / "run")
    assert [result.label for result in results] == [0, 0, 1, 1, 2, 2]
    assert [result.source for result in results][:3] == ["blue/0.jpg", "blue/1.jpg", "green/0.jpg"]
    return [result.plain for result in results]


def answers(folder: Path, source: str, *, weights: Path | None = None) -> list[int]:
    """What that model answers when it is called from Python on images read by hand."""
    loaded = load_model(source, weights=weights)
    found = []
    for file in sorted((folder / "photos").rglob("*.jpg")):
        with Image.open(file) as image:
            pixels = torch.from_numpy(loaded.preparation.prepare(image))
        with torch.inference_mode():
            found.append(int(loaded.module(pixels[None]).argmax()))
    return found


def test_a_run_folder_as_the_model(network: Path) -> None:
    folder = network.parent
    done = deformrs(
        *("certify", "--model", "network", "--data", "digits", *TURN, *QUICK),
        *("--max", "9", "--skip", "2", "--out", "run"),
        cwd=folder,
    )
    results = load_run(folder / "run")
    assert [result.index for result in results] == [0, 2, 4, 6, 8]
    assert "uniform noise of scale 30°, n = 60, alpha = 0.001" in done.stdout
    assert "certifying: 5/5" in done.stdout
    assert "img/s" in done.stdout
    assert "samples/s" in done.stdout

    config = read_config(folder / "run")
    assert config["options"]["noise"] == "uniform:30deg"  # type: ignore[index,call-overload]
    assert (config["n"], config["n0"], config["seed"], config["skip"]) == (60, 20, 0, 2)
    assert config["padding"] == "zeros"
    assert config["data"]["name"] == "digits"  # type: ignore[index,call-overload]


def test_a_factory_with_weights(photos: Path) -> None:
    folder = photos.parent
    (folder / "mymodel.py").write_text(FACTORY)
    torch.save(colour_net().state_dict(), folder / "net.pth")
    expected = answers(folder, f"{folder / 'mymodel.py'}:build", weights=folder / "net.pth")
    plain = certified(folder, "--model", "mymodel.py:build", "--weights", "net.pth")
    assert plain == expected


def test_options_shape_the_images_and_are_written_down(photos: Path) -> None:
    folder = photos.parent
    (folder / "mymodel.py").write_text(FACTORY)
    certified(
        folder,
        *("--model", "mymodel.py:build", "--resize", "24", "--crop", "20"),
        *("--interpolation", "bicubic", "--mean", "0.5,0.4,0.3", "--std", "0.2,0.2,0.2"),
        *("--precision", "bfloat16", "--batch-size", "16", "--padding", "border"),
    )
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["data"]["preparation"] == {
        "resize": 24,
        "crop": [20, 20],
        "interpolation": "bicubic",
        "channels": None,
    }
    assert config["batch_size"] == 16
    assert config["padding"] == "border"
    assert config["model"]["mean"] == [0.5, 0.4, 0.3]
    assert config["model"]["precision"] == "bfloat16"
    assert {result.certificate.space.size for result in load_run(folder / "run")} == {(20, 20)}


def test_guarantee_a_program_is_loaded_only_where_it_is_trusted(network: Path) -> None:
    (network.parent / "net.pt2").write_bytes(b"anything")
    certify = ("certify", "--model", "net.pt2", "--data", "digits", *TURN, *QUICK, "--out", "run")
    line = fails(*certify, cwd=network.parent)
    assert "must come from someone you trust" in line
    assert "--trust-code" in line
    assert "is unreadable" in fails(*certify, "--trust-code", cwd=network.parent)


def test_a_hugging_face_model(photos: Path) -> None:
    torchvision_ops.declare()
    from transformers import ResNetConfig, ResNetForImageClassification

    folder = photos.parent
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    config.id2label = {0: "red", 1: "blue", 2: "green"}
    config.label2id = {"red": 0, "blue": 1, "green": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = ResNetForImageClassification(config)  # type: ignore[no-untyped-call]
    net.save_pretrained(folder / "hub")
    (folder / "hub" / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "ConvNextImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 32},
                "crop_pct": 0.875,
                "do_rescale": True,
                "rescale_factor": 1 / 255,
                "do_normalize": True,
                "image_mean": [0.5, 0.5, 0.5],
                "image_std": [0.5, 0.5, 0.5],
            }
        )
    )
    deformrs(
        *("certify", "--model", "hf:hub", "--data", "photos", *TURN, *QUICK, "--out", "run"),
        cwd=folder,
    )
    # Labels are those of the model, found by the names of the folders.
    assert [result.label for result in load_run(folder / "run")] == [1, 1, 2, 2, 0, 0]
    said = deformrs("predict", "photos/red/0.jpg", "--run", "run", "--n", "50", cwd=folder).stdout
    assert any(word in said for word in ("red, holds", "blue, holds", "green, holds", "abstains"))


def test_npz(network: Path) -> None:
    folder = network.parent
    images = np.random.default_rng(1).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    np.savez(folder / "some.npz", images=images, labels=np.array([3, 1, 2]))
    deformrs(
        *("certify", "--model", "network", "--data", "some.npz", *TURN, *QUICK, "--out", "run"),
        cwd=folder,
    )
    assert [result.label for result in load_run(folder / "run")] == [3, 1, 2]


def test_the_same_command_again_changes_nothing(network: Path) -> None:
    arguments = (
        *("certify", "--model", "network", "--data", "digits", *TURN, *QUICK),
        *("--max", "3", "--out", "run"),
    )
    deformrs(*arguments, cwd=network.parent)
    before = (network.parent / "run" / CERTIFICATES).read_bytes()
    deformrs(*arguments, cwd=network.parent)
    assert (network.parent / "run" / CERTIFICATES).read_bytes() == before
    line = fails(*arguments, "--noise", "uniform:31deg", cwd=network.parent)
    assert "cannot go on with other settings" in line
    assert "noise.scale: 0.5235987755982988 there, 0.5410520681182421 here" in line
    assert (network.parent / "run" / CERTIFICATES).read_bytes() == before


def test_a_plug_in_that_changed_is_refused(network: Path) -> None:
    lens = network.parent / "lens.py"
    lens.write_text(
        "from dataclasses import dataclass\n"
        "import torch\n"
        "from deformrs import Deformation\n"
        "STRENGTH = 1.0\n"
        "@dataclass(frozen=True)\n"
        "class Bulge(Deformation):\n"
        "    name = 'bulge'\n"
        "    def dim(self, size):\n"
        "        return 1\n"
        "    def displacement(self, params, points, size):\n"
        "        return STRENGTH * params[:, :, None, None] * points\n"
    )
    arguments = (
        *("certify", "--model", "network", "--data", "digits", *QUICK, "--out", "run"),
        *("--deformation", "lens.py:Bulge", "--noise", "gaussian:0.1"),
    )
    deformrs(*arguments, "--max", "2", cwd=network.parent)
    deformrs(*arguments, "--max", "3", cwd=network.parent)
    lens.write_text(lens.read_text().replace("STRENGTH = 1.0", "STRENGTH = -9.0"))
    line = fails(*arguments, "--max", "4", cwd=network.parent)
    assert "plugins.lens.py: " in line
    assert len(load_run(network.parent / "run")) == 3


def certify_digits(folder: Path, *arguments: str, smoothing: tuple[str, ...] = WIDE) -> str:
    """Certify four digits into the run of that folder; return what is printed."""
    fixed = ("--device", "cpu", "--precision", "float32")
    if "--max" not in arguments:
        arguments += ("--max", "4")
    certify = ("certify", "--model", "network", "--data", "digits", "--n0", "20")
    return deformrs(*certify, *smoothing, *fixed, *arguments, cwd=folder).stdout


def numbers(run: Path) -> list[int]:
    return [result.certificate.counts.n for result in load_run(run)]


def test_radii_are_decided_with_fewer_samples(network: Path) -> None:
    folder = network.parent
    radii = ("--n", "1000", "--radii", "1deg,20deg")
    printed = certify_digits(folder, *radii, "--out", "run")
    config = read_config(folder / "run")
    assert config["method"] == "anytime_auto:1000"
    queries = {"radii": ["1deg", "20deg"], "regions": [], "tolerance": None}
    assert config["stopping"] == queries | {"given_up": GIVEN_UP}
    assert set(numbers(folder / "run")) <= set(looks(1000))
    assert min(numbers(folder / "run")) < 1000
    results = load_run(folder / "run")
    held = sum(result.holds(math.radians(20)) for result in results)
    assert f"up to 20deg  {percent_down(held, 4):>6} %   {held} of 4" in printed
    assert "on average)" in printed
    assert "average certified radius" not in printed
    again = certify_digits(folder, *radii, "--out", "run")
    assert "samples/s" not in again, "all results are read from the folder"
    for stop in ("1", "4"):
        certify_digits(folder, *radii, "--max", stop, "--out", "parts")
    whole, parts = (folder / name / CERTIFICATES for name in ("run", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


def test_other_queries_are_another_run(network: Path) -> None:
    folder = network.parent
    certify_digits(folder, "--n", "100", "--radii", "5deg", "--out", "run")
    for other in (("--radii", "6deg"), ("--adaptive", "5deg"), ()):
        options = (*WIDE, "--n", "100", "--n0", "20", *other, "--out", "run", "--device", "cpu")
        line = fails("certify", "--model", "network", "--data", "digits", *options, cwd=folder)
        assert "cannot go on with other settings" in line


def test_the_number_of_samples_is_fixed_by_default(network: Path) -> None:
    """As in the paper, whose bound is that of --method clopper_pearson."""
    certify_digits(network.parent, "--n", "90", "--out", "run")
    paper = ("--method", "clopper_pearson")
    certify_digits(network.parent, "--n", "90", *paper, "--out", "paper")
    for name, method in (("run", "auto"), ("paper", "clopper_pearson")):
        assert numbers(network.parent / name) == [90] * 4
        config = read_config(network.parent / name)
        assert "stopping" not in config
        assert config["method"] == method


def test_another_number_of_samples_is_refused_for_that(network: Path) -> None:
    """Not for the bound that suited the first number, which nobody gave."""
    radii = ("--radii", "5deg", "--out", "run")
    certify_digits(network.parent, "--n", "3000", *radii)
    certify = ("certify", "--model", "network", "--data", "digits", *TURN, "--n", "1500")
    assert "n: 3000 there, 1500 here" in fails(*certify, *radii, cwd=network.parent)


def test_a_tolerance_and_a_region(network: Path) -> None:
    folder = network.parent
    printed = certify_digits(folder, "--n", "4000", "--adaptive", "30deg", "--out", "rough")
    assert max(numbers(folder / "rough")) < 4000
    assert "average certified radius" in printed
    both = ("--deformation", "rotation+scaling", "--noise", "uniform:60deg+uniform:30%")
    region = "rotation<=2deg, scale=0.99..1.01"
    options = ("--n", "2000", "--region", region, "--out", "both")
    printed = certify_digits(folder, *options, smoothing=both)
    assert read_config(folder / "both")["stopping"]["regions"] == [region]  # type: ignore[index,call-overload]
    assert min(numbers(folder / "both")) < 2000
    results = load_run(folder / "both")
    held = sum(r.correct and r.certificate.covers_region(Region.parse(region)) for r in results)
    assert f"for {region} {percent_down(held, 4):>6} %   {held} of 4" in printed
    command = ("certify", "--model", "network", "--data", "digits", *both, "--out", "run")
    assert "ask for a region" in fails(*command, "--radii", "10deg", cwd=folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--radii", "5deg", "--method", "clopper_pearson"), "fixed number of samples (--fixed"),
        (("--method", "bonferroni"), "is for runs that began with it: use runner_up"),
        (("--adaptive", "0deg"), "must be positive"),
        (("--adaptive", "5px"), "5px"),
        (("--radii=-5deg",), "not negative"),
        (("--radii", "5"), "must be a number with its unit"),
    ],
)
def test_queries_are_checked_before_anything_is_sampled(
    network: Path, options: tuple[str, ...], message: str
) -> None:
    certify = ("certify", "--model", "network", "--data", "digits", *TURN, "--n", "100")
    assert message in fails(*certify, *options, "--out", "run", cwd=network.parent)
    assert not (network.parent / "run").exists()


def test_the_network_is_compiled_where_requested(network: Path) -> None:
    model = ModelOptions(str(network), compile="default", device="cpu")
    job = prepare(model, DataOptions("digits"), SmoothingOptions("rotation", "uniform:30deg"))
    assert job.classifier.sampler.compiled == "default"


def test_data_are_loaded_once(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def counted(source: str, *arguments: Any, **options: Any) -> ImageSet:
        loaded.append(source)
        return load_data(source, *arguments, **options)

    monkeypatch.setattr("deformrs.cli.options.load_data", counted)
    certify_digits(network.parent, "--n", "90", "--out", "run")
    assert loaded == ["digits"]


def test_the_bar_counts_the_samples_of_an_interrupted_image_but_not_its_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    shown: list[tuple[float, str]] = []
    display = _Display([], 2, 100)
    display.advance = lambda done, words: shown.append((done, words))
    display.resumed(90)
    display.sampled(10)
    assert shown[-1][0] == 1
    speeds = [float(word.split()[0].replace(",", "")) for word in shown[-1][1].split(", ")]
    assert speeds[0] == pytest.approx(speeds[1] / 100)
    certificate = Uniform(1.0).certify(Counts((0, 9), (0, 91)), Rotation().space((8, 8)), 0.001)
    display.add(Result(0, 1, certificate))
    display.sampled(50)
    assert shown[-1][0] == 1.5
