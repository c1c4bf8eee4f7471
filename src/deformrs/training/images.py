"""Images for training: held on the device, or streamed from the disk."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from deformrs.checks import check_integer
from deformrs.data.folders import ImageFolder
from deformrs.data.image_set import ImageSet, Indices
from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import DeformRSError, InputError, ModelError
from deformrs.geometry import check_images
from deformrs.units import Size

Levels = NDArray[np.uint8]

FREE_SHARE = 4
"""Held images may take this part of the free memory: the network needs the rest."""
MAX_WORKERS = 32
PIXELS_AT_ONCE = 2**20
"""Read in one go while images are gathered."""
NORMALISATION_IMAGES = 1000
_WHITE = 255.0


class Source(Protocol):
    """Labelled images of one size for the training loop, by their position 0, 1, 2, ..."""

    size: Size
    channels: int

    def __len__(self) -> int: ...

    @property
    def description(self) -> str:
        """How many images there are and where they are kept."""

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a batch for each row of positions [b]: images [b, c, h, w] and labels [b].

        Images are float32 in [0, 1], labels int64, both on the device.
        """


def source_for(
    images: ImageSet,
    indices: Indices | Sequence[int],
    device: torch.device,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Source:
    """Return the chosen images, held or streamed; the pixels are the same bit for bit.

    They are held if they take at most a quarter of the free memory of the device.
    Holding reads each file once, streaming once an epoch. `workers` processes read; None takes
    one for each processor, at most 32, if the images are in files, else none. `progress` is
    called with the number of images read so far while they are gathered.
    """
    if workers is None:
        workers = min(MAX_WORKERS, usable_cores()) if isinstance(images, ImageFolder) else 0
    check_integer("workers", workers, least=0)
    if not len(indices):
        raise InputError("the data", "without images", "must have at least one", "add some")
    check_classes(images.labels)
    reader = Reader(images, indices)
    if reader.image(0).nbytes * len(reader) <= free_bytes(device) // FREE_SHARE:
        return Held(gather(reader, device, workers, progress), reader.labels, device)
    return Streamed(reader, device, workers)


class Held:
    """Images in one tensor on the device: bytes or float32.

    Guarantee: batches have the pixels of the dataset bit for bit, in the order of the rows.
    """

    def __init__(self, images: Tensor, labels: Tensor, device: torch.device) -> None:
        self.device = device
        self.channels, height, width = images.shape[1:]
        self.size = (height, width)
        self._images, self._labels = images.to(device), labels.to(device)

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def description(self) -> str:
        """How many images are held, where, and in how much memory."""
        return f"{len(self):,} images held on {self.device} ({format_bytes(self._images.nbytes)})"

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels for each row; the host never waits for the device."""
        for row in rows:
            there = row.to(self.device, non_blocking=True)
            images = self._images.index_select(0, there)
            yield as_floats(images), self._labels.index_select(0, there)


class Streamed:
    """Images read from the disk for every batch, by worker processes or by this one.

    Guarantee: batches have the pixels of the dataset bit for bit, in the order of the rows,
    whatever the number of workers.
    """

    def __init__(self, reader: Reader, device: torch.device, workers: int) -> None:
        self.device = device
        self.channels, height, width = reader.shape
        self.size = (height, width)
        self._reader, self._workers = reader, workers

    def __len__(self) -> int:
        return len(self._reader)

    @property
    def description(self) -> str:
        """How many images are streamed, and by how many workers."""
        count = self._workers
        by = f"{count} worker{'s' if count > 1 else ''}" if count else "the main process"
        return f"{len(self):,} images streamed by {by}"

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels for each row, read ahead by the workers."""
        pinned = self.device.type == "cuda"
        read = self._reader.batches(rows, self._workers, pinned=pinned)
        for row, batch in zip(rows, read, strict=True):
            labels = self._reader.labels[row].to(self.device, non_blocking=True)
            yield as_floats(batch.to(self.device, non_blocking=True)), labels


class Reader(Dataset[Tensor | DeformRSError]):
    """Reads batches of chosen images, which must have one shape; position 0 is `indices[0]`."""

    def __init__(self, images: ImageSet, indices: Indices | Sequence[int]) -> None:
        self.images, self.indices = images, np.asarray(indices, np.int64)
        self.labels = torch.from_numpy(np.asarray(images.labels, np.int64)[self.indices])
        first = int(self.indices[0])
        pixels, _ = images[first]
        check_images(images.source(first), torch.tensor(pixels), rank=3)
        channels, height, width = pixels.shape
        self.shape = (channels, height, width)

    def __len__(self) -> int:
        return len(self.indices)

    def image(self, position: int) -> Levels | Pixels:
        """Return one image [c, h, w]: as bytes if that is exact, else in float32."""
        index = int(self.indices[position])
        pixels, _ = self.images[index]
        if pixels.shape != self.shape:
            raise self._other_shape(index, pixels.shape)
        levels = as_bytes(pixels)
        if levels is not None:
            return levels
        check_images(self.images.source(index), torch.tensor(pixels), rank=3)
        return pixels

    def __getitem__(self, positions: list[int]) -> Tensor | DeformRSError:
        """Return images [b, c, h, w] on the CPU: bytes if all of them are, else float32.

        An error is returned: raised in a worker, it would come wrapped in a traceback.
        """
        try:
            images = [self.image(position) for position in positions]
        except DeformRSError as error:
            return error
        if all(image.dtype == np.uint8 for image in images):
            return torch.from_numpy(np.stack(images))
        return torch.stack([as_floats(torch.tensor(image)) for image in images])

    def batches(self, rows: Sequence[Tensor], workers: int, *, pinned: bool) -> Iterator[Tensor]:
        """Yield the images of each row, in this order; an image that cannot be read raises."""
        loader: DataLoader[Tensor | DeformRSError] = DataLoader(
            self,
            batch_size=None,  # an item is a batch already
            sampler=[row.tolist() for row in rows],
            num_workers=workers if len(rows) > 1 else 0,
            pin_memory=pinned,
            worker_init_fn=_leave_signals_to_parent,
            generator=torch.Generator(),  # the default is torch's global one
        )
        try:
            for batch in loader:
                if isinstance(batch, DeformRSError):
                    raise batch
                yield batch
        except (RuntimeError, OSError, EOFError) as error:
            if isinstance(error, DeformRSError):
                raise
            with suppress(RuntimeError):  # raised by PyTorch when it is told of the death
                time.sleep(0.5)
            raise ModelError(
                "a worker that reads images",
                "gone (" + " ".join(str(error).split())[:200] + ")",
                "must live as long as training",
                "see that memory and shared memory suffice, or use --workers 0",
            ) from error

    def _other_shape(self, index: int, shape: tuple[int, ...]) -> InputError:
        name, first = self.images.source(index), self.images.source(int(self.indices[0]))
        channels, height, width = self.shape
        if shape[0] != channels:
            return _other_channels(name, shape[0], f"{channels} like the first, {first}")
        return InputError(
            name,
            f"of {shape[1]} x {shape[2]} px",
            f"must be of {height} x {width} px like the first, {first}",
            "--resize and --crop bring all of them to one size",
        )


def gather(
    reader: Reader,
    device: torch.device,
    workers: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Return all images in one tensor on the device: bytes if that is exact, else float32."""
    shape = (len(reader), *reader.shape)
    check_room(f"the {len(reader):,} images", prod(shape), device)
    held = torch.empty(shape, dtype=torch.uint8, device=device)
    rows = torch.split(torch.arange(len(reader)), max(1, PIXELS_AT_ONCE // prod(reader.shape)))
    done = 0
    for batch in reader.batches(rows, workers, pinned=False):
        if held.dtype == torch.uint8 and batch.dtype != torch.uint8:
            check_room(f"the {len(reader):,} images", 4 * prod(shape), device)
            held = as_floats(held)
        there = batch.to(device)
        held[done : done + len(there)] = there if held.dtype == torch.uint8 else as_floats(there)
        done += len(there)
        if progress is not None:
            progress(done)
    return held


def _leave_signals_to_parent(_: int) -> None:
    # Ctrl-C reaches all processes; the main one ends its workers with SIGTERM when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def as_bytes(pixels: Pixels) -> Levels | None:
    """Return the bytes k whose float32(k) / 255 have the very bits of `pixels`, or None.

    >>> as_bytes(np.float32([1]) / np.float32(255)), as_bytes(np.float32([0.3]))
    (array([1], dtype=uint8), None)
    """
    white = np.float32(_WHITE)
    with np.errstate(invalid="ignore", over="ignore"):
        levels = np.rint(pixels * white).astype(np.uint8)
    again = levels.astype(np.float32) / white
    # Compared as integers: -0.0 equals 0.0 but has other bits.
    return levels if np.array_equal(again.view(np.int32), pixels.view(np.int32)) else None


def as_floats(images: Tensor) -> Tensor:
    """Return images of bytes or floats as float32 in [0, 1], on their device.

    Guarantee: bytes become bit for bit the pixels that `as_bytes` made them of, on every device.
    """
    if images.dtype != torch.uint8:
        return images
    # A GPU does not divide by a plain number: it multiplies by the reciprocal, which may err in
    # the last bit.
    white = torch.full((), _WHITE, device=images.device)
    return images.to(torch.float32).div_(white)


def check_classes(labels: Sequence[int]) -> None:
    """Raise unless there are at least two classes."""
    if len(set(labels)) < 2:
        raise InputError(
            "the data",
            f"of one class, {labels[0]}",
            "must have at least two, or there is nothing to learn",
            "add images of another class",
        )


def normalisation_of(
    images: ImageSet, indices: Indices
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, of at most 1,000 images spread evenly.

    They are rounded to four digits; a channel that is constant gets a deviation of 1.
    """
    count = min(len(indices), NORMALISATION_IMAGES)
    chosen = np.asarray(indices)[np.linspace(0, len(indices) - 1, count).astype(int)]
    means: list[NDArray[np.float64]] = []
    squares: list[NDArray[np.float64]] = []
    for index in chosen.tolist():
        pixels = images[index][0].astype(np.float64)
        if means and len(means[0]) != len(pixels):
            raise _other_channels(images.source(index), len(pixels), f"{len(means[0])} like others")
        means.append(pixels.mean(axis=(1, 2)))
        squares.append((pixels**2).mean(axis=(1, 2)))
    mean = np.mean(means, axis=0)
    std = np.sqrt(np.maximum(np.mean(squares, axis=0) - mean**2, 0.0)).round(4)
    return tuple(mean.round(4).tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _other_channels(name: str, count: int, expected: str) -> InputError:
    return InputError(
        name,
        f"of {count} channel(s)",
        f"must have {expected}",
        "--channels 3 makes all of them colour, --channels 1 grey",
    )


def framed(preparation: Preparation) -> Preparation:
    """Return the preparation before random crops: a square of the resized side.

    Without such a margin, or with only one of `resize` and `crop`, nothing changes.

    >>> framed(Preparation(resize=256, crop=(224, 224))).crop
    (256, 256)
    """
    side, crop = preparation.resize, preparation.crop
    if not isinstance(side, int) or crop is None or side < max(crop):
        return preparation
    return dataclasses.replace(preparation, crop=(side, side))


def usable_cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device; on the CPU without /proc half of all there is."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # unlike sysconf, it counts what file caches can give back
        entries = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(entries["MemAvailable"].split()[0]) * 1024
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 4 * 2**30


def check_room(name: str, size: int, device: torch.device) -> None:
    """Raise unless so many bytes are free on the device."""
    free = free_bytes(device)
    if size > free:
        raise InputError(
            name,
            format_bytes(size),
            f"must fit into the memory of {device}, where {format_bytes(free)} are free",
            "free some memory, or take fewer or smaller images",
        )


def format_bytes(size: int) -> str:
    """Return a number of bytes as text.

    >>> format_bytes(47_040_000), format_bytes(2_500_000_000), format_bytes(784)
    ('47 MB', '2.5 GB', '784 bytes')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.{0 if size >= 10 * factor else 1}f} {unit}"
    return f"{size} bytes"
