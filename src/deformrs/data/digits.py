"""The handwritten digits that come with the package: 4,000 to train on, 1,000 to test.

A part of MNIST (Y. LeCun, C. Cortes, C. J. C. Burges), see README.md in this folder.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from deformrs.errors import InputError

SIDE, COLUMNS = 28, 100
TRAIN, TEST = 4000, 1000
PICTURE = files("deformrs.data") / "digits.png"
LABELS = files("deformrs.data") / "digits_labels.txt"


def load_digits(split: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    """Images [n, 1, 28, 28] in [0, 1] and labels [n].

    >>> images, labels = load_digits("test")
    >>> images.shape, int(labels[0])
    (torch.Size([1000, 1, 28, 28]), 7)
    """
    if split not in ("train", "test"):
        raise InputError("split", repr(split), "must be 'train' or 'test'", "choose one")
    with PICTURE.open("rb") as file, Image.open(file) as picture:
        tiles = np.asarray(picture)
    images = tiles.reshape(-1, SIDE, COLUMNS, SIDE).swapaxes(1, 2).reshape(-1, 1, SIDE, SIDE)
    labels = np.array([int(digit) for digit in LABELS.read_text().strip()])
    part = slice(0, TRAIN) if split == "train" else slice(TRAIN, TRAIN + TEST)
    return torch.from_numpy(images[part].astype(np.float32) / 255), torch.from_numpy(labels[part])
