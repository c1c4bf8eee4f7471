"""A set that is a part of another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deformrs.data.base import PictureSet
from deformrs.preparation import Pixels


@dataclass(frozen=True, eq=False, repr=False)
class PartSet(PictureSet):
    """The pictures of `whole` at these places, in their order.

    They are numbered anew from 0; `source` says which of the whole set a picture is.
    """

    whole: PictureSet
    places: tuple[int, ...]

    def source(self, index: int) -> str:
        return self.whole.source(self.places[index])

    def _prepared(self, index: int) -> Pixels:
        return self.whole[self.places[index]][0]


def part_of(whole: PictureSet, places: NDArray[np.int64], name: str, split: str) -> PartSet:
    """That part under a name of its own; its digest follows from the places and the whole set's."""
    digest = hashlib.sha256(str(whole.about["sha256"]).encode() + places.astype("<i8").tobytes())
    return PartSet(
        name,
        whole.class_names,
        tuple(whole.labels[place] for place in places),
        whole.about
        | {
            "name": name,
            "split": split,
            "pictures": len(places),
            "sha256": digest.hexdigest(),
        },
        whole.preparation,
        whole,
        tuple(places.tolist()),
    )
