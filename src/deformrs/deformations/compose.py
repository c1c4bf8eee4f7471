"""Compositions of deformations, as a single warp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from deformrs.config import Config
from deformrs.deformations.deformation import Deformation
from deformrs.deformations.rotation import Rotation
from deformrs.deformations.scaling import Scaling
from deformrs.deformations.translation import Translation
from deformrs.deformations.vector_field import VectorField
from deformrs.errors import InputError
from deformrs.geometry import pixel_grid
from deformrs.space import Block
from deformrs.units import Size


@dataclass(frozen=True, init=False)
class Compose(Deformation):
    """T = T₁∘T₂∘…, the parameters concatenated: `Compose(Rotation(), Scaling())`.

    The image undergoes them from left to right: first rotated, then zoomed. It is interpolated
    once, from the original pixels.
    """

    name = "compose"
    parts: tuple[Deformation, ...]

    def __init__(self, *parts: Deformation) -> None:
        for part in parts:
            if not isinstance(part, Deformation):
                raise InputError(
                    "a part of Compose", repr(part), "must be a deformation", "e.g. Rotation()"
                )
        if not parts:
            raise InputError("Compose", "empty", "needs at least one part", "e.g. Rotation()")
        object.__setattr__(self, "parts", tuple(parts))

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.parts))})"

    @classmethod
    def from_fields(cls, values: Config) -> Self:
        return cls(*Deformation.list_from_config(values["parts"]))

    @classmethod
    def examples(cls) -> tuple[Compose, ...]:
        return (
            cls(Rotation(), Scaling(), Translation()),
            cls(VectorField(), Rotation()),
            cls(Scaling(), cls(Translation(), VectorField())),
        )

    def dim(self, size: Size) -> int:
        return sum(part.dim(size) for part in self.parts)

    def blocks(self, size: Size) -> tuple[Block, ...]:
        return tuple(block for part in self.parts for block in part.blocks(size))

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        return self._follow(self._split(params, size), points, size) - points

    def _on_pixels(self, params: Tensor, size: Size) -> Tensor:
        *outer, innermost = self._split(params, size)
        points = pixel_grid(size, params.device, params.dtype)[None]
        reached = points + self.parts[-1]._on_pixels(innermost, size)
        return self._follow(outer, reached, size) - points

    def _split(self, params: Tensor, size: Size) -> list[Tensor]:
        return list(torch.split(params, [part.dim(size) for part in self.parts], dim=1))

    def _follow(self, params: list[Tensor], points: Tensor, size: Size) -> Tensor:
        """Apply T₁∘…∘T_m to the points, for the first m parts."""
        for part, block in reversed(list(zip(self.parts, params, strict=False))):
            points = points + part.displacement(block, points, size)
        return points
