"""Rotations about the centre."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from deformrs.deformations.deformation import Deformation
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Rotation(Deformation):
    """v = (x(cos θ - 1) - y sin θ, x sin θ + y(cos θ - 1)), θ in radians."""

    name = "rotation"
    unit = Unit.ANGLE
    period = 2 * math.pi

    def dim(self, size: Size) -> int:
        return 1

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        angle = params[:, :, None, None]
        sin, cos_less_one = torch.sin(angle), -2 * torch.sin(angle / 2) ** 2
        x, y = points.unbind(-1)
        a_quarter_turn_on = torch.stack((-y, x), dim=-1)
        return torch.addcmul(cos_less_one * points, sin, a_quarter_turn_on)
