"""Small images, classifiers, samplers and deformations that the tests share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from deformrs import Deformation, Rotation, SmoothedClassifier, Uniform
from deformrs.execution import Compiled
from deformrs.models import SmallCNN
from deformrs.sampling import Sampler

Model = Callable[[Tensor], Tensor]

IMAGE = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(1))
IMAGES = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(4))

# Every example of every registered family, for tests that run over all of them.
DEFORMATIONS = [
    pytest.param(example, id=repr(example))
    for _, family in sorted(Deformation.registry.items())
    for example in family.examples()  # type: ignore[attr-defined]
]


def network() -> SmallCNN:
    """Return a network of five classes."""
    return SmallCNN(num_classes=5, width=4, seed=3).eval()


def smoothed(
    model: Model | None = None, batch_size: int = 64, *, check_model: bool = True
) -> SmoothedClassifier:
    """Return a classifier of five classes, smoothed over rotations up to two radians.

    Tests that count the calls of a model leave its check out.
    """
    return SmoothedClassifier(
        model or network(),
        Rotation(),
        Uniform(2.0),
        5,
        batch_size=batch_size,
        check_model=check_model,
    )


def sampler(model: Model | None = None, batch_size: int = 64, compiled: Compiled = "no") -> Sampler:
    """Return the sampler of that classifier."""
    return Sampler(
        model or network(),
        Rotation(),
        Uniform(2.0),
        5,
        padding="zeros",
        batch_size=batch_size,
        compiled=compiled,
    )


class LimitedMemory(nn.Module):
    """That network, out of memory for batches of more than `most` images."""

    def __init__(self, most: int, error: type[Exception] = torch.OutOfMemoryError) -> None:
        super().__init__()
        self.inner = network()
        self.most, self.error = most, error
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        if len(images) > self.most:
            raise self.error("allocate memory")
        scores: Tensor = self.inner(images)
        return scores
