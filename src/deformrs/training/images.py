"""Where training takes its images from: held on the device, or streamed from the disk."""

from __future__ import annotations

import dataclasses
import difflib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import prod
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Literal, Protocol, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from deformrs.checks import check_integer
from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import DeformRSError, InputError
from deformrs.geometry import check_images
from deformrs.units import Size

_UNKNOWN = 4 * 2**30
"""What is taken for free where a system does not tell."""


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        # What holds copies of files can be had too, which sysconf does not count.
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def check_room(what: str, size: int, device: torch.device) -> None:
    """Raise unless so many bytes are free on the device."""
    free = free_bytes(device)
    if size > free:
        raise InputError(
            what,
            size_words(size),
            f"must fit into the memory of {device}, where {size_words(free)} are free",
            "--hold no reads them from the disk as they are needed",
        )


def is_light(images: object, most: int) -> bool:
    """Can the set be sent to other processes in at most that many bytes?"""
    scale = _Scale(most)
    try:
        pickle.Pickler(scale, protocol=5, buffer_callback=scale.weigh).dump(images)
    # What cannot be pickled says so in many ways.
    except Exception:
        return False
    return True


def size_words(size: int) -> str:
    """Bytes as people say them.

    >>> size_words(47_040_000), size_words(2_500_000_000), size_words(784)
    ('47 MB', '2.5 GB', '784 bytes')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.{0 if size >= 10 * factor else 1}f} {unit}"
    return f"{size} bytes"


class _Scale:
    """A file that keeps nothing, and stops when too much was written."""

    def __init__(self, most: int) -> None:
        self._left = most

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise OverflowError("too much")
        return size

    def weigh(self, buffer: pickle.PickleBuffer) -> None:
        self.write(buffer.raw())


class Labelled(Protocol):
    """Images [c, h, w] in [0, 1] with their labels: a `ImageSet`, or a list of pairs.

    A set with `labels` tells them without its images being read; one with a method
    `source(index)` gives them names in messages.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor | Pixels, int]: ...


def name_of(images: Labelled, index: int) -> str:
    """What an image is called in messages.

    >>> name_of([], 3)
    'image 3'
    """
    source = getattr(images, "source", None)
    return (str(source(index)) if callable(source) else "") or f"image {index}"


def read_image(images: Labelled, index: int) -> tuple[Pixels, object]:
    """One image in float32 and its label, neither of them checked further.

    Whatever goes wrong in reading it becomes an error that names it.
    """
    try:
        pixels, label = images[index]
    except DeformRSError:
        raise  # a set of this package has named the image
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            name_of(images, index),
            f"not readable ({reason})",
            "must be an image with its label",
            "fix it, or leave it out",
        ) from error
    array = _array(pixels)
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(
            name_of(images, index),
            f"of type {kind}",
            "must be floating point in [0, 1], [c, h, w]",
            "divide bytes by 255",
        )
    return array.astype(np.float32, copy=False), label


def checked_labels(images: Labelled, num_classes: int | None) -> NDArray[np.int64]:
    """The labels of all images: classes of the network, and more than one of them.

    A set without `labels` is read from end to end.
    """
    if num_classes is not None:
        check_integer("the number of classes", num_classes, least=1)
    total = len(images)
    if not total:
        raise no_images()
    given = getattr(images, "labels", None)
    if given is None:
        given = [read_image(images, index)[1] for index in range(total)]
    if len(given) != total:
        raise InputError(
            "the number of labels",
            len(given),
            f"must be that of the images, {total}",
            "give one label an image",
        )
    labels = np.empty(total, np.int64)
    for index, label in enumerate(given):
        number = _whole(label)
        if number is None or number < 0 or (num_classes is not None and number >= num_classes):
            last = "" if num_classes is None else f" to {num_classes - 1}"
            raise InputError(
                f"the label of {name_of(images, index)}",
                "missing" if label is None else repr(label),
                f"must be a class of the network, an integer from 0{last}",
                "correct the labels, or give the network more classes",
            )
        labels[index] = number
    if labels.min() == labels.max():
        raise InputError(
            "the data",
            f"of one class, {labels[0]}",
            "must show at least two, or there is nothing to tell apart",
            "add images of another class",
        )
    return labels


def no_images() -> InputError:
    """The error where there is nothing to train on."""
    return InputError("the data", "without images", "must have at least one", "add some")


def _array(pixels: object) -> object:
    if not isinstance(pixels, Tensor):
        return pixels
    there = pixels.detach().cpu()
    return (there.float() if there.is_floating_point() else there).numpy()


def _whole(label: object) -> int | None:
    if isinstance(label, Tensor) and label.numel() == 1 and not label.is_floating_point():
        label = label.item()
    if isinstance(label, int | np.integer) and not isinstance(label, bool):
        return int(label)
    return None


Bytes = NDArray[np.uint8]
Indices = Sequence[int] | NDArray[np.int64]

_WHITE = np.float32(255)


@dataclass(frozen=True, eq=False)
class Reading:
    """Reads images by their place among the chosen ones: place 0 is that of `indices[0]`.

    All must have one shape. What cannot be used raises and is named. It can be sent to another
    process if the set of images can.
    """

    images: Labelled
    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, images: Labelled, indices: Indices, num_classes: int | None) -> Self:
        """Check all labels of the set, and look at the first of the chosen images."""
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or not len(chosen):
            raise no_images()
        if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= len(images):
            raise InputError(
                "the choice of images",
                f"from {chosen.min()} to {chosen.max()}",
                f"must be of integers from 0 to {len(images) - 1}",
                "choose images that are there",
            )
        labels, first = checked_labels(images, num_classes), int(chosen[0])
        pixels, _ = read_image(images, first)
        check_images(name_of(images, first), torch.tensor(pixels), rank=3)
        channels, height, width = pixels.shape
        return cls(images, chosen.astype(np.int64), labels[chosen], (channels, height, width))

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def size(self) -> Size:
        """Height and width of every image."""
        return self.shape[1:]

    def image(self, place: int) -> Bytes | Pixels:
        """One image: as bytes where that loses no bit, else as it is."""
        index = int(self.indices[place])
        pixels, label = read_image(self.images, index)
        if pixels.shape != self.shape:
            first = name_of(self.images, int(self.indices[0]))
            raise _other_shape(name_of(self.images, index), pixels.shape, first, self.shape)
        if label != self.labels[place]:
            raise InputError(
                f"the label of {name_of(self.images, index)}",
                repr(label),
                f"must be {self.labels[place]} as in the labels of the set",
                "correct the set",
            )
        levels = as_bytes(pixels)
        if levels is not None:
            return levels
        check_images(name_of(self.images, index), torch.tensor(pixels), rank=3)
        return pixels

    def batch(self, places: Sequence[int]) -> Tensor:
        """Images [b, c, h, w] on the CPU: bytes where all of them are, else float32."""
        images = [self.image(place) for place in places]
        if not images:
            return torch.empty((0, *self.shape), dtype=torch.uint8)
        if any(image.dtype != np.uint8 for image in images):
            return torch.stack([as_floats(torch.tensor(image)) for image in images])
        return torch.from_numpy(np.stack(images))


def as_bytes(pixels: Pixels) -> Bytes | None:
    """The bytes k whose float32(k) / 255 have the very bits of `pixels`; None: there are none.

    >>> as_bytes(np.float32([1]) / np.float32(255)), as_bytes(np.float32([0.3]))
    (array([1], dtype=uint8), None)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        levels = np.rint(pixels * _WHITE).astype(np.uint8)
    again = levels.astype(np.float32) / _WHITE
    # Compared as integers: -0.0 equals 0.0 but has other bits.
    return levels if np.array_equal(again.view(np.int32), pixels.view(np.int32)) else None


def as_floats(images: Tensor) -> Tensor:
    """Images of bytes or of floats as float32, on the device where they lie.

    Guarantee: bytes become bit for bit the pixels that `as_bytes` made them of, on every device.
    """
    if images.dtype != torch.uint8:
        return images
    # By a plain number a GPU would not divide: it multiplies by the reciprocal, which may err in
    # the last bit.
    white = torch.full((), float(_WHITE), device=images.device)
    return images.to(torch.float32).div_(white)


def checked_rows(order: Tensor | Sequence[Tensor], total: int) -> list[Tensor]:
    """The rows of an order, which are integers below `total`."""
    rows = list(order)
    plain = all(row.ndim == 1 and row.dtype == torch.int64 for row in rows)
    places = torch.cat(rows) if plain and rows else torch.zeros(0)
    if not plain or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < total):
        raise InputError(
            "the order",
            f"of {len(rows)} rows such as {rows[0].tolist()!r:.60}",
            f"must be rows of integers from 0 to {total - 1}",
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
            "fix it",
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


Row = list[int]


class Workers:
    """Reads batches of images in `count` processes, which live until `close`; 0: in this one.

    They begin with the first batch that is asked for. Leaving the batches early closes.
    """

    def __init__(self, reading: Reading, count: int, pinned: bool) -> None:
        check_integer("workers", count, least=0)
        self.count = count
        self._reading, self._pinned = reading, pinned
        self._rows = _Rows()
        self._loader: DataLoader[Tensor | DeformRSError] | None = None
        self._reads = False

    def batches(self, rows: Sequence[Row]) -> Generator[Tensor, None, None]:
        """For each row the images at those places, on the CPU, in that order.

        An image that cannot be used raises here, whichever process found it.
        """
        if not self.count:
            for row in rows:
                batch = self._reading.batch(row)
                yield batch.pin_memory() if self._pinned else batch
            return
        if self._reads:
            raise InputError(
                "the stream of images",
                "being read already",
                "must be read to its end or left before it is read again",
                "close the first iterator",
            )
        self._reads, finished = True, False
        try:
            with closing(self._read(rows)) as batches:
                yield from batches
            finished = True
        finally:
            self._reads = False
            if not finished:
                self.close()

    def close(self) -> None:
        """End the processes; more batches would begin them anew."""
        # Nothing else refers to the loader, and it ends its processes when it goes.
        self._loader = None

    def _read(self, rows: Sequence[Row]) -> Generator[Tensor, None, None]:
        self._rows.rows = rows
        with warnings.catch_warnings():
            # More processes than processors: whoever asks for them has a reason.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            if self._loader is None:
                self._loader = self._made()
            batches = _started(self._loader)
        for _ in rows:
            try:
                batch = next(batches)
            except RuntimeError as error:
                batch = _gone(error)
            except BaseException as error:
                # The frames below would hold on to the loader and its processes.
                traceback.clear_frames(error.__traceback__)
                del batches
                raise
            if isinstance(batch, DeformRSError):
                del batches
                raise batch
            yield batch

    def _made(self) -> DataLoader[Tensor | DeformRSError]:
        return DataLoader(
            _Batches(self._reading),
            batch_size=None,  # an item is a batch already
            sampler=self._rows,
            num_workers=self.count,
            collate_fn=_as_it_is,
            pin_memory=self._pinned,
            worker_init_fn=_begin_worker,
            multiprocessing_context=_context(),
            generator=torch.Generator(),  # or it would draw from the global one
            persistent_workers=True,
        )


def usable_cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Rows(Sampler[Row]):
    """Which batches come next; changed from epoch to epoch."""

    rows: Sequence[Row] = ()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


class _Batches(Dataset[Tensor | DeformRSError]):
    """Batches by their rows. An error comes back as a value, since a raised one would be wrapped
    with the worker's traceback."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __getitem__(self, row: Row) -> Tensor | DeformRSError:
        try:
            return self._reading.batch(row)
        except DeformRSError as error:
            return error


def _as_it_is(batch: object) -> object:
    return batch


def _begin_worker(number: int) -> None:
    # Whoever presses Ctrl-C stops the main process, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed process cannot end its workers, and torch looks at the server that forked them."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _context() -> BaseContext:
    """How processes begin: never as copies of this one, whose threads may hold locks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _started(
    loader: DataLoader[Tensor | DeformRSError],
) -> Iterator[Tensor | DeformRSError]:
    try:
        return iter(loader)
    except RuntimeError as error:
        failed: InputError = _gone(error)
    # What cannot be pickled says so in many ways.
    except Exception as error:
        failed = _not_sent(error)
    # Not raised above: what led to it would hold on to the loader and its processes.
    raise failed


def _not_sent(error: Exception) -> InputError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return InputError(
        "the set of images",
        f"not to be sent to other processes ({reason})",
        "must be of a class that can be pickled to be read there",
        "choose --workers 0",
    )


def _gone(error: RuntimeError) -> InputError:
    return InputError(
        "a process that reads images",
        "gone (" + " ".join(str(error).split())[:200] + ")",
        "must live as long as training",
        "see that memory and shared memory suffice, and that a script begins its work under"
        " if __name__ == '__main__'; or choose --workers 0",
    )


_AT_ONCE = 2**20
"""Pixels that are read, or made floats, in one go."""


class Held:
    """The chosen images in one tensor on the device: bytes where no bit is lost, else float32.

    All are read, by `workers` processes or by this one, and checked when it is made; `looked` is
    told how many were. One image that is not of bytes makes all of them float32.

    Guarantee: every image comes bit for bit as the set gives it, in the order that is asked for.
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
        self._images = _gathered(reading, device, workers, looked)
        self._labels = torch.from_numpy(reading.labels).to(device)

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def words(self) -> str:
        """How many images are held, where, and in how much memory."""
        return f"{len(self):,} images held on {self.device} ({size_words(self._images.nbytes)})"

    def batches(self, order: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each row of `order` [steps, b] images [b, c, h, w] in float32 and labels [b].

        The host never waits for the device. Rows may also be a list, of any lengths.
        """
        for row in rows_on(self.device, checked_rows(order, len(self))):
            images = self._images.index_select(0, row)
            yield as_floats(images), self._labels.index_select(0, row)

    def close(self) -> None:
        """There is nothing to close."""


def _gathered(
    reading: Reading, device: torch.device, workers: int, looked: Callable[[int], None] | None
) -> Tensor:
    """All images: [n, c, h, w]."""
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
    check_room(f"the {shape[0]:,} images", prod(shape) * dtype.itemsize, device)
    return torch.empty(shape, dtype=dtype, device=device)


class Streamed:
    """The chosen images, read anew for every batch by `workers` processes; 0: by this one.

    Labels and the first image are checked when it is made, the other images as they come.
    Processes begin with the first batch and stay for later epochs, until `close`; they end too
    when batches are left before their end. Bytes travel where that loses no bit.

    Guarantee: every image comes bit for bit as the set gives it, in the order that is asked for,
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
        """How many images are streamed, and by whom."""
        count = self._workers.count
        by = f"{count} worker{'s' if count > 1 else ''}" if count else "the main process"
        return f"{len(self):,} images streamed by {by}"

    def batches(self, order: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each row of `order` [steps, b] images [b, c, h, w] in float32 and labels [b].

        Rows may also be a list, of any lengths.
        """
        rows = checked_rows(order, len(self))
        there = rows_on(self.device, rows)
        with closing(self._workers.batches([row.tolist() for row in rows])) as batches:
            for row, batch in zip(there, batches, strict=True):
                images = batch.to(self.device, non_blocking=True)
                yield as_floats(images), self._labels.index_select(0, row)

    def close(self) -> None:
        """End the processes; more batches would begin them anew."""
        self._workers.close()


Hold = Literal["auto", "yes", "no"]

_SHARE = 4
"""Images may take this part of the free memory: the network needs the rest."""
_LOOKED_AT = 8
_PATIENCE_SECONDS = 10.0
_MOST_WORKERS = 32


class Source(Protocol):
    """What the training loop reads: labelled images of one size, by their place 0, 1, 2, ..."""

    size: Size
    channels: int

    def __len__(self) -> int: ...

    @property
    def words(self) -> str:
        """How the images are kept, for people."""

    def batches(self, order: Tensor | Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each row of `order`, [steps, b] int64 on the CPU or a list of rows: images
        [b, c, h, w] in float32, in [0, 1], and labels [b] in int64, both on the device."""

    def close(self) -> None:
        """End what runs in the background."""


def source_for(
    images: Labelled,
    indices: Indices,
    device: torch.device,
    *,
    num_classes: int | None = None,
    hold: Hold = "auto",
    workers: int | None = None,
    looked: Callable[[int], None] | None = None,
) -> Source:
    """The chosen images of a set, held or streamed; the pixels are the same bit for bit.

    With "auto" they are held where they take at most a quarter of the memory that is free on the
    device, counted in bytes if the first eight images are exact as such, else in float32.
    Holding reads each file once, streaming once an epoch.

    `workers` is how many processes read. None: as many as there are processors, at most 32; none
    for a set that cannot be sent there, or that carries so much in memory that its copies would
    take a quarter of what is free. Images to be held that this process reads within ten seconds
    are read by it alone. `looked` is told how many were read while they are gathered.

    Raises for labels outside `num_classes` or of one class only, for images of different sizes,
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
        check_integer("workers", workers, least=0)
    reading = Reading.of(images, indices, num_classes)
    needed = _look(reading)
    if hold == "yes" or (hold == "auto" and needed.size <= free_bytes(device) // _SHARE):
        slow = needed.seconds > _PATIENCE_SECONDS
        count = _workers(images, workers) if slow else 0
        return Held(reading, device, workers=count, looked=looked)
    return Streamed(reading, device, workers=_workers(images, workers))


def framed(preparation: Preparation) -> Preparation:
    """What images are cut to before training cuts them at random: a square of the resized side.

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
    """What all images take, judged by the first few."""

    size: int
    seconds: float


def _look(reading: Reading) -> _Estimate:
    count = min(_LOOKED_AT, len(reading))
    began = time.perf_counter()
    some = reading.batch(range(count))
    seconds = time.perf_counter() - began
    return _Estimate(some.nbytes * len(reading) // count, seconds * len(reading) / count)


def _workers(images: Labelled, wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    cores = min(_MOST_WORKERS, usable_cores())
    most = free_bytes(torch.device("cpu")) // _SHARE // cores
    return cores if is_light(images, most) else 0
