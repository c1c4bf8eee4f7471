"""The handwritten digits that come with the package: 4,000 to train on, 1,000 to test.

A part of MNIST (Y. LeCun, C. Cortes, C. J. C. Burges), see README.md in this folder.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deformrs.data.image_set import StoredSplit
from deformrs.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

SIDE, COLUMNS = 28, 100
TRAIN, TEST = 4000, 1000
IMAGE = files("deformrs.data") / "digits.png"
LABELS = files("deformrs.data") / "digits_labels.txt"


def load_digits(split: StoredSplit) -> tuple[Tensor, Tensor]:
    """Return the packaged digits as tensors: images [n, 1, 28, 28] in [0, 1] and labels [n].

    >>> images, labels = load_digits("test")
    >>> images.shape, int(labels[0])
    (torch.Size([1000, 1, 28, 28]), 7)
    """
    import torch  # only here: the rest of deformrs.data does without

    if split not in ("train", "test"):
        raise InputError("split", repr(split), "must be 'train' or 'test'", "choose one")
    images, labels = read_digits(split)
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels)


def read_digits(split: StoredSplit) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images [n, 1, 28, 28] as bytes, and labels [n]."""
    with IMAGE.open("rb") as file, Image.open(file) as image:
        tiles = np.asarray(image)
    images = tiles.reshape(-1, SIDE, COLUMNS, SIDE).swapaxes(1, 2).reshape(-1, 1, SIDE, SIDE)
    labels = np.array([int(digit) for digit in LABELS.read_text().strip()], np.int64)
    rows = slice(0, TRAIN) if split == "train" else slice(TRAIN, TRAIN + TEST)
    return images[rows], labels[rows]
