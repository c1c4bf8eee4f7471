"""MNIST from its four published files, packed or not. Y. LeCun, C. Cortes, C. J. C. Burges."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deformrs.data.base import Split
from deformrs.data.download import Report, fetch, find, missing, read_checked

URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CLASS_NAMES = tuple("0123456789")
INSTEAD = "without a network give the folder of the four files, as mnist:FOLDER"

FILES: dict[Split, tuple[str, str]] = {
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
}
MD5_PACKED = {
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
}
MD5_UNPACKED = {
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
}

_PLACES = ("", "MNIST/raw", "raw")  # the last two are where torchvision keeps them
_SIDE, _IMAGES_HEADER, _LABELS_HEADER = 28, 16, 8


def read_mnist(folder: Path, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [n, 1, 28, 28], 0 to 255, and labels [n]."""
    images, labels = (_content(folder, name) for name in FILES[split])
    return (
        np.frombuffer(images, np.uint8)[_IMAGES_HEADER:].reshape(-1, 1, _SIDE, _SIDE),
        np.frombuffer(labels, np.uint8)[_LABELS_HEADER:].astype(np.int64),
    )


def fetch_mnist(folder: Path, split: Split, report: Report | None = None, url: str = URL) -> None:
    """Download the files of that split which are not in the folder yet."""
    for name in FILES[split]:
        if find(folder, _PLACES, (name + ".gz", name)) is None:
            packed = folder / (name + ".gz")
            fetch(url + packed.name, packed, MD5_PACKED[name], INSTEAD, report)


def _content(folder: Path, name: str) -> bytes:
    path = find(folder, _PLACES, (name + ".gz", name))
    if path is None:
        raise missing(folder, "MNIST", (name + ".gz", name))
    if path.suffix == ".gz":
        return gzip.decompress(read_checked(path, MD5_PACKED[name]))
    return read_checked(path, MD5_UNPACKED[name])
