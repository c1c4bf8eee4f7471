"""TensorBoard files, where that package is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from deformrs.training.plan import Moment

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
_CURVES = ("loss", "accuracy", "held_out_accuracy", "learning_rate")


def board_missing() -> bool:
    """Is the package absent?"""
    return importlib.util.find_spec("tensorboard") is None


class Board:
    """Curves of a training for TensorBoard: `tensorboard --logdir runs`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._writer: SummaryWriter | None = None

    def add(self, moment: Moment) -> None:
        """A point on every curve. What an earlier go wrote beyond the first one is dropped."""
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            self._writer = SummaryWriter(str(self._folder), purge_step=moment.step)
        values = {"loss": moment.loss, "accuracy": moment.accuracy} | (moment.record or {})
        for name in _CURVES:
            if name in values:
                group = "epoch" if moment.record else "now"
                self._writer.add_scalar(f"{group}/{name}", values[name], moment.step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
