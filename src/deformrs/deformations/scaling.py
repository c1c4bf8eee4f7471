"""Zooms about the centre."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deformrs.deformations.deformation import Deformation
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Scaling(Deformation):
    """v = (s x, s y), s = α - 1: α > 1 reads from further out and shows the content smaller."""

    name = "scaling"
    unit = Unit.FRACTION

    def dim(self, size: Size) -> int:
        return 1

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        return params[:, :, None, None] * points
