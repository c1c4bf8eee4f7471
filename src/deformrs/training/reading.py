"""The chosen pictures of a set, read and checked one by one: for holding and for streaming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.errors import InputError
from deformrs.geometry import check_pictures
from deformrs.preparation import Pixels
from deformrs.training.labelled import (
    Labelled,
    checked_labels,
    name_of,
    no_pictures,
    read_picture,
)
from deformrs.units import Size

Bytes = NDArray[np.uint8]
Indices = Sequence[int] | NDArray[np.int64]

_WHITE = np.float32(255)


@dataclass(frozen=True, eq=False)
class Reading:
    """Reads pictures by their place among the chosen ones: place 0 is that of `indices[0]`.

    All must have one shape. What cannot be used raises and is named. It can be sent to another
    process if the set of pictures can.
    """

    pictures: Labelled
    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, pictures: Labelled, indices: Indices, num_classes: int | None) -> Self:
        """Check all labels of the set, and look at the first of the chosen pictures."""
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or not len(chosen):
            raise no_pictures()
        if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= len(pictures):
            raise InputError(
                "the choice of pictures",
                f"from {chosen.min()} to {chosen.max()}",
                f"must be of whole numbers from 0 to {len(pictures) - 1}",
                "choose pictures that are there",
            )
        labels, first = checked_labels(pictures, num_classes), int(chosen[0])
        pixels, _ = read_picture(pictures, first)
        check_pictures(name_of(pictures, first), torch.tensor(pixels), rank=3)
        channels, height, width = pixels.shape
        return cls(pictures, chosen.astype(np.int64), labels[chosen], (channels, height, width))

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def size(self) -> Size:
        """Height and width of every picture."""
        return self.shape[1:]

    def picture(self, place: int) -> Bytes | Pixels:
        """One picture: as bytes where that loses no bit, else as it is."""
        index = int(self.indices[place])
        pixels, label = read_picture(self.pictures, index)
        if pixels.shape != self.shape:
            first = name_of(self.pictures, int(self.indices[0]))
            raise _other_shape(name_of(self.pictures, index), pixels.shape, first, self.shape)
        if label != self.labels[place]:
            raise InputError(
                f"the label of {name_of(self.pictures, index)}",
                repr(label),
                f"must be {self.labels[place]} as in the labels of the set",
                "correct the set",
            )
        levels = as_bytes(pixels)
        if levels is not None:
            return levels
        check_pictures(name_of(self.pictures, index), torch.tensor(pixels), rank=3)
        return pixels

    def batch(self, places: Sequence[int]) -> Tensor:
        """Pictures [b, c, h, w] on the CPU: bytes where all of them are, else float32."""
        pictures = [self.picture(place) for place in places]
        if not pictures:
            return torch.empty((0, *self.shape), dtype=torch.uint8)
        if any(picture.dtype != np.uint8 for picture in pictures):
            return torch.stack([as_floats(torch.tensor(picture)) for picture in pictures])
        return torch.from_numpy(np.stack(pictures))


def as_bytes(pixels: Pixels) -> Bytes | None:
    """The bytes k whose float32(k) / 255 have the very bits of `pixels`; None: there are none.

    >>> as_bytes(np.float32([1]) / np.float32(255)), as_bytes(np.float32([0.3]))
    (array([1], dtype=uint8), None)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        levels = np.rint(pixels * _WHITE).astype(np.uint8)
    again = levels.astype(np.float32) / _WHITE
    # Compared as whole numbers: -0.0 equals 0.0 but has other bits.
    return levels if np.array_equal(again.view(np.int32), pixels.view(np.int32)) else None


def as_floats(pictures: Tensor) -> Tensor:
    """Pictures of bytes or of floats as float32, on the device where they lie.

    Guarantee: bytes become bit for bit the pixels that `as_bytes` made them of, on every device.
    """
    if pictures.dtype != torch.uint8:
        return pictures
    # By a plain number a GPU would not divide: it multiplies by the reciprocal, which may err in
    # the last bit.
    white = torch.full((), float(_WHITE), device=pictures.device)
    return pictures.to(torch.float32).div_(white)


def checked_rows(order: Tensor | Sequence[Tensor], total: int) -> list[Tensor]:
    """The rows of an order, which are whole numbers below `total`."""
    rows = list(order)
    plain = all(row.ndim == 1 and row.dtype == torch.int64 for row in rows)
    places = torch.cat(rows) if plain and rows else torch.zeros(0)
    if not plain or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < total):
        raise InputError(
            "the order",
            f"of {len(rows)} rows such as {rows[0].tolist()!r:.60}",
            f"must be rows of whole numbers from 0 to {total - 1}",
            "e.g. torch.randperm(len(source)).view(-1, batch_size)",
        )
    return rows


def rows_on(device: torch.device, rows: list[Tensor]) -> list[Tensor]:
    """The rows on the device, taken there in one go without waiting for it."""
    if not rows:
        return []
    places = torch.cat(rows)
    if device.type == "cuda":
        places = places.pin_memory()
    return list(torch.split(places.to(device, non_blocking=True), [len(row) for row in rows]))


def _other_shape(
    name: str, shape: tuple[int, ...], first: str, expected: tuple[int, ...]
) -> InputError:
    if len(shape) != 3:
        return InputError(
            name,
            f"of shape {shape}",
            f"must be {list(expected)} like the first, {first}",
            "mend it",
        )
    if shape[0] != expected[0]:
        return InputError(
            name,
            f"of {shape[0]} channel(s)",
            f"must have {expected[0]} like the first, {first}",
            "--channels 3 makes all of them colour, --channels 1 grey",
        )
    return InputError(
        name,
        f"of {shape[1]} x {shape[2]} px",
        f"must be of {expected[1]} x {expected[2]} px like the first, {first}",
        "--resize and --crop bring all of them to one size",
    )
