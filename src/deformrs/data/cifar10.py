"""CIFAR-10 from its published files, the binary or the Python version. A. Krizhevsky, 2009."""

from __future__ import annotations

import pickletools
import tarfile
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deformrs.data.download import DownloadProgress, fetch, find_published, read_published
from deformrs.data.image_set import StoredSplit
from deformrs.errors import InputError
from deformrs.runs.files import make_folder, write_atomically

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

BATCHES: dict[StoredSplit, tuple[str, ...]] = {
    "test": ("test_batch",),
    "train": tuple(f"data_batch_{i}" for i in range(1, 6)),
}
MD5_ARCHIVE = "c32a1d4ab5d03f1284b67883e8d87530"
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
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
_MAX_OPCODES = 1_000_000  # the published files have a tenth of that
_REMEDY = "without a network give the folder of the published files, as cifar10:FOLDER"

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_cifar10(folder: Path, split: StoredSplit) -> Batch:
    """Return images [n, 3, 32, 32] as bytes, and labels [n]."""
    images, labels = zip(*(_read(folder, name) for name in BATCHES[split]), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def fetch_cifar10(
    folder: Path, split: StoredSplit, progress: DownloadProgress | None = None, url: str = URL
) -> None:
    """Download and unpack the binary version unless the folder has the files of the split."""
    if _has(folder, split):
        return
    archive = folder / "cifar-10-binary.tar.gz"
    fetch(url, archive, MD5_ARCHIVE, _REMEDY, progress)
    names = {f"{_BINARY}/{name}.bin" for batches in BATCHES.values() for name in batches}
    try:
        with tarfile.open(archive) as packed:
            for member in packed:
                if member.name in names and (file := packed.extractfile(member)):
                    make_folder(folder / _BINARY)
                    write_atomically(folder / member.name, file.read())
        if not _has(folder, split):
            raise tarfile.TarError(f"it lacks the files of {_BINARY}")
    except (OSError, tarfile.TarError) as error:
        raise InputError(
            str(archive), f"not unpacked ({error})", f"must fit into {folder}", _REMEDY
        ) from None
    finally:
        archive.unlink(missing_ok=True)


def _has(folder: Path, split: StoredSplit) -> bool:
    return all(find_published(folder, _PLACES, (name + ".bin", name)) for name in BATCHES[split])


def read_binary_batch(data: bytes) -> Batch:
    """Read records of one byte for the label and 3,072 for the red, green and blue planes."""
    if not data or len(data) % (1 + _PIXELS):
        raise InputError(
            "a binary file of CIFAR-10",
            f"of {len(data):,} bytes",
            f"must be records of {1 + _PIXELS:,}",
            "use the published files",
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:].reshape(-1, *_SHAPE), records[:, 0].astype(np.int64)


def read_python_batch(data: bytes) -> Batch:
    """Read a batch of the Python version, a pickle, from the arguments of its opcodes.

    Guarantee: no opcode is executed, so nothing in the file can run.
    """
    try:
        steps = islice(pickletools.genops(data), _MAX_OPCODES)
        opcodes = [(op.name, argument) for op, argument, _ in steps]
        key = opcodes.index(("SHORT_BINSTRING", "labels"))
        values = takewhile(lambda op: not isinstance(op[1], str), opcodes[key + 1 :])
        labels = [value for name, value in values if name == "BININT1"]
        start = next(i for i, (name, _) in enumerate(opcodes) if name == "BINSTRING")
        if opcodes[start - 1][0] != "NEWFALSE":
            raise ValueError("the array is not in row-major order")
        images = np.frombuffer(str(opcodes[start][1]).encode("latin-1"), np.uint8)
        return images.reshape(len(labels), *_SHAPE), np.array(labels, np.int64)
    except (ValueError, IndexError, StopIteration) as error:
        raise InputError(
            "a Python file of CIFAR-10",
            f"not readable ({error or 'it has no images'})",
            "must be as published",
            "use the published files, or the binary version",
        ) from None


def _read(folder: Path, name: str) -> Batch:
    forms = {form: MD5[form] for form in (name + ".bin", name)}
    form, data = read_published("CIFAR-10", folder, _PLACES, forms)
    return read_binary_batch(data) if form.endswith(".bin") else read_python_batch(data)
