"""Sets of transformations, and the shifts of a certificate's parameters that enclose them.

If a certificate covers every enclosing shift, it covers the whole set: docs/theory.md, section 5.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deformrs.checks import check_whole
from deformrs.errors import InputError, UnsupportedError
from deformrs.regions.factors import Factor, Points
from deformrs.regions.text import parse_factors
from deformrs.rounding import round_up
from deformrs.space import Space
from deformrs.units import Size, unit_px

# Numbers held at once, and worked through in all, when a region is enclosed by shifts.
_CHUNK = 2**22
_BUDGET = 2**25
_MOST_SHIFTS = 2**17
_MOST_CORNERS = 512

# Times the product of the matrices' norms: above the error of multiplying a dozen 3x3 matrices,
# whose own entries are good to a few units in the last place.
_MATRIX_ERROR = 1e-14


class Enclosed(ABC):
    """A set of transformations that can be enclosed by shifts of a certificate's parameters."""

    @abstractmethod
    def shifts(self, space: Space) -> Iterator[Points]:
        """Guarantee: a law's certificate that covers all of these shifts covers the whole set.

        Chunks of [k, d].
        """

    def radius_needed(self, space: Space, norm: int = 2) -> float:
        """Guarantee: not below the largest norm of any shift in the set.

        A certificate over `space` with one radius in that norm covers the set if its radius is at
        least this.
        """
        if len(space.blocks) != 1:
            raise UnsupportedError(
                "the radius needed",
                "asked over several blocks of parameters",
                "is one number only for one block",
                "use certificate.covers_region(region)",
            )
        if norm not in (1, 2):
            raise InputError("norm", norm, "must be 1 (uniform) or 2 (Gaussian)", "choose one")
        largest = max(
            float(np.linalg.norm(chunk, ord=norm, axis=1).max()) for chunk in self.shifts(space)
        )
        return round_up(largest)


@dataclass(frozen=True, init=False)
class Region(Enclosed):
    """All compositions of the given factors, in the order in which the picture undergoes them.

    `Region(Rotate(-a, a), Zoom(0.8, 1.2))` rotates the picture, then zooms it, like
    `Compose(Rotation(), Scaling())`: the coordinate map is T = T_rotate ∘ T_zoom.

    >>> Region.parse("rotation<=10deg, scale=0.8..1.2, shift<=4px").factors[1]
    Zoom(low=0.8, high=1.2)
    """

    factors: tuple[Factor, ...]

    def __init__(self, *factors: Factor) -> None:
        if not factors or not all(isinstance(factor, Factor) for factor in factors):
            raise InputError(
                "a region", f"{factors}", "must be made of factors", "e.g. Rotate(-0.1, 0.1)"
            )
        object.__setattr__(self, "factors", tuple(factors))

    @classmethod
    def parse(cls, text: str) -> Region:
        """Read "rotation<=10deg, scale=0.8..1.2, shift<=4px": the picture undergoes the first
        named first."""
        return cls(*parse_factors(text))

    def shifts(self, space: Space) -> Iterator[Points]:
        families = tuple(block.family for block in space.blocks)
        if families == ("affine",):
            for maps, error in self.maps(space):
                yield _outwards(maps[:, :2].reshape(-1, 6)[:, [0, 1, 3, 4, 2, 5]], error)
        elif families == ("vector_field",):
            yield from Patch(self, (0, space.size[0]), (0, space.size[1])).shifts(space)
        else:
            yield from self._own_parameters(space, families)

    def maps(self, space: Space) -> Iterator[tuple[Points, float]]:
        """M - 1 for 3x3 maps M that enclose the region, chunks of [k, 3, 3], and the error that
        rounding may have left in any entry."""
        corners = self._corners(space)
        sets = [factor.matrices(space.size, corners) for factor in self.factors]
        error = _MATRIX_ERROR * math.prod(
            float(np.linalg.norm(matrices, axis=(1, 2)).max()) for matrices in sets
        )
        for first in sets[0]:
            product = first[None]
            for matrices in sets[1:]:
                product = (product[:, None] @ matrices[None]).reshape(-1, 3, 3)
            yield product - np.eye(3), error

    def _own_parameters(self, space: Space, families: tuple[str, ...]) -> Iterator[Points]:
        """The region in the parameters of a family, or of a composition in the same order."""
        places: list[int] = []
        for factor in self.factors:
            start = places[-1] + 1 if places else 0
            if factor.family not in families[start:]:
                raise UnsupportedError(
                    "a region of " + ", then ".join(f.family for f in self.factors),
                    "asked of a certificate over " + ", then ".join(families),
                    "must use its families, in its order",
                    "certify an Affine deformation or a Compose in the region's order",
                )
            places.append(families.index(factor.family, start))
        corners = self._corners(space)
        sets = [factor.parameters(space.size, corners) for factor in self.factors]
        for combination in itertools.product(*sets[:-1]):
            rows = np.zeros((len(sets[-1]), space.dim))
            for place, values in zip(places, (*combination, sets[-1]), strict=True):
                rows[:, space.slices[place]] = values
            yield rows

    def _corners(self, space: Space) -> int:
        """How finely curves can be enclosed so that the work stays bounded."""
        curves = sum(factor.curved for factor in self.factors)
        straight = 2 ** (len(self.factors) - curves)
        if straight * 6**curves > _MOST_SHIFTS:
            raise InputError(
                "a region",
                f"of {len(self.factors)} factors",
                "has too many corners to enclose",
                "merge factors of the same kind",
            )
        affordable = min(_MOST_SHIFTS, _BUDGET // max(space.dim, 1)) / straight
        return int(np.clip(affordable ** (1 / max(curves, 1)) - 2, 6, _MOST_CORNERS))


@dataclass(frozen=True)
class Patch(Enclosed):
    """A part of the picture transformed about its own centre, the rest left alone.

    `rows` and `cols` are half-open pixel ranges. Only a vector-field certificate speaks of it.
    """

    region: Region
    rows: tuple[int, int]
    cols: tuple[int, int]

    def __post_init__(self) -> None:
        if not isinstance(self.region, Region):
            raise InputError(
                "the region of a patch", repr(self.region), "must be a Region", "Region.parse(...)"
            )
        for name, ends in (("rows", self.rows), ("cols", self.cols)):
            if not (isinstance(ends, tuple) and len(ends) == 2):
                raise InputError(
                    f"{name} of the patch", ends, "must be (first, end)", "e.g. (4, 12)"
                )
            for end in ends:
                check_whole(f"{name} of the patch", end, least=0)

    def shifts(self, space: Space) -> Iterator[Points]:
        families = tuple(block.family for block in space.blocks)
        if families != ("vector_field",):
            raise UnsupportedError(
                "a deformed patch",
                "asked of a certificate over " + ", then ".join(families),
                "can be certified by a vector field only",
                "certify VectorField()",
            )
        points = self._points(space.size)
        inside = np.zeros(space.size, dtype=bool)
        inside[slice(*self.rows), slice(*self.cols)] = True
        step = max(1, _CHUNK // space.dim)
        reach = float(np.abs(points).sum(axis=1).max())
        for maps, error in self.region.maps(space):
            for start in range(0, len(maps), step):
                few = maps[start : start + step, :2]
                fields = np.zeros((len(few), *space.size, 2))
                moved = np.einsum("kvc,pc->kpv", few, points)
                fields[:, inside] = _outwards(moved, 2 * error * reach)
                yield fields.reshape(len(few), -1)

    def _points(self, size: Size) -> Points:
        """(x, y, 1) of the pixels inside, about the centre of the patch: [p, 3]."""
        ranges = (("rows", self.rows, size[0]), ("cols", self.cols, size[1]))
        for name, (low, high), length in ranges:
            if not 0 <= low < high <= length:
                raise InputError(
                    f"{name} of the patch",
                    (low, high),
                    f"must be a range of pixels within [0, {length}]",
                    f"e.g. (0, {length})",
                )
        unit = unit_px(size)
        y = (np.arange(*self.rows) + 0.5 - sum(self.rows) / 2) / unit
        x = (np.arange(*self.cols) + 0.5 - sum(self.cols) / 2) / unit
        grid = np.stack(np.meshgrid(x, y, indexing="xy"), axis=-1).reshape(-1, 2)
        return np.concatenate([grid, np.ones((len(grid), 1))], axis=1)


def _outwards(shifts: Points, error: float) -> Points:
    """Entries moved away from zero by as much as they can be wrong, which covers no less."""
    return shifts + np.copysign(error, shifts)
