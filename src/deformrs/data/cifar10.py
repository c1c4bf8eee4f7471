"""CIFAR-10 from its published files, the binary or the python version. A. Krizhevsky, 2009."""

from __future__ import annotations

import io
import math
import os
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deformrs.data.base import Split
from deformrs.data.download import Report, fetch, find, missing, read_checked
from deformrs.errors import InputError

Plain = dict[bytes, object]


def read_plain_pickle(data: bytes) -> Plain:
    """The dictionary in that pickle, byte arrays in it as NumPy arrays.

    Guarantee: no function that the pickle names is called, whatever is in it.
    """
    try:
        found = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    # A pickle that is not well-formed fails in many ways: EOFError, IndexError, KeyError, ...
    except Exception as error:
        raise InputError(
            "a pickle",
            f"not readable ({error})",
            "must hold nothing but numbers, text, lists, dictionaries and byte arrays",
            "use the published files",
        ) from None
    if not isinstance(found, dict):
        raise InputError(
            "a pickle", f"one {type(found).__name__}", "must be a dictionary", "use another file"
        )
    return {
        key: value.array if isinstance(value, _Array) else value for key, value in found.items()
    }


class _Kind:
    """Stands in for numpy.dtype."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise pickle.UnpicklingError("an array in it is not of bytes")

    def __setstate__(self, _: object) -> None:
        """Byte order and the like, which bytes do not have."""


class _Array:
    """Stands in for numpy.ndarray and for the function that makes an empty one."""

    array: NDArray[np.uint8]

    def __init__(self, *_: object) -> None:
        self.array = np.zeros(0, np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple() as shape, _Kind(), False | 0, bytes() as raw) if all(
                isinstance(length, int) and length >= 0 for length in shape
            ) and math.prod(shape) == len(raw):
                self.array = np.frombuffer(raw, np.uint8).reshape(shape)
            case _:
                raise pickle.UnpicklingError("an array in it is of another kind")


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy", "dtype"): _Kind,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _STAND_INS[module, name]


URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5_ARCHIVE = "c32a1d4ab5d03f1284b67883e8d87530"
INSTEAD = "without a network give the folder of the published files, as cifar10:FOLDER"
CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

BATCHES: dict[Split, tuple[str, ...]] = {
    "test": ("test_batch",),
    "train": tuple(f"data_batch_{i}" for i in range(1, 6)),
}
MD5_BINARY = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
MD5_PYTHON = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}

_BINARY = "cifar-10-batches-bin"
_PLACES = ("", _BINARY, "cifar-10-batches-py")
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_cifar10(folder: Path, split: Split) -> Batch:
    """Images [n, 3, 32, 32], 0 to 255, and labels [n]."""
    images, labels = zip(*(_read_batch(folder, name) for name in BATCHES[split]), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def fetch_cifar10(folder: Path, split: Split, report: Report | None = None, url: str = URL) -> None:
    """Download and unpack the binary version unless the split's files are in the folder."""
    if all(find(folder, _PLACES, (name + ".bin", name)) for name in BATCHES[split]):
        return
    archive = folder / "cifar-10-binary.tar.gz"
    fetch(url, archive, MD5_ARCHIVE, INSTEAD, report)
    unpacked = folder / f"unpacking.{os.getpid()}.partial"
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(unpacked, filter="data")
        # Moved one by one: files that lie there already may be from another process, or damaged.
        (folder / _BINARY).mkdir(exist_ok=True)
        for path in (unpacked / _BINARY).iterdir():
            path.replace(folder / _BINARY / path.name)
    except (OSError, tarfile.TarError) as error:
        raise InputError(
            str(archive), f"not unpacked ({error})", f"must fit into {folder}", INSTEAD
        ) from None
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
        archive.unlink(missing_ok=True)


def _read_batch(folder: Path, name: str) -> Batch:
    path = find(folder, _PLACES, (name + ".bin", name))
    if path is None:
        raise missing(folder, "CIFAR-10", (name + ".bin", name))
    if path.suffix == ".bin":
        return split_records(read_checked(path, MD5_BINARY[name]))
    return read_python_batch(read_checked(path, MD5_PYTHON[name]))


def split_records(data: bytes) -> Batch:
    """Records of one byte for the label and 3,072 for the red, green and blue planes."""
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:].reshape(-1, *_SHAPE), records[:, 0].astype(np.int64)


def read_python_batch(data: bytes) -> Batch:
    """The same from a python file: a pickle, read without running anything in it."""
    batch = read_plain_pickle(data)
    images, labels = batch.get(b"data"), batch.get(b"labels")
    if not (
        isinstance(images, np.ndarray)
        and images.dtype == np.uint8
        and images.shape[1:] == (_PIXELS,)
        and isinstance(labels, list)
        and len(labels) == len(images)
        and all(isinstance(label, int) for label in labels)
    ):
        raise InputError(
            "a python file of CIFAR-10",
            "of another kind",
            f"must hold 'data' [n, {_PIXELS}] and n 'labels'",
            "use the published files",
        )
    return images.reshape(-1, *_SHAPE), np.array(labels, np.int64)
