"""Digits, MNIST and CIFAR-10: the published files in all their forms."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from made import shared
from numpy.typing import NDArray

from deformrs.data import cifar10, load_data, load_digits, mnist
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


def test_labels_that_the_model_does_not_have() -> None:
    with pytest.raises(InputError, match="label of digits test 0 is 7; .*0 to 4"):
        load_data("digits", AS_STORED, num_classes=5)


def test_mnist_packed_unpacked_and_as_torchvision_keeps_it(tmp_path: Path) -> None:
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
    train = load_data("mnist", AS_STORED, split="train", root=_with_mnist(tmp_path))
    assert len(train) == 60_000
    # How often each digit occurs is printed on the page that MNIST was published on.
    counts = np.bincount(train.labels).tolist()
    assert counts == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    damaged = bytearray((raw / "t10k-labels-idx1-ubyte").read_bytes())
    damaged[100] ^= 1
    (raw / "t10k-labels-idx1-ubyte").write_bytes(damaged)
    with pytest.raises(InputError, match="md5 checksum of .*t10k-labels-idx1-ubyte is"):
        load_data(f"mnist:{tmp_path}", AS_STORED)


def _with_mnist(folder: Path) -> Path:
    """A root that has MNIST already, so that nothing is downloaded."""
    root = folder / "root"
    shutil.copytree(folder / "MNIST", root / "mnist" / "MNIST")
    return root


def test_mnist_files_of_another_set(tmp_path: Path) -> None:
    for name in mnist.FILES["test"]:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(b"Fashion-MNIST, say"))
    with pytest.raises(InputError, match="md5 checksum .* as published: remove the file and fetch"):
        load_data(f"mnist:{tmp_path}", AS_STORED)


Batch = tuple[NDArray[np.uint8], list[int]]


def batch(seed: int, n: int = 20) -> Batch:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, 10, n).tolist()


def binary(content: Batch) -> bytes:
    images, labels = content
    return np.concatenate([np.array(labels, np.uint8)[:, None], images], axis=1).tobytes()


def python2(content: Batch) -> bytes:
    """The batch as Python 2 pickled it, instruction by instruction."""
    images, labels = content
    raw = images.tobytes()
    return b"".join(
        [
            b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x14testing batch 1 of 1q\x03",
            b"U\x06labelsq\x04]q\x05(",
            *(b"K" + bytes([label]) for label in labels),
            b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08",
            b"K\x00\x85U\x01b\x87Rq\x09(K\x01K" + bytes([len(images)]) + b"M\x00\x0c\x86",
            b"cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ",
            b"\xff\xff\xff\xffK\x00tb\x89T" + len(raw).to_bytes(4, "little") + raw,
            b"tbU\x09filenamesq\x0c]q\x0dU\x05a.pngau.",
        ]
    )


def write(
    folder: Path, files: dict[str, bytes], table: dict[str, str], patch: pytest.MonkeyPatch
) -> None:
    """Write files and publish their checksums."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        patch.setitem(table, name.removesuffix(".bin"), md5)


def test_cifar10_binary_and_python_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = {name: batch(i) for i, name in enumerate(("test_batch", *cifar10.BATCHES["train"]))}
    binaries = {f"{name}.bin": binary(content) for name, content in batches.items()}
    pickles = {name: python2(content) for name, content in batches.items()}
    # Here a published file is what was published in its place: the real ones are below.
    write(tmp_path / "cifar-10-batches-bin", binaries, cifar10.MD5_BINARY, monkeypatch)
    (tmp_path / "py").mkdir()
    write(tmp_path / "py" / "cifar-10-batches-py", pickles, cifar10.MD5_PYTHON, monkeypatch)
    for split, count in (("test", 20), ("train", 100)):
        first = load_data(f"cifar10:{tmp_path}", AS_STORED, split=split, num_classes=10)  # type: ignore[arg-type]
        second = load_data(f"cifar10:{tmp_path / 'py'}", AS_STORED, split=split)  # type: ignore[arg-type]
        assert len(first) == len(second) == count
        assert first.about["sha256"] == second.about["sha256"]
        images, labels = batches["test_batch" if split == "test" else "data_batch_1"]
        assert list(first.labels[:20]) == labels
        assert np.array_equal(first[4][0].ravel(), images[4].astype(np.float32) / 255)
    inside = load_data(f"cifar10:{tmp_path / 'py' / 'cifar-10-batches-py'}", AS_STORED)
    assert inside.class_names is not None
    assert inside.class_names[9] == "truck"


def test_cifar10_in_the_order_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"test_batch.bin": binary(batch(0))}
    write(tmp_path / "c", files, cifar10.MD5_BINARY, monkeypatch)
    names = cifar10.CLASS_NAMES
    usual = load_data(f"cifar10:{tmp_path / 'c'}", AS_STORED, class_names=names)
    turned = load_data(f"cifar10:{tmp_path / 'c'}", AS_STORED, class_names=names[::-1])
    assert turned.labels == tuple(9 - label for label in usual.labels)
    assert turned.about["labels"] == "the model's class names"
    short = ("plane", "car", *names[2:])  # as many call them, in the usual order
    spoken = load_data(f"cifar10:{tmp_path / 'c'}", AS_STORED, class_names=short)
    assert spoken.labels == usual.labels
    assert spoken.about["labels"] == "as published"
    mixed = ("plane", "car", "cat", "bird", *names[4:])
    with pytest.raises(InputError, match="number for 'bird' is 3; it must be 2"):
        load_data(f"cifar10:{tmp_path / 'c'}", AS_STORED, class_names=mixed)


def test_the_real_cifar10() -> None:
    folder = shared("cifar-10-batches-bin")
    images = load_data(f"cifar10:{folder}", AS_STORED, num_classes=10)
    assert np.bincount(images.labels).tolist() == [1000] * 10
    assert images.class_names is not None
    assert images.class_names[images.labels[0]] == "cat"


def test_cifar10_files_that_are_changed_or_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="CIFAR-10 is without it; .* test_batch.bin or test_batch"):
        load_data(f"cifar10:{tmp_path}", AS_STORED)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": 1}))
    with pytest.raises(InputError, match="md5 checksum of .*test_batch is"):
        load_data(f"cifar10:{tmp_path}", AS_STORED)
    (tmp_path / "test_batch.bin").write_bytes(binary(batch(0)))
    with pytest.raises(InputError, match="md5 checksum of .*test_batch.bin is"):
        load_data(f"cifar10:{tmp_path}", AS_STORED)
