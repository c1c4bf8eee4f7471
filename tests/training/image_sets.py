"""Sets of labelled images for the tests of where training takes them from."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deformrs.data import ImageSet, load_data
from deformrs.data.preparation import Preparation

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)


def bytes_of(n: int, *shape: int) -> NDArray[np.uint8]:
    """Images of noise in which every byte occurs."""
    return RANDOM.integers(0, 256, (n, *shape), dtype=np.uint8)


def stored(
    path: Path, images: NDArray[np.generic], preparation: Preparation | None = None
) -> ImageSet:
    """These images in an .npz file, labelled 0, 1, 2, 0, 1, 2, ..."""
    np.savez(path, images=images, labels=np.arange(len(images)) % 3)
    return load_data(path, preparation)


def photographs(folder: Path, n: int = 6, sides: Sequence[int] = (40, 56, 48)) -> Path:
    """JPEG files n of each of two classes, with sides that differ."""
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(n):
            side = sides[number % len(sides)]
            image = bytes_of(1, 9, 7, 3)[0]
            Image.fromarray(image).resize((side, 50)).save(folder / name / f"{number}.jpg")
    return folder


def damage(path: Path) -> Path:
    """Cut the end off a file."""
    path.write_bytes(path.read_bytes()[:-40])
    return path


def as_given(images: ImageSet, places: Sequence[int]) -> bytes:
    """The bits of those images as the set itself gives them."""
    return b"".join(images[place][0].tobytes() for place in places)


def bits(batch: Tensor) -> bytes:
    assert batch.dtype == torch.float32
    return batch.cpu().numpy().tobytes()


class Slow:
    """`count` images, of which each but the first takes some seconds; the k-th shows k."""

    def __init__(self, count: int, seconds: float = 0.0, side: int = 2) -> None:
        self.labels = tuple(place % 2 for place in range(count))
        self._count, self._seconds, self._side = count, seconds, side

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index:
            time.sleep(self._seconds)
        return torch.full((1, self._side, self._side), index % 256 / 255), self.labels[index]


class Elsewhere(Slow):
    """Slow images that are white where another process than the set's maker reads them."""

    def __init__(self, count: int, seconds: float, side: int) -> None:
        super().__init__(count, seconds, side)
        self._maker = os.getpid()

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        _, label = super().__getitem__(index)
        return torch.full((1, self._side, self._side), float(os.getpid() != self._maker)), label


class OneThread(Slow):
    """Its images show how many threads torch uses where they are read."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1, 2, 2), torch.get_num_threads() / 255), self.labels[index]


class Deadly(Slow):
    """Its last image kills the process that reads it."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == len(self) - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Failing(Slow):
    """Its fourth image shows a fault in the set itself."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 3:
            raise KeyError("no\nsuch key")
        return super().__getitem__(index)

    def source(self, index: int) -> str:
        return f"frame {index}"
