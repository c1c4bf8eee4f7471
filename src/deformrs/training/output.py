"""The folder of a training: its settings, a line for each epoch, and the trained network."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from deformrs.config import Config
from deformrs.errors import InputError, damaged
from deformrs.models.saved import MODEL, TRAINING
from deformrs.runs import CONFIG, write_atomically
from deformrs.runs.files import (
    append,
    below,
    lock,
    make_folder,
    naming,
    open_for_appending,
)
from deformrs.runs.folder import difference
from deformrs.runs.records import read_sealed, sealed
from deformrs.training.checkpoints import STATE

EPOCHS, CHECKPOINTS = "epochs.jsonl", "checkpoints"
_FREE = ("options", "environment")
"""May differ when a training is resumed: the paths of files, and the machine."""


class TrainingFolder:
    """A training on the disk, with one writer at a time.

    Guarantee: a folder where something was trained with other settings, or that holds a run of
    another kind, is left as it is.
    """

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path = path
        self._file = file

    @classmethod
    def open(cls, path: Path, config: Config) -> Self:
        """Begin a training with that configuration, or resume the one that is there."""
        if not (path / TRAINING).exists() and ((path / CONFIG).exists() or (path / MODEL).exists()):
            raise InputError(
                "the folder", path, "holds another run or model already", "choose another by --out"
            )
        checkpoints = below(make_folder(path), CHECKPOINTS)
        file = open_for_appending(path / EPOCHS)
        try:
            lock(file, path / EPOCHS)
            if (checkpoints / STATE).exists() or is_finished(path):
                check_same(path, config)
            else:  # nothing was trained yet, so nothing binds
                write_atomically(path / TRAINING, sealed(config))
        except BaseException:
            file.close()
            raise
        return cls(path, file)

    def add_epoch(self, record: Config) -> None:
        """Append the record of an epoch; lines of that epoch and later ones are dropped."""
        lines = (self.path / EPOCHS).read_bytes().splitlines(keepends=True)
        kept = lines[: int(str(record["epoch"])) - 1]
        with naming(self.path / EPOCHS):
            self._file.truncate(sum(map(len, kept)))
        append(self._file, json.dumps(record) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def is_finished(path: Path) -> bool:
    """Return whether the trained network is there, which is written last."""
    return (path / TRAINING).exists() and (path / MODEL).exists()


def check_same(path: Path, config: Config) -> None:
    """Raise if the folder holds a training with other settings."""
    place = path / TRAINING
    try:
        stored = read_sealed(place)
    except OSError as error:
        raise damaged(place, error) from None
    there, here = _binding(stored), _binding(json.loads(json.dumps(config)))
    if there != here:
        raise InputError(
            f"the training in {path}",
            f"another one ({difference(there, here)})",
            "cannot go on with other settings",
            "choose another folder by --out, or remove this one",
        )


def _binding(config: Config) -> Config:
    return {key: value for key, value in config.items() if key not in _FREE}
