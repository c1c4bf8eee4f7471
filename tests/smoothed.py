"""An image and a smoothed classifier to try things on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from deformrs import Rotation, SmoothedClassifier, Uniform
from deformrs.models import SmallCNN

IMAGE = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(1))
Model = Callable[[Tensor], Tensor]


def smoothed(model: Model | None = None, batch_size: int = 64) -> SmoothedClassifier:
    """Of five classes, under rotations up to two radians."""
    model = SmallCNN(num_classes=5, width=4, seed=3).eval() if model is None else model
    return SmoothedClassifier(model, Rotation(), Uniform(2.0), 5, batch_size=batch_size)
