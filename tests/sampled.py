"""Images and a sampler to try things on, and a network that wants much memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deformrs import Rotation, Uniform
from deformrs.execution import Compiled
from deformrs.models import SmallCNN
from deformrs.sampling import Sampler
from smoothed import Model

IMAGES = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(4))


def sampler(model: Model | None = None, batch_size: int = 64, compiled: Compiled = "no") -> Sampler:
    model = SmallCNN(num_classes=5, width=4, seed=3).eval() if model is None else model
    return Sampler(
        model,
        Rotation(),
        Uniform(2.0),
        5,
        padding="zeros",
        batch_size=batch_size,
        compiled=compiled,
    )


class Greedy(nn.Module):
    """Takes no more than so many images at once."""

    def __init__(self, most: int, error: type[Exception] = torch.OutOfMemoryError) -> None:
        super().__init__()
        self.inner = SmallCNN(num_classes=5, width=4, seed=3)
        self.most, self.error = most, error
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        if len(images) > self.most:
            raise self.error("allocate memory")
        scores: Tensor = self.inner(images)
        return scores
