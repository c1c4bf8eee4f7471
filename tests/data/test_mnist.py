"""The packaged digits, and MNIST in all the forms it is published in."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
from image_folders import shared

from deformrs.data import load_data, load_digits, mnist
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError

AS_STORED = Preparation()


def test_digits() -> None:
    test = load_data("digits", AS_STORED, num_classes=10)
    train = load_data("digits", AS_STORED, split="train")
    assert (len(test), len(train), test.name) == (1000, 4000, "digits")
    images, labels = load_digits("test")
    assert test.labels == tuple(labels.tolist())
    assert np.array_equal(test[3][0], images[3].numpy())
    assert test.class_names == tuple("0123456789")
    assert (test.about["split"], test.about["labels"]) == ("test", "as published")
    assert repr(test) == "<digits, 1,000 images>"


def test_digits_are_prepared() -> None:
    images = load_data("digits", Preparation(resize=32, crop=(24, 24), channels=3))
    image, _ = images[0]
    assert image.shape == (3, 24, 24)
    assert np.array_equal(image[0], image[2])
    with pytest.raises(InputError, match="the image digits test 7 is 28 x 28 px"):
        load_data("digits", Preparation(crop=(29, 29)))[7]


def test_mnist_compressed_or_not_and_in_torchvisions_folders(tmp_path: Path) -> None:
    folder = shared("mnist")
    packed = load_data(f"mnist:{folder}", AS_STORED, num_classes=10)
    assert (len(packed), packed.name, packed.source(17)) == (10_000, "mnist", "mnist test 17")
    digits = load_data("digits", AS_STORED)
    assert packed.labels[:1000] == digits.labels
    assert all(np.array_equal(packed[i][0], digits[i][0]) for i in range(0, 1000, 50))
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in (*mnist.FILES["test"], *mnist.FILES["train"]):
        (raw / name).write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
    unpacked = load_data(f"mnist:{tmp_path}", AS_STORED)
    assert unpacked.about["sha256"] == packed.about["sha256"]
    train = load_data("mnist", AS_STORED, split="train", root=_root_with_mnist(tmp_path))
    assert len(train) == 60_000
    # How often each digit occurs is printed on the page that MNIST was published on.
    counts = np.bincount(train.labels).tolist()
    assert counts == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    damaged = bytearray((raw / "t10k-labels-idx1-ubyte").read_bytes())
    damaged[100] ^= 1
    (raw / "t10k-labels-idx1-ubyte").write_bytes(damaged)
    with pytest.raises(InputError, match="md5 checksum of .*t10k-labels-idx1-ubyte is"):
        load_data(f"mnist:{tmp_path}", AS_STORED)


def _root_with_mnist(folder: Path) -> Path:
    """A root that has MNIST already, so that nothing is downloaded."""
    root = folder / "root"
    shutil.copytree(folder / "MNIST", root / "mnist" / "MNIST")
    return root


def test_mnist_files_of_another_dataset(tmp_path: Path) -> None:
    for name in mnist.FILES["test"]:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(b"Fashion-MNIST, say"))
    with pytest.raises(InputError, match="md5 checksum .* as published: remove the file and fetch"):
        load_data(f"mnist:{tmp_path}", AS_STORED)
