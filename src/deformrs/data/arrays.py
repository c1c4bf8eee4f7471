"""Images that lie in memory as one array."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deformrs.data.base import ImageSet, Wanted, one_line
from deformrs.data.labels import align, check_labels
from deformrs.data.preparation import Pixels
from deformrs.errors import InputError

Images = NDArray[np.uint8] | NDArray[np.float32]
"""[n, c, h, w], either 0 to 255 or in [0, 1]."""


@dataclass(frozen=True, eq=False, repr=False)
class ArraySet(ImageSet):
    """Images [n, c, h, w] in memory; `title` and a number name each of them."""

    title: str
    images: Images

    def source(self, index: int) -> str:
        return f"{self.title} {index}"

    def _prepared(self, index: int) -> Pixels:
        image = self.images[index]
        try:
            if image.dtype != np.uint8:
                return self.preparation.prepare_pixels(image.astype(np.float32))
            if len(image) not in (1, 3):
                return self.preparation.prepare_pixels(image.astype(np.float32) / 255)
            # As files of such images would be: resized in 8 bits.
            layers = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
            return self.preparation.prepare(Image.fromarray(np.ascontiguousarray(layers)))
        except InputError as error:
            name = f"the image {self.source(index)}"
            raise InputError(name, error.value, error.rule, error.remedy) from None


def array_set(
    wanted: Wanted,
    name: str,
    split: str | None,
    images: Images,
    labels: NDArray[np.integer],
    names: tuple[str, ...] | None,
) -> ArraySet:
    """The set of these images. `names` are its own classes, in the order of its labels."""
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


_CHANNELS = (1, 3, 4)
# RuntimeError: it is encrypted; MemoryError: it claims to be larger than any memory.
_DAMAGED = (zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError)
_PAIRS = (("images", "labels"), ("x", "y"))


def load_npz(path: Path, wanted: Wanted) -> ArraySet:
    """The set in that file: `images` and `labels`, or `x` and `y`, or `x_test` and `y_test`.

    Images are [n, h, w], [n, h, w, c] or [n, c, h, w], of bytes or of floats in [0, 1].
    """
    name = one_line(path.name)
    of_split = (f"x_{wanted.split}", f"y_{wanted.split}")
    try:
        with path.open("rb") as raw:
            if not zipfile.is_zipfile(raw):
                raise zipfile.BadZipFile("it is no zip file of arrays")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                pair = _pair(name, file.files, of_split)
                images, labels = file[pair[0]], file[pair[1]]
            for key, array in zip(pair, (images, labels), strict=True):
                if not isinstance(array, np.ndarray):  # NumPy hands over other content as bytes
                    raise ValueError(f"{key!r} in it is no array")
    except InputError:
        raise
    except (OSError, ValueError, EOFError, *_DAMAGED) as error:
        raise InputError(
            one_line(str(path)),
            f"not readable ({one_line(str(error)) or type(error).__name__})",
            "must be an .npz file of plain arrays",
            "write it with numpy.savez",
        ) from None
    batch, numbers = _layered(name, pair[0], images), _whole(name, pair[1], labels)
    if len(batch) != len(numbers) or not len(numbers):
        raise InputError(
            f"{pair[1]!r} in {name}",
            f"of {len(numbers)}",
            f"must be as many as {pair[0]!r}, which are {len(images)}, and at least one",
            "write the file anew",
        )
    split = wanted.split if pair == of_split else None
    return array_set(wanted, name, split, batch, numbers, None)


def _pair(name: str, keys: list[str], of_split: tuple[str, str]) -> tuple[str, str]:
    found = [pair for pair in (of_split, *_PAIRS) if set(pair) <= set(keys)]
    if len(found) != 1:
        raise InputError(
            f"the arrays in {name}",
            ", ".join(map(repr, keys)) or "none",
            "must be one pair of 'images' and 'labels', 'x' and 'y', or "
            f"{of_split[0]!r} and {of_split[1]!r}",
            "rename them",
        )
    return found[0]


def _layered(name: str, key: str, images: NDArray[np.generic]) -> Images:
    """Images [n, c, h, w]."""
    what = f"{key!r} in {name}"
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and (images.shape[1] in _CHANNELS) != (images.shape[3] in _CHANNELS):
        if images.shape[3] in _CHANNELS:
            images = images.transpose(0, 3, 1, 2)
    else:
        raise InputError(
            what,
            f"of shape {images.shape}",
            "must be [n, h, w], [n, h, w, c] or [n, c, h, w] with 1, 3 or 4 channels, and plainly"
            " one of them",
            "transpose it",
        )
    if 0 in images.shape[1:]:
        raise InputError(what, f"of shape {images.shape}", "must have pixels", "write it anew")
    if images.dtype == np.uint8:
        return images.astype(np.uint8, copy=False)
    if not np.issubdtype(images.dtype, np.floating):
        raise InputError(
            what, f"of {images.dtype}", "must be uint8, or floats in [0, 1]", "convert it"
        )
    low, high = (float(bound) for bound in (images.min(initial=0), images.max(initial=0)))
    if not (low >= 0 and high <= 1):  # written so that NaN is refused too
        raise InputError(
            what,
            f"between {low:g} and {high:g}",
            "must lie in [0, 1] where it is of floats",
            "scale it; normalisation belongs to the model",
        )
    return images.astype(np.float32)


def _whole(name: str, key: str, labels: NDArray[np.generic]) -> NDArray[np.int64]:
    """Labels [n]."""
    what = f"{key!r} in {name}"
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iuf":
        raise InputError(
            what,
            f"of shape {labels.shape} and type {labels.dtype}",
            "must be one integer an image",
            "for one column a class take labels.argmax(1)",
        )
    with np.errstate(invalid="ignore"):
        numbers = labels.astype(np.int64)
    different = np.flatnonzero(numbers != labels)
    if len(different):
        first = int(different[0])
        raise InputError(
            f"the label of {name} {first}", labels[first], "must be an integer", "correct it"
        )
    return numbers
