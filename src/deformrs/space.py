"""The parameters of a deformation as the noise and the certificate see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deformrs.errors import InputError
from deformrs.units import Size, Unit


@dataclass(frozen=True)
class Block:
    """The parameters of one family: `dim` numbers of one kind.

    `period` is set where adding it to a parameter changes nothing (2π for an angle).
    """

    family: str
    dim: int
    unit: Unit
    period: float | None = None


@dataclass(frozen=True)
class Space:
    """The parameter space of a deformation on images of one size, block after block."""

    blocks: tuple[Block, ...]
    size: Size

    @cached_property
    def dim(self) -> int:
        return sum(block.dim for block in self.blocks)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each block lies in a parameter vector."""
        ends = np.cumsum([block.dim for block in self.blocks]).tolist()
        return tuple(
            slice(end - block.dim, end) for block, end in zip(self.blocks, ends, strict=True)
        )

    @cached_property
    def periods(self) -> NDArray[np.float64]:
        """periods: [d], infinite where a parameter does not repeat."""
        return np.concatenate(
            [np.full(block.dim, block.period or np.inf) for block in self.blocks]
        ).astype(np.float64)

    def alone(self, index: int) -> Space:
        """The space of one block, the others at rest."""
        return Space((self.blocks[index],), self.size)

    def shifts(self, shifts: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Check shifts of shape [d] or [k, d] and return them as [k, d]."""
        array = np.atleast_2d(np.asarray(shifts, dtype=np.float64))
        if array.ndim != 2 or array.shape[1] != self.dim:
            raise InputError(
                "the shift",
                f"of shape {np.shape(shifts)}",
                f"must have {self.dim} parameter(s)",
                "one number for each of "
                + " + ".join(f"{b.family} ({b.dim})" for b in self.blocks),
            )
        if not np.isfinite(array).all():
            raise InputError("the shift", "not finite", "must be finite", "remove NaN and infinity")
        return array

    def lengths(self, shifts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Guarantee: no entry is below the true |shift|, periodic ones by their shortest way round.

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
