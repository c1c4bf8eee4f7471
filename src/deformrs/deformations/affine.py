"""Affine maps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deformrs.deformations.deformation import Deformation, column, combined
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Affine(Deformation):
    """v = (a x + b y + e, c x + d y + f) with parameters (a, b, c, d, e, f)."""

    name = "affine"
    unit = Unit.COEFFICIENT

    def dim(self, size: Size) -> int:
        return 6

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        x, y = points.unbind(-1)
        if len(points) == 1:  # shared: no need to stack pairs for every sample
            one, none = torch.ones_like(x), torch.zeros_like(x)
            pairs = ((x, none), (y, none), (none, x), (none, y), (one, none), (none, one))
            return combined(params, torch.cat([torch.stack(pair, dim=-1) for pair in pairs]))
        a, b, c, d, e, f = (column(params, index) for index in range(6))
        return torch.stack((a * x + b * y + e, c * x + d * y + f), dim=-1)
