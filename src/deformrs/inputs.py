"""Images, labels and datasets as people have them: tensors, arrays, PIL images, data loaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    default_collate,
    default_convert,
)
from torch.utils.data import Dataset as TorchDataset

from deformrs.bars import Progress
from deformrs.errors import DeformRSError, InputError, reason_of
from deformrs.geometry import check_images, size_of
from deformrs.units import Size

ImageLike = Tensor | NDArray[np.generic] | Image.Image
"""An image: floats [c, h, w] or [h, w] in [0, 1], bytes [h, w, c], [h, w] or [c, h, w], or PIL."""

_CHANNELS = (1, 3, 4)
_IMAGE_KEYS = ("image", "img")
_LABEL_KEYS = ("label", "labels")


class Dataset(Protocol):
    """Labelled images by index, each item an image and its label.

    A method `source(index)`, if there is one, names images in messages and records. `labels`, or
    `targets`, if there are, holds the labels of all images, over which `max` is spread.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


Arrays = tuple[Tensor | NDArray[np.generic], Tensor | NDArray[np.generic] | Sequence[int]]
"""Images, [n, ...], and one label for each."""

LabelledImages = Dataset | TorchDataset[object] | DataLoader[object] | Arrays
"""What `as_dataset` reads."""


def as_image(name: str, image: ImageLike) -> Tensor:
    """Return an image as floats in [0, 1], [c, h, w]; raise where it is not plain what it means.

    Bytes are divided by 255. Floats must lie in [0, 1] with channels first: nothing is rescaled or
    transposed by guessing. NumPy's double precision becomes single, which models take.

    >>> as_image("the image", np.zeros((28, 32, 3), np.uint8)).shape
    torch.Size([3, 28, 32])
    """
    if isinstance(image, Image.Image):
        if image.mode not in ("L", "RGB"):
            raise InputError(
                name,
                f"a PIL image of mode {image.mode}",
                "must be grey (L) or RGB",
                'image.convert("RGB"), or "L" for a model of grey images',
            )
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
            raise InputError(
                name,
                "a photograph that its EXIF data says to turn",
                "must be upright",
                "PIL.ImageOps.exif_transpose(image)",
            )
        pixels = torch.from_numpy(np.array(image))
    elif isinstance(image, np.ndarray):
        pixels = _tensor(name, image)
    elif isinstance(image, Tensor):
        pixels = image
    else:
        raise InputError(
            name,
            f"a {type(image).__name__}",
            "must be a torch.Tensor, a NumPy array or a PIL image",
            "e.g. PIL.Image.open(file)",
        )
    if pixels.dtype == torch.uint8:
        pixels = _channels_first(name, pixels).float() / 255
    elif pixels.ndim == 2:
        pixels = pixels[None]
    elif pixels.ndim == 3 and pixels.shape[0] > max(_CHANNELS) and pixels.shape[2] in _CHANNELS:
        raise InputError(
            name,
            f"of shape {tuple(pixels.shape)}",
            "must have its channels first, C x H x W, if it is floating point",
            "image.permute(2, 0, 1), of an array image.transpose(2, 0, 1)",
        )
    check_images(name, pixels, rank=3)
    return pixels


def _tensor(name: str, array: NDArray[np.generic]) -> Tensor:
    if array.dtype.kind == "f":
        precision = np.float32 if array.dtype.itemsize > 2 else np.float16
        return torch.from_numpy(_own(array.astype(precision, copy=False)))
    if array.dtype != np.uint8:
        raise InputError(
            name,
            f"of type {array.dtype}",
            "must be uint8, or floats in [0, 1]",
            "image.astype(numpy.uint8) if it holds 0 to 255",
        )
    return torch.from_numpy(_own(array))


def _own(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array that torch can share: contiguous and writable."""
    return np.require(array, requirements=("C", "W"))


def _channels_first(name: str, pixels: Tensor) -> Tensor:
    """Return bytes [h, w], [h, w, c] or [c, h, w] as [c, h, w]."""
    if pixels.ndim == 2:
        return pixels[None]
    if pixels.ndim == 3:
        first, last = (pixels.shape[axis] in _CHANNELS for axis in (0, 2))
        if first == last:
            raise InputError(
                name,
                f"of shape {tuple(pixels.shape)}",
                "must be H x W x C or C x H x W with 1, 3 or 4 channels, and plainly one of them",
                "give floats, whose channels come first: image.permute(2, 0, 1) / 255 if they are "
                "last here, else image / 255",
            )
        return pixels if first else pixels.permute(2, 0, 1)
    return pixels


def as_label(name: str, label: object, num_classes: int) -> int:
    """Return the label of an image as an integer; raise unless it is one class of the model."""
    value = label
    if isinstance(label, Tensor | np.ndarray) and np.prod(label.shape) == 1:
        value = label.item()
    if not isinstance(value, int | np.integer):
        shape = getattr(label, "shape", ())
        raise InputError(
            f"the label of {name}",
            f"of shape {tuple(shape)}" if len(shape) else repr(label),
            "must be one integer, the class of the image",
            "label.argmax() if it has a score for each class"
            if len(shape)
            else "its place in the list of the model's classes"
            if isinstance(label, str)
            else "labels.long() if they are integers stored as floats",
        )
    if not 0 <= value < num_classes:
        raise InputError(
            f"the label of {name}",
            repr(label),
            f"must lie in [0, {num_classes - 1}], the model's classes",
            "use the labels that the model was trained with",
        )
    return int(value)


def as_pair(name: str, item: object) -> tuple[ImageLike, object]:
    """Return the image and the label in an item of a dataset."""
    if isinstance(item, Mapping):
        images = [key for key in _IMAGE_KEYS if key in item]
        labels = [key for key in _LABEL_KEYS if key in item]
        if len(images) == len(labels) == 1:
            return item[images[0]], item[labels[0]]
        got = f"a dictionary with {', '.join(map(repr, item)) or 'nothing'}"
        remedy = "rename_column('fine_label', 'label'), if that is its name"
    elif isinstance(item, tuple | list):
        if len(item) == 2:
            return item[0], item[1]
        got, remedy = f"{len(item)} values", "[(image, label) for image, label, *_ in data]"
    else:
        got, remedy = f"a {type(item).__name__}", "[(image, label), ...]"
    raise InputError(
        name, got, "must be a pair, (image, label), or a dictionary of 'image' and 'label'", remedy
    )


def as_dataset(data: LabelledImages) -> Dataset:
    """Return labelled images by index; raise where their order or labels are not fixed.

    `data` is a list of pairs, an `ImageSet`, a dataset of torch or Hugging Face, a pair of arrays
    (images, labels), or a data loader, whose dataset is read in order.

    >>> len(as_dataset((torch.zeros(5, 1, 8, 8), [0, 1, 0, 1, 1])))
    5
    """
    if isinstance(data, DataLoader):
        _check_plain(data)
        data = data.dataset
    if isinstance(data, tuple | list) and len(data) == 2:
        images, labels = data
        if isinstance(images, Tensor | np.ndarray) and not isinstance(labels, int):
            return _Pairs(images, labels)
    indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    others = (IterableDataset, Mapping, str, bytes, Tensor, np.ndarray)
    if not indexed or isinstance(data, others):
        remedies = {
            str: "load_data(path) for a folder or a dataset by name",
            Mapping: "choose a split, e.g. data['test']",
            Tensor: "give the labels too: (images, labels)",
            np.ndarray: "give the labels too: (images, labels)",
        }
        remedy = next((text for kind, text in remedies.items() if isinstance(data, kind)), None)
        raise InputError(
            "the data",
            f"a {type(data).__name__}",
            "must be labelled images by index, with a length",
            remedy or "list(data), if it fits the memory",
        )
    return data  # type: ignore[return-value]  # it has a length and items


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Images and labels that lie in one array each."""

    images: Tensor | NDArray[np.generic]
    labels: Tensor | NDArray[np.generic] | Sequence[int]

    def __post_init__(self) -> None:
        if self.images.ndim not in (3, 4) or np.shape(self.labels)[:1] != self.images.shape[:1]:
            labels = np.shape(self.labels)
            raise InputError(
                "the data",
                f"images of shape {tuple(self.images.shape)} and labels of shape {tuple(labels)}",
                "must be images N x C x H x W and one label for each",
                "images[None] and [label] for a single one",
            )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor | NDArray[np.generic], object]:
        return self.images[index], self.labels[index]


def _check_plain(loader: DataLoader[object]) -> None:
    """Raise unless a loader yields its dataset as it is, in order."""
    batches = loader.batch_sampler
    sampler = batches.sampler if isinstance(batches, BatchSampler) else loader.sampler
    plain = type(batches) in (BatchSampler, type(None)) and type(sampler) is SequentialSampler
    source = getattr(sampler, "data_source", None)
    if isinstance(loader.dataset, IterableDataset):
        got, rule, remedy = "over an iterable", "must have a dataset with a length", "list(data)"
    elif not plain or source is not loader.dataset:
        got, rule = "shuffled or sampled", "must yield its dataset in order"
        remedy = "DataLoader(dataset, shuffle=False), or the dataset itself: loader.dataset"
    elif loader.drop_last or getattr(batches, "drop_last", False):
        got, rule = "without its last images (drop_last)", "must yield its whole dataset"
        remedy = "DataLoader(dataset, drop_last=False), or the dataset itself: loader.dataset"
    elif loader.collate_fn not in (default_collate, default_convert):
        got, rule = "with a collate_fn of its own", "must yield its dataset as it is"
        remedy = "the dataset itself: loader.dataset, its items pairs (image, label)"
    else:
        return
    raise InputError("the data loader", got, rule, remedy)


def labels_of(images: Dataset) -> list[int] | None:
    """Return the labels of all images, if their dataset has them without loading the images."""
    labels = getattr(images, "labels", getattr(images, "targets", None))  # torchvision's name
    if not isinstance(labels, Sequence | np.ndarray | Tensor) or len(labels) != len(images):
        return None
    array = np.asarray(labels)
    return array.tolist() if array.ndim == 1 and array.dtype.kind in "iu" else None


def source_of(images: Dataset, index: int) -> str:
    """Return where an image comes from, if its dataset can tell."""
    source = getattr(images, "source", None)
    return str(source(index)) if callable(source) else ""


def image_name(images: Dataset, index: int) -> str:
    """Return what messages call an image."""
    return source_of(images, index) or f"image {index}"


def read_image(images: Dataset, index: int, num_classes: int) -> tuple[Tensor, int]:
    """Return an image as a tensor and its label, both checked."""
    name = image_name(images, index)
    image, label = item_of(images, index)
    return as_image(name, image), as_label(name, label, num_classes)


def item_of(images: Dataset, index: int) -> tuple[ImageLike, object]:
    """Return an image and its label as their dataset has them.

    It may be anyone's code, and raise anything.
    """
    name = image_name(images, index)
    try:
        item = images[index]
    except (DeformRSError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            name,
            f"not readable ({reason_of(error)})",
            "must be returned by the dataset",
            "fix the dataset, or leave the image out",
        ) from error
    return as_pair(name, item)


def check_dataset(
    images: Dataset,
    indices: Iterable[int],
    num_classes: int,
    *,
    size: Size | None = None,
    progress: Progress | None = None,
) -> None:
    """Raise one error that names every faulty image or label, the first five by name.

    With `size`, all images must have it.
    """
    faults: list[InputError] = []
    channels: int | None = None
    for count, index in enumerate(indices, start=1):
        try:
            image, _ = read_image(images, index, num_classes)
            channels = len(image) if channels is None else channels
            if len(image) != channels:
                raise InputError(
                    image_name(images, index),
                    f"of {len(image)} channel(s)",
                    f"must have {channels} like the first",
                    "choose 3 channels (colour) or 1 (grey) for all, on the command line by "
                    "--channels",
                )
            if size is not None and size_of(image) != size:
                raise InputError(
                    image_name(images, index),
                    f"of size {size_of(image)}",
                    f"must be of {size} like the first: noise in pixels is one law for all, and "
                    "compiled code is for one size",
                    "resize and crop the images; or give the noise in half image sides, and do not "
                    "compile",
                )
        except InputError as error:
            faults.append(error)
        if progress is not None:
            progress.checked(count)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        shown = "; ".join(f"{error.name} is {error.value}" for error in faults[:5])
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        rules = {(error.rule, error.remedy) for error in faults}
        rule, remedy = (
            rules.pop()
            if len(rules) == 1
            else (
                "must be readable images with labels of the model's classes",
                "fix or remove them",
            )
        )
        raise InputError(
            f"the data, in {len(faults)} places,",
            f"faulty ({shown}{more})",
            rule,
            f"{remedy}; nothing was sampled yet",
        )
