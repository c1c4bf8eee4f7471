"""The backlog of a run: results that came before those of the images in front of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO

from deformrs.config import Config
from deformrs.errors import ScarcityWarning
from deformrs.limits import RUN_BYTES, read_file
from deformrs.noise import NoiseLaw
from deformrs.runs.files import append, naming, open_for_appending, sync_folder
from deformrs.runs.places import FEW, Places
from deformrs.runs.records import BAD_LINE, Result, line_reader

BACKLOG = "backlog.jsonl"


class Backlog:
    """Results on disk whose turn in the order of the run has not come.

    The lines are those of the run. They are bound to its configuration in the same way, and an
    interrupted run goes on with them.
    """

    def __init__(self, folder: Path, config: Config, law: NoiseLaw, done: Collection[int]) -> None:
        self._path, self._config, self._law = folder / BACKLOG, config, law
        self._file: IO[str] | None = None
        self._places = Places(self._path)
        if os.path.lexists(self._path):
            self._open(done)

    def __contains__(self, index: int) -> bool:
        return index in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def add(self, indices: Sequence[int], lines: str) -> None:
        """Guarantee: when this returns, the lines of these images are on the disk."""
        if self._file is None:
            self._file = open_for_appending(self._path)
            sync_folder(self._path.parent)
        append(self._file, lines)
        self._places.add_lines(indices, lines)

    def read(self, indices: Sequence[int]) -> list[Result]:
        """Return the results of those of these images that have one."""
        return self._places.read(indices, self._config, self._law)

    def discard(self, indices: Sequence[int]) -> None:
        """Forget the results of these images, which are stored elsewhere now."""
        for index in indices:
            self._places.discard(index)

    def close(self) -> None:
        """Close the file, and remove it if nothing in it is needed any more."""
        if self._file is not None:
            with naming(self._path):
                self._file.close()
            self._file = None
        if not self._places:
            self._path.unlink(missing_ok=True)

    def _open(self, done: Collection[int]) -> None:
        """Find the lines of an interrupted run; those that do not belong to this one are dropped.

        They cost time only, and an error would have to be removed by hand.
        """
        content = read_file(self._path, RUN_BYTES, links=False)
        content = content[: content.rfind(b"\n") + 1]  # a kill may have left part of a line
        read = line_reader(self._config, self._law, len(content), kept=FEW)
        foreign = 0
        for line in content.splitlines(keepends=True):
            try:
                index = read(line.rstrip(b"\n")).index
            except BAD_LINE:
                foreign += 1
                self._places.add(None, len(line))
            else:
                self._places.add(None if index in done else index, len(line))
        if foreign:
            warnings.warn(
                f"{foreign} lines of {self._path} are damaged or of other settings: their images "
                "are sampled again",
                ScarcityWarning,
                stacklevel=2,
            )
        self._file = open_for_appending(self._path)
        with naming(self._path):
            self._file.truncate(self._places.end)
