"""Training on images that lie in memory, in one call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deformrs.checks import check_seed
from deformrs.data.image_set import Indices
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.execution import scores_of
from deformrs.geometry import Padding, check_images
from deformrs.noise import NoiseLaw
from deformrs.training.augmentation import Augmentation
from deformrs.training.distributed import Processes
from deformrs.training.images import Labelled, name_of, source_for
from deformrs.training.loop import Moment, Trained, fit
from deformrs.training.recipes import Plan, Recipe

LOOKED_AT = 1000
Channels = tuple[float, ...]


def normalisation_of(images: Labelled, indices: Indices) -> tuple[Channels, Channels]:
    """Mean and standard deviation of each channel, of at most a thousand images spread evenly.

    Rounded to four digits; a channel that never changes is only shifted.
    """
    spread = np.linspace(0, len(indices) - 1, min(len(indices), LOOKED_AT)).astype(int)
    rows: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for place in spread.tolist():
        index = int(indices[place])
        pixels = np.asarray(images[index][0], np.float64)
        if rows and len(rows[0][0]) != len(pixels):
            raise InputError(
                name_of(images, index),
                f"of {len(pixels)} channel(s)",
                f"must have {len(rows[0][0])} like others",
                "--channels 3 makes all of them colour, --channels 1 grey",
            )
        rows.append((pixels.mean(axis=(1, 2)), (pixels**2).mean(axis=(1, 2))))
    mean = np.mean([row[0] for row in rows], axis=0)
    square = np.mean([row[1] for row in rows], axis=0)
    std = np.sqrt(np.maximum(square - mean**2, 0.0)).round(4)
    return tuple(mean.round(4).tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    deformation: Deformation,
    noise: NoiseLaw,
    *,
    epochs: int,
    batch_size: int = 128,
    learning_rate: float = 0.1,
    weight_decay: float = 5e-4,
    copies: int = 1,
    tilt: float = 0.0,
    consistency: float = 0.0,
    entropy: float = 0.5,
    augmentation: Augmentation | None = None,
    padding: Padding = "zeros",
    seed: int = 0,
    report: Callable[[Moment], None] | None = None,
) -> Trained:
    """Fit `model` to images [n, c, h, w] in [0, 1], each deformed anew every time it is seen.

    Parameters are drawn from the very law that certifies. One-cycle SGD with Nesterov momentum, on
    the device of the model, which is left in evaluation mode. `copies` to `entropy` are those of
    `Objective`. `report` is called now and then, and after every epoch.

    >>> from deformrs import Rotation, Uniform
    >>> from deformrs.data import load_digits
    >>> from deformrs.models import SmallCNN
    >>> images, labels = load_digits("train")
    >>> model = SmallCNN(width=8)
    >>> trained = train(model, images, labels, Rotation(), Uniform(0.5), epochs=1)
    >>> len(trained.history)
    1
    """
    check_images("the training images", images, rank=4)
    check_seed("seed", seed)
    if labels.shape != (len(images),) or labels.dtype != torch.int64:
        raise InputError(
            "the tensor of labels",
            f"{labels.dtype} of shape {tuple(labels.shape)}",
            f"must be integers, one for each of {len(images)} images",
            "labels.long()",
        )
    recipe = Recipe(
        epochs,
        batch_size,
        learning_rate,
        nesterov=True,
        weight_decay=weight_decay,
        copies=copies,
        tilt=tilt,
        consistency=consistency,
        entropy=entropy,
    )
    plan = Plan(deformation, noise, recipe, augmentation or Augmentation(), padding, seed)
    pairs = list(zip(images.cpu(), labels.tolist(), strict=True))
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    model.eval()
    with torch.no_grad():
        classes = scores_of(model, images[:2].to(device)).shape[1]
    source = source_for(
        pairs, range(len(pairs)), device, num_classes=classes, hold="yes", workers=0
    )
    return fit(model, source, plan, processes=Processes(device), watch=report)
