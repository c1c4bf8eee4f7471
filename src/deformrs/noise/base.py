"""What a noise law is: it draws parameters, and knows which shifts its draws certify."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from deformrs import statistics
from deformrs.certificate import Bound, Certificate, Counts
from deformrs.config import Configurable
from deformrs.errors import InputError
from deformrs.rounding import array_down, array_up, round_down
from deformrs.space import Space

if TYPE_CHECKING:
    import torch

Scale = float | tuple[float, ...]


@dataclass(frozen=True)
class Distance:
    """How far shifts move the noise, never less than the truth. lost, length: [k].

    `lost` is the probability mass that a shift moves off the support of the uniform parameters;
    `length` is the Mahalanobis length of the shift of the Gaussian ones.
    """

    lost: NDArray[np.float64]
    length: NDArray[np.float64]

    def within(self, bound: Bound) -> NDArray[np.bool_]:
        """Guarantee: True only where the candidate of `bound` stays the most probable class.

        Neyman-Pearson for the joint law (docs/theory.md, section 2.4): a class of probability p
        keeps at least L(p) = (1-u) Φ(Φ⁻¹((p-u)/(1-u)) - r), so certified while
        L(p_A) + L(1 - p_B) > 1. For u = 0 or r = 0 that is the closed form used here instead.
        """
        margin = array_down(bound.lower - bound.upper)
        return np.where(
            self.length == 0,
            2 * self.lost < margin,
            np.where(
                self.lost == 0,
                self.length < gaussian_margin(bound),
                self._kept(bound.lower) + self._kept(complement_down(bound.upper)) > 1 + 1e-14,
            ),
        )

    def _kept(self, p: float) -> NDArray[np.float64]:
        """L(p), rounded down at every step: each function is monotone in the one before."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = array_down((p - self.lost) / (1 - self.lost))
            quantile = array_down(ndtri(np.clip(share, 0, 1)))
            kept = array_down((1 - self.lost) * ndtr(array_down(quantile - self.length)))
        return np.where(share > 0, kept, 0.0)


def complement_down(p: float) -> float:
    """1 - p, rounded down."""
    return max(0.0, math.nextafter(1 - p, -math.inf))


def gaussian_margin(bound: Bound) -> float:
    """½(Φ⁻¹(p_A) - Φ⁻¹(p_B)), rounded down."""
    return round_down(
        float(array_down(ndtri(bound.lower)) - array_up(ndtri(bound.upper))) / 2, relative=2.0**-52
    )


class NoiseLaw(Configurable, ABC):
    """A distribution of deformation parameters that owns its sampling and its certificate."""

    registry: ClassVar[dict[str, type]] = {}

    @abstractmethod
    def norm(self, block: int) -> int:
        """The norm in which that block's radius is measured: 1 or 2."""

    @abstractmethod
    def describe(self, space: Space) -> str:
        """The law in words and in the units people use."""

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise if this law cannot be put on that space."""

    @abstractmethod
    def sample(self, n: int, space: Space, generator: torch.Generator) -> torch.Tensor:
        """Draw params: [n, d], float32, on the generator's device."""

    @abstractmethod
    def distance(self, shifts: NDArray[np.float64], space: Space) -> Distance:
        """How far each of shifts: [k, d] moves the noise, rounded up."""

    @abstractmethod
    def radii(self, bound: Bound, space: Space) -> tuple[float, ...]:
        """Guarantee: every shift of one block alone, of at most that block's norm, is covered.

        The largest such numbers, rounded down.
        """

    @classmethod
    def examples(cls) -> tuple[NoiseLaw, ...]:
        """Instances on which the generic tests are run."""
        return ()

    def covers(self, shifts: NDArray[np.float64], bound: Bound, space: Space) -> NDArray[np.bool_]:
        """Which of shifts: [k, d] the bound certifies."""
        return self.distance(shifts, space).within(bound)

    def certify(
        self, counts: Counts, space: Space, alpha: float, method: str = "clopper_pearson"
    ) -> Certificate:
        """Turn counts of answers under this noise into a certificate.

        Guarantee: if `counts` were sampled from this law, two stages independently, the
        certificate is false with probability at most alpha.
        """
        self.check(space)
        bound = statistics.bound(counts, alpha, method)
        if bound.decides:
            prediction, radii = counts.candidate, self.radii(bound, space)
        else:
            prediction, radii = None, (0.0,) * len(space.blocks)
        return Certificate(prediction, radii, bound, counts, alpha, method, self, space)


def check_scale(law: str, scale: Scale | Sequence[float]) -> Scale:
    """A positive number, or a tuple of them."""
    values = scale if isinstance(scale, Sequence) else (scale,)
    for value in values:
        if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
            raise InputError(
                f"the scale of {law}", scale, "must be positive and finite", "e.g. 0.1"
            )
    if not values:
        raise InputError(f"the scale of {law}", scale, "must not be empty", "e.g. 0.1")
    return tuple(map(float, values)) if isinstance(scale, Sequence) else float(scale)


def scales(law: str, scale: Scale, space: Space) -> NDArray[np.float64]:
    """The scale of every parameter: [d]."""
    if isinstance(scale, float):
        return np.full(space.dim, scale)
    if len(scale) != space.dim:
        raise InputError(
            f"the scale of {law}",
            f"{len(scale)} numbers",
            f"must be one number or one for each of {space.dim} parameters",
            "one number serves all parameters",
        )
    return np.asarray(scale)


def scale_tensor(scale: Scale, device: torch.device) -> torch.Tensor | float:
    """The scale as a factor for params: [n, d]."""
    import torch

    return scale if isinstance(scale, float) else torch.tensor(scale, device=device)


def restricted(scale: Scale, part: slice) -> Scale:
    """The scale of a block's parameters alone."""
    return scale if isinstance(scale, float) else cast(Scale, scale[part])


def show_scale(scale: Scale, space: Space) -> str:
    """The scale in the units of its parameters, each distinct value once."""
    values = scales("the law", scale, space)
    shown = [
        block.unit.show(float(value), space.size)
        for block, part in zip(space.blocks, space.slices, strict=True)
        for value in np.unique(values[part])
    ]
    return ", ".join(dict.fromkeys(shown))
