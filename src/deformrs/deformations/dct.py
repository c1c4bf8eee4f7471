"""Smooth deformations: the low frequencies of a cosine transform."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from deformrs.checks import check_choice, check_integer
from deformrs.deformations.deformation import Deformation, combined
from deformrs.units import Size, Unit, unit_px

Basis = Literal["dct", "cosine"]


@dataclass(frozen=True)
class DCT(Deformation):
    """v_x and v_y are sums Σ_{i,j<k} A_ij C_i(row) C_j(column), one matrix A per component.

    Parameters: A of v_x row by row, then A of v_y.

    `basis="dct"`: C_i(row) = cos(π i (row + ½)/H), the transform of the paper's text.
    `basis="cosine"`: C_i(row) = cos(π i (t + ½/H)) with t running from -1 in the first row to 1 in
    the last: twice the frequency. The published numbers were made with it.
    """

    name = "dct"
    unit = Unit.COEFFICIENT
    k: int = 2
    basis: Basis = "dct"

    def __post_init__(self) -> None:
        check_integer("k of DCT", self.k, least=1)
        object.__setattr__(self, "k", int(self.k))
        check_choice("basis of DCT", self.basis, get_args(Basis))

    @classmethod
    def examples(cls) -> tuple[DCT, ...]:
        return (cls(), cls(3), cls(2, basis="cosine"))

    def dim(self, size: Size) -> int:
        return 2 * self.k**2

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        height, width = size
        unit = unit_px(size)
        along_x = self._waves(points[..., 0] * unit + width / 2, width)
        along_y = self._waves(points[..., 1] * unit + height / 2, height)
        if len(points) == 1:
            # The field of every parameter alone, each of one component: [2 k², h, w, 2].
            waves = torch.einsum("ihw,jhw->ijhw", along_y[0], along_x[0]).flatten(0, 1)
            none = torch.zeros_like(waves)
            alone = torch.cat((torch.stack((waves, none), -1), torch.stack((none, waves), -1)))
            return combined(params, alone)
        coefficients = params.view(-1, 2, self.k, self.k)
        return torch.einsum("nvij,nihw,njhw->nhwv", coefficients, along_y, along_x)

    def _waves(self, from_edge: Tensor, length: int) -> Tensor:
        """Return C_0 … C_{k-1} at distances from the edge: [m, h, w] in pixels -> [m, k, h, w]."""
        if self.basis == "dct":
            phase = from_edge / length
        else:
            phase = 2 * (from_edge - 0.5) / max(length - 1, 1) - 1 + 0.5 / length
        order = torch.arange(self.k, device=phase.device, dtype=phase.dtype)
        return torch.cos(math.pi * order[:, None, None] * phase[:, None])
