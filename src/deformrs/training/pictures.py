"""Where training takes its pictures from: held on the device, or streamed from the disk."""

from __future__ import annotations

import dataclasses
import difflib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from deformrs.checks import check_whole
from deformrs.errors import InputError
from deformrs.preparation import Preparation
from deformrs.splitting import split
from deformrs.training.held import Held
from deformrs.training.labelled import Labelled
from deformrs.training.memory import free_bytes, is_light
from deformrs.training.reading import Indices, Reading
from deformrs.training.streamed import Streamed
from deformrs.training.workers import usable_cores
from deformrs.units import Size

__all__ = ["Hold", "Source", "framed", "source_for", "split"]

Hold = Literal["auto", "yes", "no"]

_SHARE = 4
"""Pictures may take this part of the free memory: the network needs the rest."""
_LOOKED_AT = 8
_PATIENCE_SECONDS = 10.0
_MOST_WORKERS = 32


class Source(Protocol):
    """What the training loop reads: labelled pictures of one size, by their place 0, 1, 2, ..."""

    size: Size
    channels: int

    def __len__(self) -> int: ...

    @property
    def words(self) -> str:
        """How the pictures are kept, for people."""

    def batches(self, order: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each row of `order`, [steps, b] int64 on the CPU or a list of rows: pictures
        [b, c, h, w] in float32, in [0, 1], and labels [b] in int64, both on the device."""

    def close(self) -> None:
        """End what runs in the background."""


def source_for(
    pictures: Labelled,
    indices: Indices,
    device: torch.device,
    *,
    num_classes: int | None = None,
    hold: Hold = "auto",
    workers: int | None = None,
    looked: Callable[[int], None] | None = None,
) -> Source:
    """The chosen pictures of a set, held or streamed; the pixels are the same bit for bit.

    With "auto" they are held where they take at most a quarter of the memory that is free on the
    device, counted in bytes if the first eight pictures are exact as such, else in float32.
    Holding reads each file once, streaming once an epoch.

    `workers` is how many processes read. None: as many as there are processors, at most 32; none
    for a set that cannot be sent there, or that carries so much in memory that its copies would
    take a quarter of what is free. Pictures to be held that this process reads within ten seconds
    are read by it alone. `looked` is told how many were read while they are gathered.

    Raises for labels outside `num_classes` or of one class only, for pictures of different sizes,
    and for one that cannot be read, which a stream finds only when it comes to it.
    """
    if hold not in get_args(Hold):
        near = difflib.get_close_matches(str(hold), get_args(Hold), n=1)
        raise InputError(
            "hold",
            repr(hold),
            "must be auto, yes or no",
            f"did you mean {near[0]!r}?" if near else "choose one",
        )
    if workers is not None:
        check_whole("workers", workers, least=0)
    reading = Reading.of(pictures, indices, num_classes)
    needed = _look(reading)
    if hold == "yes" or (hold == "auto" and needed.size <= free_bytes(device) // _SHARE):
        slow = needed.seconds > _PATIENCE_SECONDS
        count = _workers(pictures, workers) if slow else 0
        return Held(reading, device, workers=count, looked=looked)
    return Streamed(reading, device, workers=_workers(pictures, workers))


def framed(preparation: Preparation) -> Preparation:
    """What pictures are cut to before training cuts them at random: a square of the resized side.

    Where there is no such margin, or only one of `resize` and `crop`, nothing changes.

    >>> framed(Preparation(resize=256, crop=(224, 224))).crop
    (256, 256)
    """
    side, crop = preparation.resize, preparation.crop
    if not isinstance(side, int) or crop is None or side < max(crop):
        return preparation
    return dataclasses.replace(preparation, crop=(side, side))


@dataclasses.dataclass(frozen=True)
class _Estimate:
    """What all pictures take, judged by the first few."""

    size: int
    seconds: float


def _look(reading: Reading) -> _Estimate:
    count = min(_LOOKED_AT, len(reading))
    began = time.perf_counter()
    some = reading.batch(range(count))
    seconds = time.perf_counter() - began
    return _Estimate(some.nbytes * len(reading) // count, seconds * len(reading) / count)


def _workers(pictures: Labelled, wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    cores = min(_MOST_WORKERS, usable_cores())
    most = free_bytes(torch.device("cpu")) // _SHARE // cores
    return cores if is_light(pictures, most) else 0
