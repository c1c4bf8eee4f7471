"""The base class of noise laws: they draw parameters and know which shifts that certifies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from deformrs import statistics
from deformrs.certificate import Bound, Certificate, Counts, RegionLike
from deformrs.config import Configurable
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise.distance import Distance
from deformrs.space import Space

if TYPE_CHECKING:
    import torch


_FIXED = {
    "sample": ("certification draws by raw and params", "these two"),
    "covers": ("regions and radii are answered by distance", "that one"),
    "covers_region": ("single shifts are answered by distance", "that one"),
}
"""Methods that no law may override, or two methods could answer one query differently."""


class Generator(Protocol):
    """What a law draws from: standard random numbers, float32, on a device."""

    device: torch.device

    def uniform(self, n: int, d: int) -> torch.Tensor:
        """Return n x d numbers, uniform on [0, 1) in steps of 2**-24 or finer."""

    def normal(self, n: int, d: int) -> torch.Tensor:
        """Return n x d normal numbers of mean 0 and deviation 1."""


class NoiseLaw(Configurable, ABC):
    """A distribution of deformation parameters that owns its sampling and its certificate."""

    registry: ClassVar[dict[str, type]] = {}
    _has_quantiles: ClassVar[bool] = False

    @property
    def can_stratify(self) -> bool:
        """Whether `quantiles` is written for the very draws of `raw`."""
        return self._has_quantiles

    @abstractmethod
    def norm(self, block: int) -> int:
        """Return the norm in which a block's radius is measured: 1 or 2."""

    @abstractmethod
    def describe(self, space: Space) -> str:
        """Return the law in words, in degrees, pixels and percent."""

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise if this law does not suit a parameter space."""

    def check_for_sampling(self, space: Space) -> None:
        """Raise also if noise of this law makes no sense there: Gaussian(20) on an angle in
        radians. Runs that were sampled are read without this check."""
        self.check(space)

    def resolved(self, space: Space) -> NoiseLaw:
        """Return the law with its scales in numbers: Uniform("180deg") is Uniform(pi)."""
        return self

    @abstractmethod
    def raw(self, n: int, space: Space, generator: Generator) -> torch.Tensor:
        """Return n raw draws from a generator, on its device: [n, d], float32."""

    def quantiles(self, uniform: torch.Tensor, space: Space) -> torch.Tensor:
        """Turn numbers uniform on (0, 1) into raw draws: [n, d], float64 -> float32.

        Each column by an increasing function, so that strata of the numbers are strata of the
        noise. Laws without it are sampled independently.
        """
        raise UnsupportedError(
            "stratified noise",
            f"requested of {type(self).__name__}",
            "needs the quantiles of its draws",
            "write quantiles, or draw independently",
        )

    @abstractmethod
    def params(self, raw: torch.Tensor, space: Space) -> torch.Tensor:
        """Turn raw draws into params: [n, d], float32. A fixed function of each row."""

    @abstractmethod
    def distance(self, shifts: NDArray[np.float64], space: Space) -> Distance:
        """Return how far each of shifts: [k, d] moves the noise, rounded up."""

    @abstractmethod
    def radii(self, bound: Bound, space: Space) -> tuple[float, ...]:
        """Guarantee: every shift of one block alone, of at most that block's norm, is covered.

        The largest such numbers, rounded down (less, for a block of several periodic parameters).
        """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Quantiles are those of the draws of their class: other draws need their own.
        first = next(own for own in cls.__mro__ if {"raw", "quantiles"} & vars(own).keys())
        cls._has_quantiles = first is not NoiseLaw and "quantiles" in vars(first)
        for name, (why, instead) in _FIXED.items():
            if name in vars(cls):
                raise InputError(
                    f"the method {name} of {cls.__qualname__}",
                    "its own",
                    f"must stay as it is: {why}",
                    f"write {instead}",
                )

    @classmethod
    def examples(cls) -> tuple[NoiseLaw, ...]:
        """Return instances for the generic tests."""
        return ()

    def sample(self, n: int, space: Space, generator: Generator) -> torch.Tensor:
        """Draw params: [n, d], float32, on the generator's device."""
        return self.params(self.raw(n, space, generator), space)

    def covers(self, shifts: NDArray[np.float64], bound: Bound, space: Space) -> NDArray[np.bool_]:
        """Return which of shifts: [k, d] a bound certifies."""
        self.check(space)
        return self.distance(shifts, space).within(bound.lower, bound.upper)

    def covers_region(self, region: RegionLike, bound: Bound, space: Space) -> bool:
        """Return whether a bound certifies every transformation of a region."""
        self.check(space)
        return bool(distance_of(self, region, space).within(bound.lower, bound.upper).all())

    def certify(
        self, counts: Counts, space: Space, alpha: float, method: str = "clopper_pearson"
    ) -> Certificate:
        """Turn class counts under this noise into a certificate.

        Guarantee: if `counts` were sampled from this law, two stages independently, the
        certificate is false with probability at most alpha.
        """
        self.check(space)
        chosen = statistics.Method.parse(method).chosen(counts)
        chosen.check_level(alpha)
        bound = chosen.bound(counts, alpha)
        if bound.decides:
            prediction, radii = counts.candidate, self.radii(bound, space)
        else:
            prediction, radii = None, (0.0,) * len(space.blocks)
        return Certificate(prediction, radii, bound, counts, alpha, chosen.name, self, space)


def distance_of(law: NoiseLaw, region: RegionLike, space: Space) -> Distance:
    """Return how far the outermost parts of a region move the noise.

    Enclosing a region is expensive and identical for every image, so it is cached for regions that
    cannot change.
    """
    params = getattr(type(region), "__dataclass_params__", None)
    kept = params is not None and params.frozen and params.eq
    if not kept:
        return _enclosed(law, region, space)
    return _kept_distance(law, region, space)  # type: ignore[arg-type]  # what is frozen has a hash


def _enclosed(law: NoiseLaw, region: RegionLike, space: Space) -> Distance:
    parts = [law.distance(shifts, space).outermost() for shifts in region.shifts(space)]
    if not any(len(part.length) for part in parts):
        raise InputError(
            "the region", repr(region), "must hold a transformation", "the identity at least"
        )
    return Distance.joined(parts).outermost()


_kept_distance = lru_cache(maxsize=64)(_enclosed)
