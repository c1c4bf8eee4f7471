"""The plain loop that certification is compared with.

It stands in for how the paper's scripts work: float32 in the usual memory format, parameters and
fields made on the CPU and copied to the device, batches of 400, and answers counted one by one in
Python.
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor

from deformrs.deformations import Deformation
from deformrs.geometry import pixel_grid, read, size_of
from deformrs.models import NetworkSpec
from deformrs.models.types import Classifier
from deformrs.noise import NoiseLaw

BATCH = 400


class NaiveLoop:
    """Counts answers under random deformations of one square image, the slow way."""

    def __init__(
        self,
        built: NetworkSpec,
        deformation: Deformation,
        noise: NoiseLaw,
        num_classes: int,
        device: torch.device,
    ) -> None:
        own = copy.deepcopy(built.module).float()
        own.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        plain = dataclasses.replace(built, module=own, channels_last=False)
        self.module = Classifier(plain, torch.float32).eval().requires_grad_(False).to(device)
        self.deformation = deformation
        self.noise = noise
        self.num_classes = num_classes
        self.device = device

    @torch.no_grad()
    def count(self, image: Tensor, n: int, seed: int = 0) -> list[int]:
        """How often each class is answered. image: [c, h, h]"""
        size = size_of(image)
        space = self.deformation.space(size)
        generator = torch.Generator().manual_seed(seed)
        image = image.to(self.device)
        grid = pixel_grid(size, "cpu", torch.float32)
        counts = [0] * self.num_classes
        for start in range(0, n, BATCH):
            here = min(BATCH, n - start)
            params = self.noise.sample(here, space, generator)
            points = (grid + self.deformation.field(params, size)).to(self.device)
            batch = image.repeat(here, 1, 1, 1)
            for answer in self.module(read(batch, points, "zeros")).argmax(1).cpu().numpy():
                counts[answer] += 1
        return counts
