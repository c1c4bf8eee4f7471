"""A free displacement at every pixel."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deformrs.deformations.deformation import Deformation
from deformrs.geometry import read
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class VectorField(Deformation):
    """v(pixel) = (ψ_x, ψ_y), free at each. Parameters: ψ row by row, x before y at every pixel.

    Between the pixels, where a composition may ask, ψ is interpolated bilinearly.
    """

    name = "vector_field"
    unit = Unit.LENGTH

    def dim(self, size: Size) -> int:
        return 2 * size[0] * size[1]

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        as_images = self._on_pixels(params, size).permute(0, 3, 1, 2)
        points = points.expand(len(params), -1, -1, -1)
        return read(as_images, points, padding="border").permute(0, 2, 3, 1)

    def _on_pixels(self, params: Tensor, size: Size) -> Tensor:
        return params.view(-1, *size, 2)
