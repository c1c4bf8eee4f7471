"""Scaling about the centre."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deformrs.deformations.deformation import Deformation
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Scaling(Deformation):
    """Scale about the centre: v = (s x, s y), s = α - 1.

    As in the paper, α > 1 reads from further out and shows the content smaller: it is magnified by
    1/α. A radius of 20 % covers α from 0.8 to 1.2, content at 84 to 125 % of its size.
    """

    name = "scaling"
    unit = Unit.FRACTION

    def dim(self, size: Size) -> int:
        return 1

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        return params[:, :, None, None] * points
