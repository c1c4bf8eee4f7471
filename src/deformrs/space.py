"""The parameter space of a deformation: blocks of parameters, their units and periods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import check_integer, check_size, is_real
from deformrs.errors import InputError
from deformrs.units import Size, Unit, parse_quantity

Shift = str | Sequence[float | str] | NDArray[np.float64]
"""One number or quantity ("10deg") for each parameter; a single quantity for a single parameter."""


@dataclass(frozen=True)
class Block:
    """The parameters of one family: `dim` numbers of one kind.

    `period` is set where adding it to a parameter changes nothing (2π for an angle).
    """

    family: str
    dim: int
    unit: Unit
    period: float | None = None

    def __post_init__(self) -> None:
        check_integer(f"the number of parameters of {self.family}", self.dim, least=1)
        if self.period is not None and not (is_real(self.period) and self.period > 0):
            raise InputError(
                f"the period of {self.family}", self.period, "must be positive", "None for none"
            )

    def reach(self, radius: float) -> float:
        """Return the radius, at most half a period: half a turn each way is every angle."""
        if self.period is None or self.dim > 1:
            return radius
        return min(radius, self.period / 2)

    def is_whole(self, radius: float) -> bool:
        """Return whether the radius is half a period both ways, and so every angle."""
        return self.period is not None and self.dim == 1 and radius >= self.period / 2


@dataclass(frozen=True)
class Space:
    """The parameter space of a deformation on images of one size, block after block."""

    blocks: tuple[Block, ...]
    size: Size

    def __post_init__(self) -> None:
        check_size(self.size)

    @cached_property
    def dim(self) -> int:
        return sum(block.dim for block in self.blocks)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The slice of each block in a parameter vector."""
        # Not cached and without NumPy: torch.compile would break at the lock and at the array.
        ends = accumulate(block.dim for block in self.blocks)
        return tuple(
            slice(end - block.dim, end) for block, end in zip(self.blocks, ends, strict=True)
        )

    @cached_property
    def periods(self) -> NDArray[np.float64]:
        """The period of each parameter, infinite where it has none: [d]."""
        return np.concatenate(
            [np.full(block.dim, block.period or np.inf) for block in self.blocks]
        ).astype(np.float64)

    def alone(self, index: int) -> Space:
        """Return the space of one block alone."""
        return Space((self.blocks[index],), self.size)

    def as_shift(self, shift: Shift) -> NDArray[np.float64]:
        """Check one shift, [d], and return it as a row: [1, d].

        >>> Space((Block("translation", 2, Unit.LENGTH),), (28, 28)).as_shift(["7px", 0])
        array([[0.5, 0. ]])
        """
        if isinstance(shift, str):
            shift = [shift] if self.dim == 1 else shift
        if isinstance(shift, list | tuple) and any(isinstance(value, str) for value in shift):
            shift = self._numbers(shift)
        try:
            array = np.asarray(shift, dtype=np.float64)
            if array.ndim == 0:  # covers(10) would mean 10 rad
                raise ValueError("one number, for a parameter of any unit")
        except (TypeError, ValueError, RuntimeError):
            raise InputError(
                "the shift",
                repr(shift),
                "must be one quantity with its unit, or number, for each parameter, in a list",
                f"e.g. {self._example_shift}",
            ) from None
        if array.shape != (self.dim,):
            raise InputError(
                "the shift",
                f"of shape {array.shape}",
                f"must have {self.dim} parameter(s)",
                "one number for each of "
                + " + ".join(f"{b.family} ({b.dim})" for b in self.blocks),
            )
        if not np.isfinite(array).all():
            raise InputError("the shift", "not finite", "must be finite", "remove NaN and infinity")
        return array[None]

    @property
    def _example_shift(self) -> str:
        units = [block.unit.example for block in self.blocks for _ in range(block.dim)]
        return f"{units[:4]}" if len(units) < 5 else f"[{units[0]!r}, ...]"

    def _numbers(self, shift: Sequence[float | str]) -> list[float]:
        """Return numbers for quantities. What there is too much is refused afterwards."""
        units = [block.unit for block in self.blocks for _ in range(block.dim)]
        units += units[-1:] * (len(shift) - len(units))
        return [
            parse_quantity(value, unit, self.size, "the shift") if isinstance(value, str) else value
            for value, unit in zip(shift, units, strict=False)
        ]

    def reduced(self, shifts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return shifts with periodic entries wrapped to [-period/2, period/2]: [k, d]."""
        periods = np.where(np.isfinite(self.periods), self.periods, 1.0)
        turns = np.where(np.isfinite(self.periods), np.round(shifts / periods), 0.0)
        reduced: NDArray[np.float64] = shifts - turns * periods
        return reduced

    def lengths(self, shifts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Guarantee: no entry is below the true |shift|, periodic ones by the shorter way around.

        shifts: [k, d] -> [k, d]
        """
        periods = self.periods
        lengths = np.abs(shifts)
        far = lengths > periods / 2
        if not far.any():
            return lengths
        with np.errstate(invalid="ignore"):
            turns = np.where(far, np.round(lengths / periods), 0.0)
            wrapped = np.abs(lengths - np.where(far, turns * periods, 0.0))
        # Each turn carries the rounding of the period itself; both errors scale with the length.
        wrapped = wrapped + 8 * np.finfo(np.float64).eps * lengths
        return np.where(far, np.minimum(wrapped, periods / 2), lengths)
