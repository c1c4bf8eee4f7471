"""The mean and the deviation of a data set's colours, which become part of the network."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from deformrs.preparation import Pixels
from deformrs.training.splitting import Places

LOOKED_AT = 1000
Channels = tuple[float, ...]


class _Pictures(Protocol):
    def __getitem__(self, index: int, /) -> tuple[Pixels, int]: ...


def normalisation_of(pictures: _Pictures, indices: Places) -> tuple[Channels, Channels]:
    """Mean and standard deviation of each channel, of at most a thousand pictures spread evenly.

    Rounded to four digits; a channel that never changes is only shifted.
    """
    spread = np.linspace(0, len(indices) - 1, min(len(indices), LOOKED_AT)).astype(int)
    rows = []
    for place in spread.tolist():
        pixels = np.asarray(pictures[int(indices[place])][0], np.float64)
        rows.append((pixels.mean(axis=(1, 2)), (pixels**2).mean(axis=(1, 2))))
    mean = np.mean([row[0] for row in rows], axis=0)
    square = np.mean([row[1] for row in rows], axis=0)
    std = np.sqrt(np.maximum(square - mean**2, 0.0)).round(4)
    return tuple(mean.round(4).tolist()), tuple(np.where(std > 0, std, 1.0).tolist())
