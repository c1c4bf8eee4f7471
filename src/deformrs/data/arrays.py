"""Images in memory as one array, and .npz files."""

from __future__ import annotations

import hashlib
import math
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image

from deformrs.data.image_set import DataRequest, ImageSet
from deformrs.data.labels import align_classes, check_labels
from deformrs.data.preparation import Pixels
from deformrs.errors import InputError, first_line, printable
from deformrs.limits import MAX_IMAGES, open_file, plausible_size

Images = NDArray[np.uint8] | NDArray[np.float32]
"""[n, c, h, w], bytes or floats in [0, 1]."""

_CHANNELS = (1, 3, 4)
_KEYS = (("images", "labels"), ("x", "y"))
# RuntimeError: the archive is encrypted; MemoryError: it claims more than fits any memory.
_READ_ERRORS = (
    *(OSError, ValueError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, eq=False, repr=False)
class ArraySet(ImageSet):
    """Images [n, c, h, w] in memory, each named by a title and its index."""

    title: str
    images: Images

    def source(self, index: int) -> str:
        return f"{self.title} {index}"

    def _load(self, index: int) -> Pixels:
        image = self.images[index]
        try:
            if image.dtype != np.uint8:
                return self.preparation.prepare_pixels(image.astype(np.float32))
            if len(image) not in (1, 3):
                return self.preparation.prepare_pixels(image.astype(np.float32) / 255)
            # Resized in 8 bits, as the same image in a file would be.
            layers = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
            return self.preparation.prepare(Image.fromarray(np.ascontiguousarray(layers)))
        except InputError as error:
            name = f"the image {self.source(index)}"
            raise InputError(name, error.value, error.rule, error.remedy) from None


def array_set(
    request: DataRequest,
    name: str,
    split: str | None,
    images: Images,
    labels: NDArray[np.int64],
    class_names: tuple[str, ...] | None,
) -> ArraySet:
    """Build a dataset from arrays; `class_names` are its own, in the order of its labels."""
    title = name if split is None else f"{name} {split}"
    if class_names is None:
        numbers, rule = labels.tolist(), "as stored"
        indices = {str(label): label for label in sorted(set(numbers))}
    else:
        order, rule = align_classes(class_names, request.class_names)
        numbers = [order[label] for label in labels.tolist()]
        indices = dict(zip(class_names, order, strict=True))
    named = request.class_names is not None
    check_labels(numbers, request.num_classes, lambda index: f"{title} {index}", named=named)
    return ArraySet(
        name,
        request.class_names or class_names,
        tuple(numbers),
        request.about(name, split, len(numbers), _array_digest(images, labels), rule),
        request.preparation,
        title,
        images,
        class_indices=indices,
    )


def load_npz(path: Path, request: DataRequest) -> ArraySet:
    """Load `images` and `labels`, or `x` and `y`, or `x_test` and `y_test`, from an .npz file.

    Images are [n, h, w], [n, h, w, c] or [n, c, h, w], of bytes or of floats in [0, 1].
    """
    name = printable(path.name)
    split_keys = (f"x_{request.split}", f"y_{request.split}")
    try:
        with open_file(path) as raw, warnings.catch_warnings():
            # About headers that Python 2 wrote, which are read as well.
            warnings.simplefilter("ignore", UserWarning)
            if not zipfile.is_zipfile(raw):
                raise zipfile.BadZipFile("it is no zip file of arrays")
            with zipfile.ZipFile(raw) as file:
                members = [member for member in file.namelist() if member.endswith(".npy")]
                stored = [member.removesuffix(".npy") for member in members]
                keys = _array_keys(name, stored, split_keys)
                numbers = [_check_array(file, key) for key in keys]
                if max(numbers) > MAX_IMAGES:
                    raise ValueError(f"{max(numbers):,} images, more than {MAX_IMAGES:,}")
                arrays = [_read_array(file, key) for key in keys]
    except InputError:
        raise
    except _READ_ERRORS as error:
        raise InputError(
            str(path),
            f"not readable ({str(error) or type(error).__name__})",
            "must be an .npz file of plain arrays",
            "write it with numpy.savez",
        ) from None
    images = _channels_first(f"{keys[0]!r} in {name}", arrays[0])
    labels = _integer_labels(name, keys[1], arrays[1])
    if len(images) != len(labels) or not len(labels):
        raise InputError(
            f"{keys[1]!r} in {name}",
            f"of {len(labels)}",
            f"must be as many as {keys[0]!r}, which are {len(images)}, and at least one",
            "write the file again",
        )
    split = request.split if keys == split_keys else None
    return array_set(request, name, split, images, labels, None)


def _check_array(file: zipfile.ZipFile, key: str) -> int:
    """Return the number of images or labels in an array, from its header.

    ValueError if it is damaged, or takes more memory than its size in the file makes plausible.
    """
    info = file.getinfo(f"{key}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{key!r} in it is packed in another way than NumPy's")
    with file.open(info) as stream:
        try:
            version = npy.read_magic(stream)
        except ValueError:
            raise ValueError(f"{key!r} in it is no array") from None
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{key!r} in it has the unknown version {version}")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        try:
            shape, _, dtype = read_header(stream)
        except Exception as error:  # it is a Python literal, which can be damaged in many ways
            raise ValueError(
                f"{key!r} in it has an unreadable header ({first_line(error)})"
            ) from None
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError(f"{key!r} in it holds Python objects")
        if min(shape, default=0) < 0 or stream.tell() + size != info.file_size:
            raise ValueError(f"{key!r} in it is not of the size that it states")
    if not plausible_size(info.compress_size, size):
        raise ValueError(
            f"{key!r} in it takes {size:,} bytes, but {info.compress_size:,} in the file; use "
            "numpy.savez, which does not compress"
        )
    return shape[0] if shape else 0


def _read_array(file: zipfile.ZipFile, key: str) -> NDArray[np.generic]:
    with file.open(f"{key}.npy") as stream:
        array: NDArray[np.generic] = npy.read_array(stream, allow_pickle=False)
        return array


def _array_digest(*arrays: Images | NDArray[np.int64]) -> str:
    """Return the SHA-256 of the types, shapes and contents of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _array_keys(name: str, stored: list[str], split_keys: tuple[str, str]) -> tuple[str, str]:
    pairs = [pair for pair in (split_keys, *_KEYS) if set(pair) <= set(stored)]
    if len(pairs) != 1:
        raise InputError(
            f"the arrays in {name}",
            ", ".join(map(repr, stored)) or "none",
            "must be one pair of 'images' and 'labels', 'x' and 'y', or "
            f"{split_keys[0]!r} and {split_keys[1]!r}",
            "rename them",
        )
    return pairs[0]


def _channels_first(what: str, images: NDArray[np.generic]) -> Images:
    """Return images of any accepted layout and type as [n, c, h, w]."""
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and (images.shape[1] in _CHANNELS) != (images.shape[3] in _CHANNELS):
        if images.shape[3] in _CHANNELS:
            images = images.transpose(0, 3, 1, 2)
    else:
        raise InputError(
            what,
            f"of shape {images.shape}",
            "must be [n, h, w], [n, h, w, c] or [n, c, h, w] with 1, 3 or 4 channels, and "
            "unambiguously one of them",
            "transpose it",
        )
    if 0 in images.shape[1:]:
        raise InputError(what, f"of shape {images.shape}", "must have pixels", "write it again")
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
            "must lie in [0, 1] if it is floating-point",
            "scale it; normalisation belongs to the model",
        )
    return images.astype(np.float32)


def _integer_labels(name: str, key: str, labels: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return labels [n] or [n, 1] of any number type as integers [n]."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iuf":
        raise InputError(
            f"{key!r} in {name}",
            f"of shape {labels.shape} and type {labels.dtype}",
            "must be one integer per image",
            "convert one-hot labels with labels.argmax(1)",
        )
    with np.errstate(invalid="ignore"):
        integers = labels.astype(np.int64)
    fractional = np.flatnonzero(integers != labels)
    if len(fractional):
        first = int(fractional[0])
        raise InputError(
            f"the label of {name} {first}", labels[first], "must be an integer", "correct it"
        )
    return integers
