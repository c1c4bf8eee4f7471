"""Gaussian noise, one scale for all parameters or one each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.noise.base import (
    Distance,
    NoiseLaw,
    Scale,
    check_scale,
    gaussian_margin,
    restricted,
    scale_tensor,
    scales,
    show_scale,
)
from deformrs.rounding import array_up, round_down
from deformrs.space import Space

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Gaussian(NoiseLaw):
    """Each parameter normal with mean 0 and deviation σ = `scale`, independently.

    Guarantee: the prediction holds at every shift ξ with
    √Σ(ξ_i/σ_i)² < ½(Φ⁻¹(p_A) - Φ⁻¹(p_B)) (docs/theory.md, section 2.1).

    The radius is in the l2 norm: the right-hand side times the smallest σ.

    >>> Gaussian((0.1, 0.2))
    Gaussian(scale=(0.1, 0.2))
    """

    name = "gaussian"
    scale: Scale

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale("Gaussian", self.scale))

    @classmethod
    def examples(cls) -> tuple[Gaussian, ...]:
        return (cls(0.1), cls(2.0))

    def norm(self, block: int) -> int:
        return 2

    def describe(self, space: Space) -> str:
        return f"gaussian noise of scale {show_scale(self.scale, space)}"

    def check(self, space: Space) -> None:
        scales("Gaussian", self.scale, space)

    def sample(self, n: int, space: Space, generator: torch.Generator) -> torch.Tensor:
        import torch

        draws = torch.randn(n, space.dim, generator=generator, device=generator.device)
        return draws * scale_tensor(self.scale, generator.device)

    def distance(self, shifts: NDArray[np.float64], space: Space) -> Distance:
        scaled = space.lengths(shifts) / scales("Gaussian", self.scale, space)
        length = array_up(np.sqrt(np.square(scaled).sum(axis=1)), relative=2.0**-44)
        return Distance(
            lost=np.zeros(len(shifts)), length=np.where(shifts.any(axis=1), length, 0.0)
        )

    def radii(self, bound: Bound, space: Space) -> tuple[float, ...]:
        margin = gaussian_margin(bound)
        found = []
        for block, part in zip(space.blocks, space.slices, strict=True):
            smallest = float(np.min(restricted(self.scale, part)))
            radius = max(0.0, round_down(smallest * margin))
            if block.period is not None and block.dim == 1:
                radius = min(radius, block.period / 2)
            found.append(radius)
        return tuple(found)
