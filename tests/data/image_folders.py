"""Small image files and folders for the tests of data, and the path of large datasets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image


def pixels(seed: int = 0, size: tuple[int, int] = (6, 8)) -> NDArray[np.uint8]:
    """Return an image [h, w, 3] of noise."""
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = (6, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(seed, size)).save(path)
    return path


def class_folders(folder: Path, counts: Mapping[str, int]) -> Path:
    """Write one folder per class with that many images, 0.png, 1.png, ..."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            write_image(folder / name / f"{number}.png", number)
    return folder


def listed_folder(folder: Path, text: str, files: tuple[str, ...] = ("a.png", "b.png")) -> Path:
    """Write a folder with these images and this labels.csv."""
    for number, name in enumerate(files):
        write_image(folder / name, number)
    (folder / "labels.csv").write_text(text)
    return folder


def shared(name: str) -> Path:
    """Return the path of data too large for the repository; skip the test if it is missing."""
    default = Path(__file__).parents[3] / "shared" / "data"
    path = Path(os.environ.get("DEFORMRS_TEST_DATA") or default) / name
    if not path.exists():
        pytest.skip(f"{name} is missing; DEFORMRS_TEST_DATA names the folder that holds it")
    return path
