"""Horizontal shears."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deformrs.deformations.deformation import Deformation
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Shear(Deformation):
    """v = (s y, 0)."""

    name = "shear"
    unit = Unit.FRACTION

    def dim(self, size: Size) -> int:
        return 1

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        y = points[..., 1]
        return params[:, :, None, None] * torch.stack((y, torch.zeros_like(y)), dim=-1)
