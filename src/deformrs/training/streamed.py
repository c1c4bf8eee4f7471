"""Pictures that are read as training needs them, by processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import torch
from torch import Tensor

from deformrs.training.reading import Reading, as_floats, checked_rows, rows_on
from deformrs.training.workers import Workers


class Streamed:
    """The chosen pictures, read anew for every batch by `workers` processes; 0: by this one.

    Labels and the first picture are checked when it is made, the other pictures as they come.
    Processes begin with the first batch and stay for later epochs, until `close`; they end too
    when batches are left before their end. Bytes travel where that loses no bit.

    Guarantee: every picture comes bit for bit as the set gives it, in the order that is asked for,
    however many processes read.
    """

    def __init__(
        self,
        reading: Reading,
        device: torch.device,
        *,
        workers: int,
    ) -> None:
        self.device, self.size, self.channels = device, reading.size, reading.shape[0]
        self._labels = torch.from_numpy(reading.labels).to(device)
        self._workers = Workers(reading, workers, pinned=device.type == "cuda")

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def words(self) -> str:
        """How many pictures are streamed, and by whom."""
        count = self._workers.count
        by = f"{count} worker{'s' if count > 1 else ''}" if count else "the main process"
        return f"{len(self):,} pictures streamed by {by}"

    def batches(self, order: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each row of `order` [steps, b] pictures [b, c, h, w] in float32 and labels [b].

        Rows may also be a list, of any lengths.
        """
        rows = checked_rows(order, len(self))
        there = rows_on(self.device, rows)
        with closing(self._workers.batches([row.tolist() for row in rows])) as batches:
            for row, batch in zip(there, batches, strict=True):
                pictures = batch.to(self.device, non_blocking=True)
                yield as_floats(pictures), self._labels.index_select(0, row)

    def close(self) -> None:
        """End the processes; more batches would begin them anew."""
        self._workers.close()
