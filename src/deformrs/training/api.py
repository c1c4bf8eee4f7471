"""Training on images in memory, in one call."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deformrs.checks import check_seed
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.execution import scores_of
from deformrs.geometry import Padding, check_images
from deformrs.noise import NoiseLaw
from deformrs.training.augmentation import Augmentation
from deformrs.training.distributed import Processes
from deformrs.training.images import Held, check_classes
from deformrs.training.loop import Moment, Trained, fit
from deformrs.training.recipes import Plan, Recipe


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
    """Fit `model` to images [n, c, h, w] in [0, 1], each freshly deformed every time it is used.

    Parameters are drawn from the noise law that certifies. The optimizer is one-cycle SGD with
    Nesterov momentum, on the device of the model, which is left in evaluation mode. `copies`,
    `tilt`, `consistency` and `entropy` are those of `Objective`. `report` is called about twice a
    second, and after every epoch.

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
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    model.eval()
    with torch.no_grad():
        classes = scores_of(model, images[:2].to(device)).shape[1]
    _check_labels(labels, len(images), classes)
    source = Held(images.float(), labels, device)
    return fit(model, source, plan, processes=Processes(device), watch=report)


def _check_labels(labels: Tensor, count: int, classes: int) -> None:
    if labels.shape != (count,) or labels.dtype != torch.int64:
        raise InputError(
            "the tensor of labels",
            f"{labels.dtype} of shape {tuple(labels.shape)}",
            f"must be integers, one for each of {count} images",
            "labels.long()",
        )
    for label in labels[(labels < 0) | (labels >= classes)].tolist():
        raise InputError(
            "a label",
            label,
            f"must be a class of the network, from 0 to {classes - 1}",
            "correct the labels, or give the network more classes",
        )
    check_classes(labels.tolist())
