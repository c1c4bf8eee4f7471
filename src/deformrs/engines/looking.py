"""Pictures and labels as they come, looked at before any time is spent on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from deformrs.checks import check_whole
from deformrs.errors import InputError
from deformrs.geometry import check_pictures, size_of
from deformrs.preparation import Pixels
from deformrs.units import Size


class Labelled(Protocol):
    """Pictures [c, h, w] in [0, 1] with their labels: a list, or a `PictureSet`.

    A set with a method `source(index)` gives them names in messages and records.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor | Pixels, int]: ...


def chosen(total: int, skip: int = 1, max: int | None = None) -> range:
    """The indices of every `skip`-th of the first `max` pictures."""
    check_whole("skip", skip, least=1)
    if max is not None:
        check_whole("max", max, least=1)
    if total < 1:
        raise InputError("the data", "empty", "must have at least one picture", "add some")
    return range(0, total if max is None else min(total, max), skip)


def check_dataset(
    pictures: Labelled,
    indices: Iterable[int],
    num_classes: int,
    *,
    size: Size | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """Look at all pictures and labels before any time is spent on sampling.

    With `size`, all pictures must have it. Raises one error that names every picture at fault,
    five at most by name.
    """
    faults: list[InputError] = []
    channels: int | None = None
    for count, index in enumerate(indices, start=1):
        try:
            image, _ = picture_of(pictures, index, num_classes)
            channels = len(image) if channels is None else channels
            if len(image) != channels:
                raise InputError(
                    source_of(pictures, index) or f"picture {index}",
                    f"of {len(image)} channel(s)",
                    f"must have {channels} like the first",
                    "choose 3 channels (colour) or 1 (grey) for all, on the command line by "
                    "--channels",
                )
            if size is not None and size_of(image) != size:
                raise InputError(
                    source_of(pictures, index) or f"picture {index}",
                    f"of size {size_of(image)}",
                    f"must be of {size} like the first: noise in pixels is one law for all, and "
                    "compiled code for one size",
                    "resize and crop the pictures; or give the noise in half picture sides, and "
                    "do not compile",
                )
        except InputError as error:
            faults.append(error)
        if watch is not None:
            watch(count)
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
                "must be readable pictures with labels of the model's classes",
                "mend or remove them",
            )
        )
        raise InputError(
            f"the data, in {len(faults)} places,",
            f"faulty ({shown}{more})",
            rule,
            f"{remedy}; nothing was sampled yet",
        )


def source_of(pictures: Labelled, index: int) -> str:
    """Where a picture comes from, if its set can tell."""
    source = getattr(pictures, "source", None)
    return str(source(index)) if callable(source) else ""


def picture_of(pictures: Labelled, index: int, num_classes: int) -> tuple[Tensor, int]:
    """One picture and its label, checked, on the CPU or where it lies."""
    pixels, label = pictures[index]
    named = source_of(pictures, index) or f"picture {index}"
    image = pixels if isinstance(pixels, Tensor) else torch.from_numpy(pixels)
    check_pictures(named, image, rank=3)
    if not isinstance(label, int | np.integer | Tensor) or not 0 <= int(label) < num_classes:
        raise InputError(
            f"the label of {named}",
            repr(label),
            f"must lie in [0, {num_classes - 1}], the model's classes",
            "use the labels that the model was trained with",
        )
    return image, int(label)
