"""Gaussian noise, one scale for all parameters or one each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.noise.distance import Distance, gaussian_margin
from deformrs.noise.law import Generator
from deformrs.noise.scaled import ScaledLaw
from deformrs.rounding import array_up, round_down
from deformrs.space import Space

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Gaussian(ScaledLaw):
    """Each parameter normal with mean 0 and deviation σ = `scale`, independently.

    Guarantee: the prediction holds at every shift ξ with
    √Σ(ξ_i/σ_i)² < ½(Φ⁻¹(p_A) - Φ⁻¹(p_B)) (docs/theory.md, section 2.1).

    The radius is in the l2 norm: the right-hand side times the smallest σ.

    >>> Gaussian(("4px", "2px"))
    Gaussian(scale=('4px', '2px'))
    """

    name = "gaussian"

    @classmethod
    def examples(cls) -> tuple[Gaussian, ...]:
        return (cls(0.1), cls(2.0), cls("20%"))

    def norm(self, block: int) -> int:
        return 2

    def raw(self, n: int, space: Space, generator: Generator) -> torch.Tensor:
        return generator.normal(n, space.dim)

    def quantiles(self, uniform: torch.Tensor, space: Space) -> torch.Tensor:
        import torch

        raw: torch.Tensor = torch.special.ndtri(uniform)
        return raw.float()

    def standard(self, raw: torch.Tensor) -> torch.Tensor:
        return raw

    def distance(self, shifts: NDArray[np.float64], space: Space) -> Distance:
        scaled = array_up(space.lengths(shifts) / self.scales(space))
        scaled = np.where(shifts == 0, 0.0, scaled)
        return Distance.of_parts(np.zeros((len(shifts), 0)), scaled)

    def radius(self, bound: Bound, space: Space) -> float:
        margin = float(gaussian_margin(bound.lower, bound.upper))
        radius = max(0.0, round_down(float(self.scales(space).min()) * margin))
        period = space.blocks[0].period
        return radius if period is None or space.dim > 1 else min(radius, period / 2)
