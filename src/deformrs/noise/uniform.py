"""Uniform noise on a box, and on the circle for angles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.errors import InputError
from deformrs.noise.distance import Distance
from deformrs.noise.law import Generator
from deformrs.noise.scaled import ScaledLaw
from deformrs.rounding import array_up, round_down
from deformrs.space import Space

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Uniform(ScaledLaw):
    """Each parameter uniform on [-λ, λ], independently; λ = `scale`, one or one per parameter.

    Guarantee: the prediction holds at every shift ξ with p_A - p_B > 2u(ξ), where
    u(ξ) = 1 - Π max(0, 1 - |ξ_i| / 2λ_i); on a circle of circumference P the factor of an angle is
    1 - min(|ξ_i|, 2λ_i, P - 2λ_i) / 2λ_i (docs/theory.md, sections 2.2 and 2.3).

    The radius is in the l1 norm: λ(p_A - p_B) with the smallest λ.

    >>> Uniform("30deg")
    Uniform(scale='30deg')
    """

    name = "uniform"

    @classmethod
    def examples(cls) -> tuple[Uniform, ...]:
        return (cls(0.3), cls(1.0), cls(math.pi), cls("30deg"))

    def norm(self, block: int) -> int:
        return 1

    def check(self, space: Space) -> None:
        too_wide = self.scales(space) > space.periods / 2
        if too_wide.any():
            raise InputError(
                "the scale of Uniform",
                self.scale,
                f"must not exceed half the period ({space.periods[too_wide][0] / 2:.6g})",
                "angles are in radians: math.radians(180) is the whole circle",
            )

    def raw(self, n: int, space: Space, generator: Generator) -> torch.Tensor:
        return generator.uniform(n, space.dim)

    def quantiles(self, uniform: torch.Tensor, space: Space) -> torch.Tensor:
        # The lower ends of the steps that raw draws have.
        return ((uniform * 2**24).floor() / 2**24).float()

    def standard(self, raw: torch.Tensor) -> torch.Tensor:
        return 2 * raw - 1  # exact: a raw draw has 24 bits

    def distance(self, shifts: NDArray[np.float64], space: Space) -> Distance:
        widths = 2 * self.scales(space)
        # The float 2π falls short of the circle, so a gap is a little wider than it seems.
        gaps = np.where(space.periods > widths, space.periods * (1 + 2.0**-51) - widths, 0.0)
        reach = np.minimum(widths, gaps)
        lost = array_up(np.minimum(space.lengths(shifts), reach) / widths)
        # Zero stays zero, so that a full circle loses nothing at any angle.
        lost = np.where((shifts == 0) | (reach == 0), 0.0, np.minimum(lost, 1.0))
        return Distance.of_parts(lost, np.zeros((len(shifts), 0)))

    def radius(self, bound: Bound, space: Space) -> float:
        # The product is log-concave in the shift, so the worst shift of a given l1 norm lies on
        # the axis with the smallest scale.
        margin = bound.lower - bound.upper
        radius = max(0.0, round_down(float(self.scales(space).min()) * margin))
        period = space.blocks[0].period
        if period is None or space.dim > 1:
            return radius
        # Where even the far side of the circle loses too little to matter, every angle holds.
        half_turn = np.full((1, 1), period / 2)
        everywhere = self.distance(half_turn, space).within(bound.lower, bound.upper).all()
        return period / 2 if everywhere else min(radius, period / 2)
