"""`deformrs train` with bad options, images or weights: errors that name them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from commands import QUICK, run_inside
from deformrs.errors import InputError, ModelError
from deformrs.models import SmallCNN

SIDE = 16


def test_a_loss_that_diverges_stops_with_a_clear_message(data: Path, tmp_path: Path) -> None:
    options = [*QUICK, "--learning-rate", "1e30", "--epochs", "40"]
    with pytest.raises(ModelError, match=r"epoch \d+ is .*lower learning rate, in another folder"):
        run_inside("train", "--data", data, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "model.json").exists()


def test_bad_images_are_named(data: Path, tmp_path: Path) -> None:
    def training_on(change: str) -> None:
        folder = tmp_path / change
        shutil.copytree(data, folder)
        left = folder / "train" / "left"
        if change == "none":
            for path in (folder / "train").rglob("*.png"):
                path.unlink()
        elif change == "one class":
            shutil.rmtree(left)
        elif change == "sizes":
            Image.new("L", (SIDE + 1, SIDE)).save(left / "9.png")
        elif change == "colour":
            Image.new("RGB", (SIDE, SIDE)).save(left / "9.png")
        elif change == "damaged":
            (left / "9.png").write_bytes((left / "9.png").read_bytes()[:60])
        else:
            for path in sorted((folder / "train").rglob("*.png")):
                path.rename(folder / "train" / f"{path.parent.name}{path.name}")
            for name in ("left", "right"):
                (folder / "train" / name).rmdir()
        run_inside("train", "--data", folder / "train", *QUICK, "--out", folder / "run")

    for change, message in {
        "none": "without an image",
        "one class": "of one class",
        "sizes": r"left/9\.png.*17.*--resize",
        "colour": r"left/9\.png.*channel.*--channels",
        "damaged": r"left/9\.png.*complete image",
        "labels": "without labels for its 40 images",
    }.items():
        with pytest.raises(InputError, match=message):
            training_on(change)
        assert not (tmp_path / change / "run" / "model.json").exists()


def test_a_checkpoint_of_another_model_is_refused(data: Path, tmp_path: Path) -> None:
    save_file(SmallCNN(width=6).state_dict(), tmp_path / "other.safetensors")
    other = ["--weights", str(tmp_path / "other.safetensors")]
    with pytest.raises(InputError, match="from another network"):
        run_inside("train", "--data", data, *QUICK, *other, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recipe", "papper"], "did you mean 'paper'"),
        (["--model", "resnet19"], "did you mean resnet18"),
        (["--epochs", "0"], "epochs"),
        (["--batch-size", "0"], "batch_size"),
        (["--learning-rate", "-1"], "learning_rate"),
        (["--copies", "1", "--consistency", "10"], "at least 2"),
        (["--hold-out", "0.9"], "hold out"),
        (["--augment", "turn"], "augmentation"),
        (["--noise", "uniform:500deg"], r"500deg.*must be at most π"),
        (["--deformation", "rotatoin"], "did you mean 'rotation'"),
        (["--device", "cudda"], "cannot be used here"),
        (["--workers", "-1"], "workers"),
        (["--checkpoint-seconds", "nan"], "checkpoint_seconds is nan"),
        (["--seed", "-1"], "seed"),
        (["--devices", "0"], "devices"),
        (["--devices", "2", "--device", "cpu:1"], "must be auto, cpu or cuda"),
        (["--data", "nowhere"], "does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_refused_at_once(
    data: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_inside("train", "--data", data, *QUICK, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_kind_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds another run or model already"):
        run_inside("train", "--data", data, *QUICK, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_labels_far_above_the_number_of_classes_are_refused(tmp_path: Path) -> None:
    images = np.zeros((4, 1, 8, 8), np.uint8)
    np.savez(tmp_path / "far.npz", images=images, labels=np.array([0, 1, 2, 2024051201]))
    with pytest.raises(InputError, match="largest label is 2024051201"):
        run_inside("train", "--data", tmp_path / "far.npz", *QUICK, "--out", tmp_path / "run")


def test_a_folder_next_to_the_splits_is_refused(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "more")
    (tmp_path / "more" / "annotations").mkdir()
    with pytest.raises(InputError, match="annotations"):
        run_inside("train", "--data", tmp_path / "more", *QUICK, "--out", tmp_path / "run")
