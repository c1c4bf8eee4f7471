"""Pictures that lie in memory as one array."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deformrs.data.base import PictureSet, Wanted
from deformrs.data.labels import align, check_labels
from deformrs.errors import InputError
from deformrs.preparation import Pixels

Images = NDArray[np.uint8] | NDArray[np.float32]
"""[n, c, h, w], either 0 to 255 or in [0, 1]."""


@dataclass(frozen=True, eq=False, repr=False)
class ArraySet(PictureSet):
    """Pictures [n, c, h, w] in memory; `title` and a number name each of them."""

    title: str
    images: Images

    def source(self, index: int) -> str:
        return f"{self.title} {index}"

    def _prepared(self, index: int) -> Pixels:
        picture = self.images[index]
        try:
            if picture.dtype != np.uint8:
                return self.preparation.prepare_pixels(picture.astype(np.float32))
            if len(picture) not in (1, 3):
                return self.preparation.prepare_pixels(picture.astype(np.float32) / 255)
            # As files of such pictures would be: resized in 8 bits.
            layers = picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)
            return self.preparation.prepare(Image.fromarray(np.ascontiguousarray(layers)))
        except InputError as error:
            name = f"the picture {self.source(index)}"
            raise InputError(name, error.value, error.rule, error.remedy) from None


def array_set(
    wanted: Wanted,
    name: str,
    split: str | None,
    images: Images,
    labels: NDArray[np.integer],
    names: tuple[str, ...] | None,
) -> ArraySet:
    """The set of these pictures. `names` are its own classes, in the order of its labels."""
    title = name if split is None else f"{name} {split}"
    digest = digest_of(images, labels)
    if names is None:
        numbers, rule = labels.tolist(), "as stored"
    else:
        order, rule = align(names, wanted.class_names)
        numbers = [order[label] for label in labels.tolist()]
    check_labels(numbers, wanted.num_classes, lambda index: f"{title} {index}")
    return ArraySet(
        name,
        wanted.class_names or names,
        tuple(numbers),
        wanted.about(name, split, len(numbers), digest, rule),
        wanted.preparation,
        title,
        images,
    )


def digest_of(*arrays: Images | NDArray[np.integer]) -> str:
    """The SHA-256 of what the arrays hold and of their shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
