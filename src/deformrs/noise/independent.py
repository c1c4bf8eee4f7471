"""Independent noise laws, one for each block of a composed deformation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.noise.distance import Distance
from deformrs.noise.gaussian import Gaussian
from deformrs.noise.law import Generator, NoiseLaw
from deformrs.noise.uniform import Uniform
from deformrs.space import Space

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, init=False)
class Independent(NoiseLaw):
    """One law per block: `Independent(Uniform(0.5), Gaussian(0.1))`.

    Guarantee: with u the mass the shift moves off the uniform blocks and r its Mahalanobis length
    in the Gaussian ones, the prediction holds while
    L(p_A) + L(1 - p_B) > 1, L(p) = (1-u) Φ(Φ⁻¹((p - u)/(1 - u)) - r). No larger set is certified by
    this noise (docs/theory.md, section 2.4).

    It has one radius per block, the other blocks unchanged.
    """

    name = "independent"
    laws: tuple[Uniform | Gaussian, ...]

    def __init__(self, *laws: Uniform | Gaussian) -> None:
        for law in laws:
            if not isinstance(law, Uniform | Gaussian):
                raise InputError(
                    "a law of Independent", repr(law), "must be Uniform or Gaussian", "flatten it"
                )
        if not laws:
            raise InputError("Independent", "empty", "needs a law for each block", "pass some")
        object.__setattr__(self, "laws", tuple(laws))

    def __repr__(self) -> str:
        return f"Independent({', '.join(map(repr, self.laws))})"

    @classmethod
    def from_fields(cls, values: Config) -> Self:
        return cls(*NoiseLaw.list_from_config(values["laws"]))  # type: ignore[arg-type]

    @classmethod
    def examples(cls) -> tuple[Independent, ...]:
        return (
            cls(Uniform(0.5), Gaussian(0.3)),
            cls(Gaussian(0.2), Uniform(math.pi)),
            cls(Uniform("30deg"), Gaussian(("4px", 0.1))),
        )

    def norm(self, block: int) -> int:
        return self.laws[block].norm(0)

    def describe(self, space: Space) -> str:
        return ", ".join(
            f"{law.describe(space.alone(index))} on {block.family}"
            for index, (law, block) in enumerate(zip(self.laws, space.blocks, strict=True))
        )

    def check(self, space: Space) -> None:
        self._check_number(space)
        for index, law in enumerate(self.laws):
            law.check(space.alone(index))

    def _check_number(self, space: Space) -> None:
        if len(self.laws) != len(space.blocks):
            raise InputError(
                "Independent",
                f"{len(self.laws)} law(s)",
                f"must have one for each of {len(space.blocks)} block(s)",
                "the blocks are " + ", ".join(block.family for block in space.blocks),
            )

    def check_for_sampling(self, space: Space) -> None:
        self._check_number(space)
        for index, law in enumerate(self.laws):
            law.check_for_sampling(space.alone(index))

    def resolved(self, space: Space) -> Independent:
        return Independent(*(law.resolved(space.alone(i)) for i, law in enumerate(self.laws)))

    def raw(self, n: int, space: Space, generator: Generator) -> torch.Tensor:
        import torch

        parts = [law.raw(n, space.alone(i), generator) for i, law in enumerate(self.laws)]
        return torch.cat(parts, dim=1)

    @property
    def can_stratify(self) -> bool:
        return super().can_stratify and all(law.can_stratify for law in self.laws)

    def quantiles(self, uniform: torch.Tensor, space: Space) -> torch.Tensor:
        import torch

        parts = [
            law.quantiles(uniform[:, part], space.alone(index))
            for index, (law, part) in enumerate(zip(self.laws, space.slices, strict=True))
        ]
        return torch.cat(parts, dim=1)

    def params(self, raw: torch.Tensor, space: Space) -> torch.Tensor:
        import torch

        parts = [
            law.params(raw[:, part], space.alone(index))
            for index, (law, part) in enumerate(zip(self.laws, space.slices, strict=True))
        ]
        return torch.cat(parts, dim=1)

    def distance(self, shifts: NDArray[np.float64], space: Space) -> Distance:
        parts = [
            law.distance(shifts[:, part], space.alone(index))
            for index, (law, part) in enumerate(zip(self.laws, space.slices, strict=True))
        ]
        return Distance.of_parts(
            np.stack([part.lost for part in parts], axis=1),
            np.stack([part.length for part in parts], axis=1),
        )

    def radii(self, bound: Bound, space: Space) -> tuple[float, ...]:
        return tuple(law.radii(bound, space.alone(index))[0] for index, law in enumerate(self.laws))
