"""Where the results of a file lie: read when they are needed, they fill no memory."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from pathlib import Path

from deformrs.config import Config
from deformrs.errors import InputError, damaged
from deformrs.limits import open_file
from deformrs.noise import NoiseLaw
from deformrs.runs.records import BAD_LINE, Result, line_reader

FEW = 64
"""Certificates that are kept while lines are only checked."""


class Places:
    """The place of the line of each image in a file that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        """The length of all lines so far, in bytes."""
        self._places: dict[int, tuple[int, int]] = {}
        """Where the line of each image begins, and where it ends."""

    def __contains__(self, index: int) -> bool:
        return index in self._places

    def __iter__(self) -> Iterator[int]:
        return iter([*self._places])

    def __len__(self) -> int:
        return len(self._places)

    @property
    def indices(self) -> KeysView[int]:
        """The images, as a set that changes with the file."""
        return self._places.keys()

    def add(self, index: int | None, length: int) -> None:
        """Note the next line, of so many bytes; None: one that is of no use."""
        if index is not None:
            self._places[index] = self.end, self.end + length
        self.end += length

    def add_lines(self, indices: Sequence[int], lines: str) -> None:
        """Note the next lines, one of each image."""
        for index, line in zip(indices, lines.encode().splitlines(keepends=True), strict=True):
            self.add(index, len(line))

    def discard(self, index: int) -> None:
        """Forget the line of an image, if there is one."""
        self._places.pop(index, None)

    def read(self, indices: Sequence[int], config: Config, law: NoiseLaw) -> list[Result]:
        """Return the results of those of these images that have one, in this order."""
        places = {index: self._places[index] for index in indices if index in self._places}
        if not places:
            return []
        read = line_reader(config, law, self.end)
        results = []
        try:
            with open_file(self.path, links=False) as file:
                for index, (start, end) in places.items():
                    file.seek(start)
                    result = read(file.read(end - start).rstrip(b"\n"))
                    if result.index != index:
                        raise ValueError(f"image {result.index} where {index} was")
                    results.append(result)
        except InputError:  # a link, a device
            raise
        except (FileNotFoundError, *BAD_LINE) as error:
            raise damaged(self.path, f"it has changed since it was opened: {error!r}") from None
        return results
