"""The mean and the deviation of a data set's colours, which become part of the network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deformrs.errors import InputError
from deformrs.splitting import Places
from deformrs.training.labelled import Labelled, name_of

LOOKED_AT = 1000
Channels = tuple[float, ...]


def normalisation_of(pictures: Labelled, indices: Places) -> tuple[Channels, Channels]:
    """Mean and standard deviation of each channel, of at most a thousand pictures spread evenly.

    Rounded to four digits; a channel that never changes is only shifted.
    """
    spread = np.linspace(0, len(indices) - 1, min(len(indices), LOOKED_AT)).astype(int)
    rows: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for place in spread.tolist():
        index = int(indices[place])
        pixels = np.asarray(pictures[index][0], np.float64)
        if rows and len(rows[0][0]) != len(pixels):
            raise InputError(
                name_of(pictures, index),
                f"of {len(pixels)} channel(s)",
                f"must have {len(rows[0][0])} like others",
                "--channels 3 makes all of them colour, --channels 1 grey",
            )
        rows.append((pixels.mean(axis=(1, 2)), (pixels**2).mean(axis=(1, 2))))
    mean = np.mean([row[0] for row in rows], axis=0)
    square = np.mean([row[1] for row in rows], axis=0)
    std = np.sqrt(np.maximum(square - mean**2, 0.0)).round(4)
    return tuple(mean.round(4).tolist()), tuple(np.where(std > 0, std, 1.0).tolist())
