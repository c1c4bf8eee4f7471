"""The base of uniform and Gaussian noise: one scale for all parameters, or one for each."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.checks import is_real
from deformrs.errors import InputError
from deformrs.noise.law import NoiseLaw
from deformrs.space import Block, Space
from deformrs.units import check_scale, has_unit, parse_quantity

if TYPE_CHECKING:
    import torch

Scale = float | str | tuple[float | str, ...]

SMALLEST = 1e-5
"""The smallest scale: pixel coordinates of order one have an error of 1e-7."""


@dataclass(frozen=True)
class ScaledLaw(NoiseLaw):
    """Independent parameters, each a standard draw times its scale.

    A scale is a number in the unit of the parameters (radians, halves of the shorter image side,
    fractions), or text with a unit, such as "30deg", "4px" or "10%". Pixels are those of each
    image: on images of several sizes the noise is 4 px on all.
    """

    scale: Scale
    _has_text: ClassVar[bool] = False  # of each law: found out once, as sampling depends on it

    def __post_init__(self) -> None:
        several = isinstance(self.scale, tuple | list | np.ndarray)
        values: list[float | str] = list(self.scale) if several else [self.scale]  # type: ignore[arg-type, list-item]
        if not values or not all(map(_is_scale, values)):
            raise self.no_scale(self.scale)
        scales = tuple(str(v) if isinstance(v, str) else float(v) for v in values)
        object.__setattr__(self, "scale", scales if several else scales[0])
        object.__setattr__(self, "_has_text", any(isinstance(value, str) for value in scales))

    @abstractmethod
    def standard(self, raw: torch.Tensor) -> torch.Tensor:
        """Turn raw draws into draws at scale 1: [n, d]."""

    @abstractmethod
    def radius(self, bound: Bound, space: Space) -> float:
        """Return the radius on a space of one block."""

    @property
    def label(self) -> str:
        """What errors call the scale."""
        return f"the scale of {type(self).__name__}"

    def no_scale(self, given: object) -> InputError:
        """Return the error for what is no scale."""
        return InputError(
            self.label,
            repr(given),
            f"must be positive, at least {SMALLEST:g}, or text with a unit such as '30deg'; one "
            "for all parameters or one for each",
            "smaller noise would drown in the float32 of pixel coordinates; e.g. 0.1",
        )

    def scales(self, space: Space) -> NDArray[np.float64]:
        """Return the scale of every parameter in numbers: [d]."""
        scale = self.resolved(space).scale
        if not isinstance(scale, tuple):
            return np.full(space.dim, scale, dtype=np.float64)
        self.check_length(space)
        return np.asarray(scale, dtype=np.float64)

    def check_length(self, space: Space) -> None:
        """Raise unless there is one scale or one for each parameter."""
        if isinstance(self.scale, tuple) and len(self.scale) != space.dim:
            raise InputError(
                self.label,
                f"{len(self.scale)} numbers",
                f"must be one number or one for each of {space.dim} parameters",
                "one number serves all parameters",
            )

    def resolved(self, space: Space) -> Self:
        return cast("Self", _resolved(self, space)) if self._has_text else self

    def alone(self, part: slice) -> Self:
        """Return the law of some of the parameters."""
        return type(self)(self.scale[part]) if isinstance(self.scale, tuple) else self

    def check(self, space: Space) -> None:
        self.scales(space)

    def check_for_sampling(self, space: Space) -> None:
        self.scales(space)
        law = type(self).__name__ + ("(('{}', …))" if isinstance(self.scale, tuple) else "('{}')")
        for block, part in zip(space.blocks, space.slices, strict=True):
            for given in self.scale[part] if isinstance(self.scale, tuple) else (self.scale,):
                check_scale(self.label, given, block.unit, space.size, law)
        self.check(space)

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
        scale = self.resolved(space).scale
        if isinstance(scale, float):
            return (draws * scale).float()
        assert isinstance(scale, tuple)
        compiling = torch.compiler.is_compiling()  # which makes it a constant of its own accord
        row = draws.new_tensor(scale) if compiling else _row(scale, raw.device)
        return (draws * row).float()

    def radii(self, bound: Bound, space: Space) -> tuple[float, ...]:
        return tuple(
            self.alone(part).radius(bound, space.alone(index))
            for index, part in enumerate(space.slices)
        )


def _is_scale(value: object) -> bool:
    if isinstance(value, str):
        return has_unit(value)
    return is_real(value) and value >= SMALLEST  # type: ignore[operator]


@lru_cache(maxsize=256)
def _resolved(law: ScaledLaw, space: Space) -> ScaledLaw:
    """Return the law with numbers for text."""
    scale = law.scale

    def number(given: float | str, block: Block) -> float:
        if not isinstance(given, str):
            return given
        value = parse_quantity(given, block.unit, space.size, law.label)
        if not _is_scale(value):
            raise law.no_scale(given)
        return value

    if isinstance(scale, tuple):
        law.check_length(space)
        blocks = [block for block in space.blocks for _ in range(block.dim)]
        return replace(law, scale=tuple(map(number, scale, blocks)))
    # A unit belongs to one kind of parameter, so all blocks have the same number.
    return replace(law, scale=[number(scale, block) for block in space.blocks][-1])


@lru_cache(maxsize=64)
def _row(scales: tuple[float | str, ...], device: torch.device) -> torch.Tensor:
    """Return the scales on a device. Cached: the device would wait for every copy."""
    import torch

    with torch.inference_mode(False):
        return torch.tensor(scales, dtype=torch.float64, device=device)
