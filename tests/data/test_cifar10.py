"""CIFAR-10 in both forms it is published in. Python batches are never executed."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_folders import shared
from numpy.typing import NDArray

from deformrs.data import cifar10, load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError

AS_STORED = Preparation()


Batch = tuple[NDArray[np.uint8], list[int]]


def batch(seed: int, n: int = 20) -> Batch:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, 10, n).tolist()


def binary(content: Batch) -> bytes:
    images, labels = content
    return np.concatenate([np.array(labels, np.uint8)[:, None], images], axis=1).tobytes()


def python2(content: Batch, flag: bytes = b"\x89") -> bytes:
    """The batch as Python 2 pickled it, opcode by opcode; the flag \x88 means column-major."""
    images, labels = content
    raw = images.tobytes()
    groups = [labels[start : start + 8] for start in range(0, len(labels), 8)]
    return b"".join(
        [
            b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x14testing batch 1 of 1q\x03",
            b"U\x06labelsq\x04]q\x05",
            # Lists are written in groups, of a thousand items in the published files.
            *(b"(" + b"".join(b"K" + bytes([i]) for i in group) + b"e" for group in groups),
            b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08",
            b"K\x00\x85U\x01b\x87Rq\x09(K\x01K" + bytes([len(images)]) + b"M\x00\x0c\x86",
            b"cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ",
            b"\xff\xff\xff\xffK\x00tb" + flag + b"T" + len(raw).to_bytes(4, "little") + raw,
            b"tbU\x09filenamesq\x0c]q\x0dU\x05a.pngau.",
        ]
    )


def write(folder: Path, files: dict[str, bytes], patch: pytest.MonkeyPatch) -> None:
    """Write files as if they were the published ones."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        patch.setitem(cifar10.MD5, name, md5)


def test_binary_and_python_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = {name: batch(i) for i, name in enumerate(("test_batch", *cifar10.BATCHES["train"]))}
    binaries = {f"{name}.bin": binary(content) for name, content in batches.items()}
    pickles = {name: python2(content) for name, content in batches.items()}
    write(tmp_path / "cifar-10-batches-bin", binaries, monkeypatch)
    (tmp_path / "py").mkdir()
    write(tmp_path / "py" / "cifar-10-batches-py", pickles, monkeypatch)
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


def test_the_order_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"test_batch.bin": binary(batch(0))}
    write(tmp_path / "c", files, monkeypatch)
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
    with pytest.raises(InputError, match="index of 'bird' is 3; it must be 2"):
        load_data(f"cifar10:{tmp_path / 'c'}", AS_STORED, class_names=mixed)


def test_the_real_cifar10() -> None:
    folder = shared("cifar-10-batches-bin")
    images = load_data(f"cifar10:{folder}", AS_STORED, num_classes=10)
    assert np.bincount(images.labels).tolist() == [1000] * 10
    assert images.class_names is not None
    assert images.class_names[images.labels[0]] == "cat"


def test_changed_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="CIFAR-10 is without it; .* test_batch.bin or test_batch"):
        load_data(f"cifar10:{tmp_path}", AS_STORED)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": 1}))
    with pytest.raises(InputError, match="md5 checksum of .*test_batch is"):
        load_data(f"cifar10:{tmp_path}", AS_STORED)
    (tmp_path / "test_batch.bin").write_bytes(binary(batch(0)))
    with pytest.raises(InputError, match="md5 checksum of .*test_batch.bin is"):
        load_data(f"cifar10:{tmp_path}", AS_STORED)


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_guarantee_read_python_batch_executes_nothing(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "was-here"
    calls = [
        Call(os.mkdir, str(mark)),
        Call(subprocess.check_call, ["touch", str(mark)]),
        Call(eval, f"open({str(mark)!r}, 'w')"),
    ]
    for call in calls:
        for content in (call, {"data": call, "labels": [0]}, {"labels": call, "data": b"x"}):
            with pytest.raises(InputError, match="a Python file of CIFAR-10 is not readable"):
                cifar10.read_python_batch(pickle.dumps(content, protocol))
    # A batch that is read, and calls a function on the way.
    hostile = python2(batch(0)).replace(b"cnumpy\ndtype\n", f"cos\nmkdir\n(V{mark}\ntR".encode())
    cifar10.read_python_batch(hostile)
    assert not mark.exists()
    # The same calls do run when a pickle is loaded, so the test could fail.
    pickle.loads(pickle.dumps(calls[0], protocol))
    assert mark.exists()


def test_other_and_damaged_pickles_are_refused() -> None:
    whole = python2(batch(0))
    images, labels = batch(0)
    others = (b"", b"garbage", whole[:500], whole[:-1], python2((images, labels[1:])))
    for data in (*others, python2((images[:, :9], labels)), python2(batch(0), b"\x88")):
        with pytest.raises(InputError, match="a Python file of CIFAR-10 is not readable"):
            cifar10.read_python_batch(data)
