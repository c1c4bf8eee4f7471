"""Shifts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deformrs.deformations.deformation import Deformation
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Translation(Deformation):
    """v = (t_x, t_y): every pixel reads t_x to the right and t_y below."""

    name = "translation"
    unit = Unit.LENGTH

    def dim(self, size: Size) -> int:
        return 2

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        return params[:, None, None, :].expand(-1, points.shape[1], points.shape[2], -1)
