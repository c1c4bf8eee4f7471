"""The base of uniform and Gaussian noise: one scale for all parameters, or one for each."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.checks import is_real
from deformrs.errors import InputError
from deformrs.noise.law import NoiseLaw
from deformrs.space import Space

if TYPE_CHECKING:
    import torch

Scale = float | tuple[float, ...]

SMALLEST = 1e-5
"""The smallest scale: pixel coordinates of order one have an error of 1e-7."""


@dataclass(frozen=True)
class ScaledLaw(NoiseLaw):
    """Independent parameters, each a standard draw times its scale."""

    scale: Scale

    def __post_init__(self) -> None:
        several = isinstance(self.scale, tuple | list | np.ndarray)
        values: list[float] = list(self.scale) if several else [self.scale]  # type: ignore[arg-type, list-item]
        if not values or not all(is_real(value) and value >= SMALLEST for value in values):
            raise InputError(
                f"the scale of {type(self).__name__}",
                repr(self.scale),
                f"must be positive and at least {SMALLEST:g}, one number or one for each parameter",
                "smaller noise would drown in the float32 of pixel coordinates; e.g. 0.1",
            )
        scales = tuple(map(float, values))
        object.__setattr__(self, "scale", scales if several else scales[0])

    @abstractmethod
    def standard(self, raw: torch.Tensor) -> torch.Tensor:
        """Turn raw draws into draws at scale 1: [n, d]."""

    @abstractmethod
    def radius(self, bound: Bound, space: Space) -> float:
        """Return the radius on a space of one block."""

    def scales(self, space: Space) -> NDArray[np.float64]:
        """Return the scale of every parameter: [d]."""
        if isinstance(self.scale, float):
            return np.full(space.dim, self.scale)
        if len(self.scale) != space.dim:
            raise InputError(
                f"the scale of {type(self).__name__}",
                f"{len(self.scale)} numbers",
                f"must be one number or one for each of {space.dim} parameters",
                "one number serves all parameters",
            )
        return np.asarray(self.scale)

    def alone(self, part: slice) -> Self:
        """Return the law of some of the parameters."""
        return self if isinstance(self.scale, float) else type(self)(self.scale[part])

    def check(self, space: Space) -> None:
        self.scales(space)

    def describe(self, space: Space) -> str:
        shown = [
            block.unit.show(float(value), space.size)
            for block, part in zip(space.blocks, space.slices, strict=True)
            for value in np.unique(self.scales(space)[part])
        ]
        return f"{self.name} noise of scale {', '.join(dict.fromkeys(shown))}"

    def params(self, raw: torch.Tensor, space: Space) -> torch.Tensor:
        import torch

        # In float32 the scale itself would be rounded: one error in all draws, and not the law
        # that is certified.
        draws = self.standard(raw).double()
        if isinstance(self.scale, float):
            return (draws * self.scale).float()
        compiling = torch.compiler.is_compiling()  # which makes it a constant of its own accord
        row = draws.new_tensor(self.scale) if compiling else _row(self.scale, raw.device)
        return (draws * row).float()

    def radii(self, bound: Bound, space: Space) -> tuple[float, ...]:
        return tuple(
            self.alone(part).radius(bound, space.alone(index))
            for index, part in enumerate(space.slices)
        )


@lru_cache(maxsize=64)
def _row(scales: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """Return the scales on a device. Cached: the device would wait for every copy."""
    import torch

    with torch.inference_mode(False):
        return torch.tensor(scales, dtype=torch.float64, device=device)
