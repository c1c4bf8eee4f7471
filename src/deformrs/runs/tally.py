"""The class counts of images that are still being sampled, kept for a run that is interrupted."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import check_integer, is_real
from deformrs.config import Config, ConfigValue
from deformrs.errors import DeformRSError, ScarcityWarning
from deformrs.limits import TABLE_BYTES, Room, parse_json, read_file
from deformrs.runs.files import write_atomically
from deformrs.runs.records import dense, digest, signed, sparse

PARTIAL = "partial.json"

SECONDS_BETWEEN_WRITES = 5.0

Table = NDArray[np.int64]
"""How often each class was predicted, in every row: [rows, K]."""


@dataclass(frozen=True)
class Stored:
    """The counts after a step."""

    step: int
    counts: Table


class Tally:
    """Stores the class counts of images every few seconds while they are sampled.

    Sampling is a fixed sequence of steps, such as batches. When the images are sampled again, their
    stored counts replace the steps already taken. As a context manager it also stores the last step
    before the process is interrupted, as by Ctrl-C.

    Guarantee: stored counts are used only for the run, images, labels and batch size that they were
    made with, and only if the model repeats the first step.
    """

    def __init__(self, folder: Path, config: Config, images: Sequence[Config]) -> None:
        self._path, self._config = folder / PARTIAL, config
        self._images: list[ConfigValue] = [*images]
        self._indices = [image["index"] for image in images]
        self._began = self._written = time.monotonic()
        self._before = 0.0
        self._batch_size = 0
        self._first: Callable[[], ConfigValue] | None = None
        # Replaced as a whole: an interruption never finds a step with the counts of another.
        self._last: tuple[int, Callable[[], Table]] | None = None

    @property
    def seconds(self) -> float:
        """The time that these images took, before and after interruptions."""
        return self._before + time.monotonic() - self._began

    def add(
        self,
        step: int,
        counts: Callable[[], Table],
        batch_size: int,
        logits: Callable[[], float] = float,
    ) -> Stored | None:
        """Note the counts after a step. At the first one, return stored ones to continue from.

        The first step must repeat its counts and the sum of its largest `logits`, by which another
        function is told even from images that all get one class. Both are called only to write or
        compare: reading them makes a device wait.
        """
        if self._first is None:

            def first() -> ConfigValue:
                return [logits(), *_sparse(counts())]

            stored = self._stored(first, batch_size)
            self._first, self._batch_size = first, batch_size
            if stored is not None:
                return stored
        self._last = step, counts
        if time.monotonic() - self._written >= SECONDS_BETWEEN_WRITES:
            self._write()
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            return
        try:  # interrupted, nothing failed; whoever interrupts sees that, and no error of this
            self._write()
        except DeformRSError as error:
            _warn(f"the finished batches of these images are not stored: {error}")

    def _write(self) -> None:
        if self._first is None or self._last is None:
            return
        step, counts = self._last[0], self._last[1]()
        record: Config = {
            "images": self._images,
            "batch_size": self._batch_size,
            "step": step,
            "seconds": self.seconds,
            "first": self._first(),
            "classes": counts.shape[1],
            "counts": _sparse(counts),
        }
        self._written = time.monotonic()
        try:
            write_atomically(self._path, signed(record, self._config) + "\n")
        except OSError as error:
            _warn(
                f"the finished batches of these images cannot be stored ({error}): if they are "
                "interrupted, they are sampled again"
            )

    def _stored(self, first: Callable[[], ConfigValue], batch_size: int) -> Stored | None:
        """Return the counts on disk if they continue the first ones.

        Others are not used, with a note: they cost time only, and an error would have to be removed
        by hand.
        """
        try:
            content = read_file(self._path, TABLE_BYTES, links=False)
            record = _verified(content, self._config)
        except FileNotFoundError:
            return None
        if record is None:
            reason = "damaged or of other settings"
        elif [image["index"] for image in record["images"]] != self._indices:
            return None  # of images that are done, or that are not selected now
        elif record["images"] != self._images:
            reason = "of other pixels or another label"
        elif record["batch_size"] != batch_size:
            reason = f"made in batches of {record['batch_size']}, not {batch_size}"
        elif record["first"] != first():
            reason = "of a model with other logits"
        else:
            self._before = record["seconds"]
            return Stored(record["step"], record["counts"])
        _warn(f"the finished batches in {self._path} are {reason}: they are sampled again")
        return None


def _verified(content: bytes, config: Config) -> Any:
    """Return a record that was written for the run with this configuration, or None."""
    try:
        record = parse_json(content)
        check = record.pop("check")
        if "images" not in record or check != digest(record, config):
            return None
        check_integer("step", record["step"], least=0)
        check_integer("batch_size", record["batch_size"], least=1)
        if not is_real(record["seconds"]) or "first" not in record:
            return None
        if not all(isinstance(image, dict) and "index" in image for image in record["images"]):
            return None
        Room(len(content)).take(len(record["counts"]) * record["classes"])
        rows = [dense(row, record["classes"]) for row in record["counts"]]
        return record | {"counts": np.array(rows, dtype=np.int64)}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _warn(message: str) -> None:
    warnings.warn(message, ScarcityWarning, stacklevel=3)


def remove_tally(folder: Path) -> None:
    """Remove the counts of images whose results are on disk."""
    (folder / PARTIAL).unlink(missing_ok=True)


def _sparse(table: Table) -> list[ConfigValue]:
    return [sparse(row) for row in table.tolist()]
