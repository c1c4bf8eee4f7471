"""Horizontal shears."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deformrs.deformations.base import Deformation, column
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Shear(Deformation):
    """v = (s y, 0)."""

    name = "shear"
    unit = Unit.FRACTION

    def dim(self, size: Size) -> int:
        return 1

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        x_shift = column(params, 0) * points[..., 1]
        return torch.stack((x_shift, torch.zeros_like(x_shift)), dim=-1)
