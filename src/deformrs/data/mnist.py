"""MNIST (Y. LeCun, C. Cortes, C. J. C. Burges), and the part of it that comes with the package.

MNIST is read from its four published files, compressed or not. The packaged digits, 4,000 to train
on and 1,000 to test, are described in README.md in this folder.
"""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deformrs.checks import check_choice
from deformrs.data.download import DownloadProgress, fetch, find_published, read_published
from deformrs.data.image_set import StoredSplit
from deformrs.errors import InputError, damaged
from deformrs.limits import PUBLISHED_BYTES, unpack_gzip

if TYPE_CHECKING:
    from torch import Tensor

URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CLASS_NAMES = tuple("0123456789")

FILES: dict[StoredSplit, tuple[str, str]] = {
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
}
MD5 = {
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
}

_PLACES = ("", "MNIST/raw", "raw")  # the last two are torchvision's

SIDE, COLUMNS = 28, 100
TRAIN, TEST = 4000, 1000
IMAGE = files("deformrs.data") / "digits.png"
LABELS = files("deformrs.data") / "digits_labels.txt"


def read_mnist(folder: Path, split: StoredSplit) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images [n, 1, 28, 28] as bytes, and labels [n]."""
    images, labels = (_read(folder, name) for name in FILES[split])
    return images.reshape(-1, 1, SIDE, SIDE), labels.astype(np.int64)


def fetch_mnist(
    folder: Path, split: StoredSplit, progress: DownloadProgress | None = None, url: str = URL
) -> None:
    """Download the files of a split that are not in the folder yet."""
    remedy = "without a network give the folder of the four files, as mnist:FOLDER"
    for name in FILES[split]:
        packed = name + ".gz"
        if find_published(folder, _PLACES, (packed, name)) is None:
            fetch(url + packed, folder / packed, MD5[packed], remedy, progress)


def _read(folder: Path, name: str) -> NDArray[np.uint8]:
    forms = {form: MD5[form] for form in (name + ".gz", name)}
    return read_idx(*read_published("MNIST", folder, _PLACES, forms))


def read_idx(name: str, data: bytes) -> NDArray[np.uint8]:
    """Return the bytes of an IDX file, compressed if its name says so: [n] or [n, 28, 28]."""
    try:
        content = unpack_gzip(name, data, PUBLISHED_BYTES) if name.endswith(".gz") else data
        if content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
            raise ValueError("it has no header of IDX for bytes")
        shape = np.frombuffer(content, ">u4", content[3], 4).tolist()
        start = 4 + 4 * len(shape)
        if shape[1:] not in ([], [SIDE, SIDE]) or len(content) - start != math.prod(shape):
            raise ValueError(f"it is not of the shape that it states, {shape[:4]}")
    except InputError:
        raise
    except (ValueError, IndexError) as error:
        raise damaged(name, error, "remove the file and fetch it again") from None
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_digits(split: StoredSplit) -> tuple[Tensor, Tensor]:
    """Return the packaged digits as tensors: images [n, 1, 28, 28] in [0, 1] and labels [n].

    >>> images, labels = load_digits("test")
    >>> images.shape, int(labels[0])
    (torch.Size([1000, 1, 28, 28]), 7)
    """
    import torch  # only here: the rest of deformrs.data does without

    check_choice("split", split, get_args(StoredSplit))
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
