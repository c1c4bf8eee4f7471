"""Pictures that all lie on the device: an epoch costs no reading and no copying."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from math import prod

import torch
from torch import Tensor

from deformrs.training.memory import check_room, size_words
from deformrs.training.reading import Reading, as_floats, checked_rows, rows_on
from deformrs.training.workers import Workers

_AT_ONCE = 2**20
"""Pixels that are read, or made floats, in one go."""


class Held:
    """The chosen pictures in one tensor on the device: bytes where no bit is lost, else float32.

    All are read, by `workers` processes or by this one, and checked when it is made; `looked` is
    told how many were. One picture that is not of bytes makes all of them float32.

    Guarantee: every picture comes bit for bit as the set gives it, in the order that is asked for.
    """

    def __init__(
        self,
        reading: Reading,
        device: torch.device,
        *,
        workers: int = 0,
        looked: Callable[[int], None] | None = None,
    ) -> None:
        self.device, self.size, self.channels = device, reading.size, reading.shape[0]
        self._pictures = _gathered(reading, device, workers, looked)
        self._labels = torch.from_numpy(reading.labels).to(device)

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def words(self) -> str:
        """How many pictures are held, where, and in how much memory."""
        return f"{len(self):,} pictures held on {self.device} ({size_words(self._pictures.nbytes)})"

    def batches(self, order: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each row of `order` [steps, b] pictures [b, c, h, w] in float32 and labels [b].

        The host never waits for the device. Rows may also be a list, of any lengths.
        """
        for row in rows_on(self.device, checked_rows(order, len(self))):
            pictures = self._pictures.index_select(0, row)
            yield as_floats(pictures), self._labels.index_select(0, row)

    def close(self) -> None:
        """There is nothing to close."""


def _gathered(
    reading: Reading, device: torch.device, workers: int, looked: Callable[[int], None] | None
) -> Tensor:
    """All pictures: [n, c, h, w]."""
    shape = (len(reading), *reading.shape)
    held = _room(shape, torch.uint8, device)
    some = max(1, _AT_ONCE // prod(reading.shape))
    rows = [row.tolist() for row in torch.split(torch.arange(len(reading)), some)]
    readers = Workers(reading, workers, pinned=device.type == "cuda")
    done = 0
    with closing(readers), closing(readers.batches(rows)) as batches:
        for batch in batches:
            there = batch.to(device, non_blocking=True)
            if held.dtype == torch.uint8 and there.dtype != torch.uint8:
                # Bytes do not suffice after all; those that are there are exact.
                floats = _room(shape, torch.float32, device)
                for start in range(0, done, some):
                    floats[start : start + some] = as_floats(held[start : start + some])
                held = floats
            whole = there if held.dtype == torch.uint8 else as_floats(there)
            held[done : done + len(there)] = whole
            done += len(there)
            if looked is not None:
                looked(done)
    return held


def _room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    check_room(f"the {shape[0]:,} pictures", prod(shape) * dtype.itemsize, device)
    return torch.empty(shape, dtype=dtype, device=device)
