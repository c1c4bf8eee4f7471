"""The base class of deformations: displacements of coordinates with a vector of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from deformrs.checks import check_size
from deformrs.config import Configurable
from deformrs.errors import InputError
from deformrs.geometry import Padding, pixel_grid, size_of, warp
from deformrs.space import Block, Space
from deformrs.units import Size, Unit


class Deformation(Configurable, ABC):
    """A family of coordinate maps T(p) = p + v(p), whose zero parameters are the identity.

    A family is a frozen dataclass that sets `name`, `unit` (and `period`, where it has one) and
    writes `dim` and `displacement`. docs/adding_a_deformation.md walks through one.
    """

    registry: ClassVar[dict[str, type]] = {}
    unit: ClassVar[Unit] = Unit.COEFFICIENT
    period: ClassVar[float | None] = None

    @abstractmethod
    def dim(self, size: Size) -> int:
        """Return the number of parameters on images of this size."""

    @abstractmethod
    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        """Return v at any points of the plane.

        params: [n, d], points: [n or 1, h, w, 2] as (x, y) -> [n, h, w, 2]
        """

    @classmethod
    def examples(cls) -> tuple[Deformation, ...]:
        """Return instances for the generic tests."""
        return (cls(),)

    def blocks(self, size: Size) -> tuple[Block, ...]:
        """Return the blocks of parameters: one, except for compositions."""
        return (Block(self.name, self.dim(size), self.unit, self.period),)

    def space(self, size: Size) -> Space:
        """Return the parameter space on images of this size."""
        check_size(size)
        return Space(self.blocks(size), size)

    def field(self, params: Tensor, size: Size) -> Tensor:
        """Return v at every pixel. params: [n, d] -> [n, h, w, 2]"""
        check_size(size)
        if not (isinstance(params, Tensor) and params.is_floating_point()):
            raise InputError(
                "params",
                f"a {type(params).__name__}",
                "must be a floating-point torch.Tensor",
                "torch.tensor([[0.1]])",
            )
        if params.ndim != 2 or params.shape[1] != self.dim(size):
            raise InputError(
                "params",
                f"of shape {tuple(params.shape)}",
                f"must have shape (n, {self.dim(size)}) for {self!r} on {size[0]}x{size[1]} pixels",
                "one row of parameters for each output image",
            )
        # Coordinates need float32, whatever the precision of the images.
        params = params.to(torch.promote_types(params.dtype, torch.float32))
        # Third-party families may return a wrong shape.
        field = self._on_pixels(params, size)
        if field.shape != (len(params), *size, 2):
            raise InputError(
                f"the displacement of {self!r}",
                f"of shape {tuple(field.shape)}",
                f"must have shape {(len(params), *size, 2)}",
                "stack (v_x, v_y) in the last dimension",
            )
        return field

    def apply(self, image: Tensor, params: Tensor, padding: Padding = "zeros") -> Tensor:
        """Return the deformed images.

        image: [c, h, w] under every row of params, or [n, c, h, w] with a row each;
        params: [n, d] -> [n, c, h, w]
        """
        if not isinstance(image, Tensor) or image.ndim not in (3, 4) or image.numel() == 0:
            given = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
            raise InputError(
                "image",
                given,
                "must be a non-empty torch.Tensor, c x h x w or n x c x h x w",
                "e.g. torch.from_numpy(array).permute(2, 0, 1) / 255",
            )
        if not image.is_floating_point():
            raise InputError("image", image.dtype, "must be floating point", "image.float() / 255")
        field = self.field(params, size_of(image))
        if not field.isfinite().all():
            raise InputError("params", "not finite", "must be finite", "remove NaN and infinity")
        if image.ndim == 4 and len(image) != len(params):
            raise InputError(
                "params",
                f"{len(params)} rows",
                f"must be {len(image)}, one per image",
                "match them",
            )
        return warp(image, field, padding)

    def _on_pixels(self, params: Tensor, size: Size) -> Tensor:
        points = pixel_grid(size, params.device, params.dtype)
        return self.displacement(params, points[None], size)


def combined(params: Tensor, fields: Tensor) -> Tensor:
    """Return the sum of fields times parameters: [n, d] and [d, h, w, 2] -> [n, h, w, 2].

    Not as a matrix product, whose rounding depends on the number of rows.
    """
    total = params[:, :1, None, None] * fields[0]
    for index in range(1, len(fields)):
        total = torch.addcmul(total, params[:, index, None, None, None], fields[index])
    return total


def column(params: Tensor, index: int) -> Tensor:
    """Return one parameter of every sample, for broadcasting: [n, d] -> [n, 1, 1]."""
    return params[:, index, None, None]
