"""A few digits to sweep over, and the file of a small sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deformrs.data import load_data

OPTIONS = (
    *("--data", "few.npz", "--model", "small_cnn", "--epochs", "1", "--batch-size", "50"),
    *("--device", "cpu", "--no-tensorboard", "--n", "60", "--n0", "20", "--max", "6"),
)
FILE = """
out = "runs"
[train]
data = "few.npz"
model = "small_cnn"
epochs = 1
batch_size = 50
device = "cpu"
tensorboard = false
[certify]
n = 60
n0 = 20
max = 6
radii = ["1deg"]
[[runs]]
name = "wide"
deformation = "rotation"
noise = "uniform:90deg"
"""
EXPLODES = """
[[runs]]
name = "explodes"
deformation = "rotation"
noise = "uniform:30deg"
train = { learning_rate = 1e30 }
"""
NARROW = """
[[runs]]
name = "narrow"
deformation = "rotation"
noise = "uniform:30deg"
"""


def few_digits() -> None:
    """A few digits to train on, and a few others, in the working directory."""
    arrays: dict[str, Any] = {}
    for split, count in (("train", 200), ("test", 12)):
        digits = load_data("digits", split=split)  # type: ignore[arg-type]
        images = [255 * digits[k][0][0] for k in range(count)]
        arrays[f"x_{split}"] = np.stack(images).astype(np.uint8)
        arrays[f"y_{split}"] = np.array(digits.labels[:count])
    np.savez("few.npz", **arrays)
    np.savez("flat.npz", images=arrays["x_train"], labels=arrays["y_train"])
    np.savez("unseen.npz", images=arrays["x_test"], labels=arrays["y_test"])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sweep_file(text: str) -> None:
    Path("some.toml").write_text(text)
