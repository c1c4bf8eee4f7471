"""`deformrs train` on tiny data: every recipe, network and option."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import torchvision_ops
from commands import PLAIN, QUICK, run_inside
from deformrs.data.image_set import stratified_split
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import ResNet50, SmallCNN, load_model, save_model
from deformrs.runs import load_run, read_config


def weights(folder: Path) -> torch.Tensor:
    state = load_file(folder / "model.safetensors")
    return torch.cat([value.double().flatten() for value in state.values()])


def test_train_then_certify_without_further_options(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    printed = run_inside("train", "--data", data, *PLAIN, "--epochs", "12", "--out", out)
    assert "40 images held on cpu" in printed
    assert "2 classes: left, right" in printed
    assert "of 1 steps with 32 images, learning rate 0.1;" in printed  # few images, small batches
    assert f"next: deformrs certify --model {out}" in printed
    assert "correct under noise" in printed
    assert "uniform noise of scale 54°" in run_inside("certify", "--model", out, "--n", "200")
    results = load_run(out)
    assert len(results) == 12
    assert all(result.source.startswith(("left", "right")) for result in results)
    # It was trained until it tells halves apart.
    assert sum(result.correct for result in results) >= 10
    best = run_inside("certify", "--model", out / "best", "--n", "50", "--max", "2")
    assert "of 2" in best


def test_what_comes_next_has_images_that_were_not_trained_on(data: Path, tmp_path: Path) -> None:
    flat = ("train", "--data", str(data / "train"), *PLAIN, "--epochs", "1", "--out")
    assert f"{tmp_path / 'all'} --n 1000 --data DIR" in run_inside(*flat, tmp_path / "all")
    held = run_inside(*flat, tmp_path / "most", "--hold-out", "0.25")
    (line,) = (line for line in held.splitlines() if line.startswith("next: "))
    assert line.endswith(f"--model {tmp_path / 'most'} --n 1000 --split held-out")
    run_inside(*line.split()[2:], "--max", "1")


def test_the_folder_stores_settings_epochs_and_weights(usual: Path) -> None:
    files = {path.name for path in usual.iterdir()}
    assert files == {"training.json", "epochs.jsonl", "model.json", "model.safetensors", "best"}
    config = json.loads((usual / "training.json").read_text())
    assert config["recipe"]["epochs"] == 2
    assert config["noise"]["name"] == "uniform"
    assert config["data"]["pictures"] == 40
    assert config["augmentation"]["flip"] is False  # nobody said that mirrors change nothing
    lines = (usual / "epochs.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    model = load_model(str(usual))
    assert model.class_names == ("left", "right")
    assert model.preparation.channels == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--recipe", "paper"],
        ["--recipe", "fast"],
        ["--copies", "1", "--tilt", "0"],
        ["--consistency", "10"],
        ["--consistency", "5", "--entropy", "0.1", "--copies", "3"],
        ["--tilt", "1"],
        ["--augment", "crop:2+flip"],
        ["--augment", "zoom:0.5+flip"],
        ["--learning-rate", "0.05", "--weight-decay", "0.001"],
        ["--hold-out", "0.25"],
        ["--precision", "bfloat16"],
        ["--resize", "20", "--crop", "12"],
        ["--channels", "3"],
        ["--padding", "reflection"],
        ["--model", "resnet18:width=2"],
        ["--deformation", "translation+scaling", "--noise", "gaussian:2px+uniform:20%"],
        ["--deformation", "vector_field", "--noise", "gaussian:1px"],
    ],
    ids=" ".join,
)
def test_every_recipe_and_option(
    data: Path, usual: Path, tmp_path: Path, options: list[str]
) -> None:
    run_inside("train", "--data", data, *QUICK, *options, "--out", tmp_path / "other")
    changed, unchanged = weights(tmp_path / "other"), weights(usual)
    same = changed.shape == unchanged.shape and torch.equal(changed, unchanged)
    assert same == (options[-1] == "fast")  # the default
    run_inside("certify", "--model", tmp_path / "other", "--n", "20", "--max", "2")
    assert len(load_run(tmp_path / "other")) == 2


@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:squeezenet1_0"])
def test_networks_of_other_libraries(data: Path, tmp_path: Path, name: str) -> None:
    torchvision_ops.declare()
    small = ["--resize", "40", "--crop", "32", "--channels", "3"]
    options = [*QUICK, "--epochs", "1", "--model", name, *small]
    run_inside("train", "--data", data, *options, "--out", tmp_path / "run")
    run_inside("certify", "--model", tmp_path / "run", "--n", "10", "--max", "1")
    model = load_model(str(tmp_path / "run"))
    assert model.preparation.crop == (32, 32)
    assert model.about["mean"] is not None  # measured on the data


def test_resnet50_starts_from_weights_of_more_classes(data: Path, tmp_path: Path) -> None:
    published = ResNet50(num_classes=7, width=4).state_dict()
    save_file(published, tmp_path / "published.safetensors")
    options = [*QUICK, "--model", "resnet50:width=4", "--channels", "3", "--recipe", "paper"]
    options += ["--weights", str(tmp_path / "published.safetensors"), "--epochs", "1"]
    sizes = ["--resize", "40", "--crop", "32"]
    run_inside("train", "--data", data, *options, *sizes, "--out", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "training.json").read_text())
    assert config["recipe"]["learning_rate"] == 1e-3  # the paper's for pretrained networks
    state = load_file(tmp_path / "run" / "model.safetensors")
    assert state["fc.weight"].shape[0] == 2
    moved = (state["conv1.weight"] - published["conv1.weight"]).abs().max()
    assert 0 < moved < 0.01


def test_training_starts_from_another_run(data: Path, usual: Path, tmp_path: Path) -> None:
    options = [*QUICK, "--model", str(usual), "--learning-rate", "1e-6"]
    run_inside("train", "--data", data, *options, "--out", tmp_path / "second")
    state = (load_file(folder / "model.safetensors") for folder in (usual, tmp_path / "second"))
    first, second = (part["head.weight"] for part in state)
    assert not torch.equal(first, second)
    assert torch.allclose(first, second, atol=1e-3)


def test_tensorboard_shows_the_curves(data: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = [option for option in QUICK if option != "--no-tensorboard"]
    run_inside("train", "--data", data, *options, "--hold-out", "0.2", "--out", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    records = (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()
    for name in ("loss", "accuracy", "held_out_accuracy", "learning_rate"):
        shown = [scalar.value for scalar in events.Scalars(f"epoch/{name}")]
        assert shown == pytest.approx([json.loads(line)[name] for line in records], rel=1e-6)


def test_a_custom_network(data: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16, 2))\n"
    )
    model = f"{tmp_path / 'net.py'}:build"
    options: list[str | Path] = [*QUICK, "--model", model, "--out", tmp_path / "run"]
    run_inside("train", "--data", data, *options)
    with pytest.raises(InputError, match="name the file yourself: ") as refusal:
        run_inside("certify", "--model", tmp_path / "run")
    named = refusal.value.remedy.partition(": ")[2].split(" ")
    assert named == ["--model", model, "--weights", str(tmp_path / "run" / "model.safetensors")]
    said = run_inside("certify", *named, "--n", "20", "--max", "2")
    assert "uniform noise of scale 54°" in said
    config = read_config(tmp_path / "run")
    assert config["data"]["class_names"] == ["left", "right"]  # type: ignore[index,call-overload]
    assert config["data"]["split"] == "test"  # type: ignore[index,call-overload]


def test_noise_in_pixels_counts_pixels_of_the_certified_image(data: Path, tmp_path: Path) -> None:
    """Of a frame of 24 pixels 12 are cut out: one of them is a sixth of half a side."""
    options = [*QUICK, "--resize", "24", "--crop", "12"]
    options += ["--deformation", "translation", "--noise", "gaussian:3px"]
    printed = run_inside("train", "--data", data, *options, "--out", tmp_path / "run")
    assert "augmentation crop:0" in printed
    trained = json.loads((tmp_path / "run" / "training.json").read_text())
    assert trained["noise"]["scale"] == pytest.approx(3 / 6)
    assert trained["data"]["preparation"]["crop"] == [24, 24]
    run_inside("certify", "--model", tmp_path / "run", "--n", "20", "--max", "1")
    certified = json.loads((tmp_path / "run" / "config.json").read_text())
    assert certified["noise"] == trained["noise"]
    assert certified["data"]["preparation"]["crop"] == [12, 12]


def test_held_out_images_choose_the_best_epoch(data: Path, tmp_path: Path) -> None:
    """Those held out are mirrored, so that a network that learns is wrong on them."""
    paths = sorted((data / "train").rglob("*.png"))
    labels = [int(path.parent.name == "right") for path in paths]
    images = np.stack([np.asarray(Image.open(path))[None] for path in paths])
    _, unseen = stratified_split(labels, 0.25, 0)
    images[unseen] = images[unseen][..., ::-1]
    np.savez(tmp_path / "mirrored.npz", images=images, labels=np.array(labels))
    options: list[str | Path] = [*PLAIN, "--epochs", "12", "--hold-out", "0.25"]
    options += ["--out", tmp_path / "run"]
    run_inside("train", "--data", tmp_path / "mirrored.npz", *options)
    lines = (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert records[-1]["held_out_accuracy"] < 0.3 < 0.9 < records[-1]["accuracy"]
    assert max(r["held_out_accuracy"] for r in records) > records[-1]["held_out_accuracy"]
    assert not torch.equal(weights(tmp_path / "run" / "best"), weights(tmp_path / "run"))


def test_a_network_keeps_the_order_of_its_classes(data: Path, tmp_path: Path) -> None:
    run_inside("train", "--data", data, *PLAIN, "--epochs", "12", "--out", tmp_path / "first")
    about = json.loads((tmp_path / "first" / "model.json").read_text())
    state = load_file(tmp_path / "first" / "model.safetensors")
    for name in ("head.weight", "head.bias"):
        state[name] = state[name].flip(0)
    other = tmp_path / "other"
    module = SmallCNN(num_classes=2, width=4)
    module.load_state_dict(state)
    save_model(
        other, module, Preparation.from_config(about["preparation"]), class_names=("right", "left")
    )
    options = [*QUICK, "--model", str(other), "--learning-rate", "1e-9"]
    run_inside("train", "--data", data, *options, "--out", tmp_path / "second")
    record = json.loads((tmp_path / "second" / "epochs.jsonl").read_text().splitlines()[0])
    assert record["accuracy"] > 0.8
    assert load_model(str(tmp_path / "second")).class_names == ("right", "left")
