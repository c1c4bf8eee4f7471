"""Sets of labelled pictures as training takes them: this package's, or any list of pairs."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from deformrs.checks import check_whole
from deformrs.errors import DeformRSError, InputError
from deformrs.preparation import Pixels


class Labelled(Protocol):
    """Pictures [c, h, w] in [0, 1] with their labels: a `PictureSet`, or a list of pairs.

    A set with `labels` tells them without its pictures being read; one with a method
    `source(index)` gives them names in messages.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor | Pixels, int]: ...


def name_of(pictures: Labelled, index: int) -> str:
    """What a picture is called in messages.

    >>> name_of([], 3)
    'picture 3'
    """
    source = getattr(pictures, "source", None)
    return (str(source(index)) if callable(source) else "") or f"picture {index}"


def read_picture(pictures: Labelled, index: int) -> tuple[Pixels, object]:
    """One picture in float32 and its label, neither of them checked further.

    Whatever goes wrong in reading it becomes an error that names it.
    """
    try:
        pixels, label = pictures[index]
    except DeformRSError:
        raise  # a set of this package has named the picture
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            name_of(pictures, index),
            f"not readable ({reason})",
            "must be a picture with its label",
            "mend it, or leave it out",
        ) from error
    array = _array(pixels)
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(
            name_of(pictures, index),
            f"of type {kind}",
            "must be floating point in [0, 1], [c, h, w]",
            "divide bytes by 255",
        )
    return array.astype(np.float32, copy=False), label


def checked_labels(pictures: Labelled, num_classes: int | None) -> NDArray[np.int64]:
    """The labels of all pictures: classes of the network, and more than one of them.

    A set without `labels` is read from end to end.
    """
    if num_classes is not None:
        check_whole("the number of classes", num_classes, least=1)
    total = len(pictures)
    if not total:
        raise no_pictures()
    given = getattr(pictures, "labels", None)
    if given is None:
        given = [read_picture(pictures, index)[1] for index in range(total)]
    if len(given) != total:
        raise InputError(
            "the number of labels",
            len(given),
            f"must be that of the pictures, {total}",
            "give one label a picture",
        )
    labels = np.empty(total, np.int64)
    for index, label in enumerate(given):
        number = _whole(label)
        if number is None or number < 0 or (num_classes is not None and number >= num_classes):
            last = "" if num_classes is None else f" to {num_classes - 1}"
            raise InputError(
                f"the label of {name_of(pictures, index)}",
                "missing" if label is None else repr(label),
                f"must be a class of the network, a whole number from 0{last}",
                "correct the labels, or give the network more classes",
            )
        labels[index] = number
    if labels.min() == labels.max():
        raise InputError(
            "the data",
            f"of one class, {labels[0]}",
            "must show at least two, or there is nothing to tell apart",
            "add pictures of another class",
        )
    return labels


def no_pictures() -> InputError:
    """The error where there is nothing to train on."""
    return InputError("the data", "without pictures", "must have at least one", "add some")


def _array(pixels: object) -> object:
    if not isinstance(pixels, Tensor):
        return pixels
    there = pixels.detach().cpu()
    return (there.float() if there.is_floating_point() else there).numpy()


def _whole(label: object) -> int | None:
    if isinstance(label, Tensor) and label.numel() == 1 and not label.is_floating_point():
        label = label.item()
    if isinstance(label, int | np.integer) and not isinstance(label, bool):
        return int(label)
    return None
