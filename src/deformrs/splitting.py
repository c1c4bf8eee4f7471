"""Which pictures are trained on, and which are kept apart to choose by. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import check_seed, is_real
from deformrs.errors import InputError

Places = NDArray[np.int64]
_MOST = 0.5


def split(labels: Sequence[int], share: float, seed: int) -> tuple[Places, Places]:
    """The pictures to train on and those held out, a `share` of each class; both in order.

    Which ones follows from the labels, the share and the seed alone, on every machine. Every class
    keeps a picture to train on. A share of 0 holds out none.

    >>> trained, held_out = split([0, 0, 0, 0, 1, 1, 1, 1], 0.25, seed=0)
    >>> len(trained), [int(place) // 4 for place in held_out]
    (6, [0, 1])
    """
    check_seed("seed", seed)
    check_share(share)
    classes = np.asarray(labels, np.int64)
    everything = np.arange(len(classes))
    if share == 0:
        return everything, everything[:0]
    # A bit generator's own numbers: NumPy promises that they stay the same.
    drawn = np.random.PCG64(seed).random_raw(len(classes))
    shuffled = np.argsort(drawn, kind="stable")
    members = [shuffled[classes[shuffled] == name] for name in np.unique(classes)]
    counts = _quotas([len(found) for found in members], share)
    if not sum(counts):
        raise InputError(
            "the share to hold out",
            repr(share),
            f"must hold out at least one of {len(classes)} pictures, and leave one of each class",
            "take a larger share, or 0 for none",
        )
    held_out = np.sort(
        np.concatenate([found[:count] for found, count in zip(members, counts, strict=True)])
    )
    return np.setdiff1d(everything, held_out), held_out


def check_share(share: object) -> None:
    """A share of the pictures that may be held out."""
    if not (is_real(share) and 0 <= share <= _MOST):  # type: ignore[operator]
        raise InputError(
            "the share to hold out", repr(share), f"must lie in [0, {_MOST}]", "e.g. 0.05"
        )


def _quotas(sizes: Sequence[int], share: float) -> list[int]:
    """How many of each class: their shares rounded down, then one more where most is missing."""
    counts = [min(int(share * size), size - 1) for size in sizes]
    missing = [share * size - count for size, count in zip(sizes, counts, strict=True)]
    left = round(share * sum(sizes)) - sum(counts)
    for place in sorted(range(len(sizes)), key=lambda place: -missing[place]):
        if left > 0 and counts[place] < sizes[place] - 1:
            counts[place] += 1
            left -= 1
    return counts
