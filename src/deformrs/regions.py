"""Sets of transformations, and the shifts of a certificate's parameters that enclose them.

If a certificate covers every enclosing shift, it covers the whole set: docs/theory.md, section 6.
"""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import check_integer, is_real
from deformrs.errors import InputError, UnsupportedError, did_you_mean
from deformrs.rounding import float_down, round_up
from deformrs.space import Space
from deformrs.units import Size, Unit, parse_quantity, shown_size, unit_px

Points = NDArray[np.float64]


class Factor(ABC):
    """One kind of transformation with its range."""

    family: ClassVar[str]
    curved: ClassVar[bool] = False
    """Whether the range is a curve, which takes many corners to enclose."""

    @abstractmethod
    def parameters(self, size: Size, corners: int) -> Points:
        """Return parameters of the family that enclose the range: [k, dim]."""

    @abstractmethod
    def matrices(self, size: Size, corners: int) -> Points:
        """Return 3x3 coordinate maps whose convex hull contains the range: [k, 3, 3]."""


@dataclass(frozen=True)
class Rotate(Factor):
    """Rotations by every angle from `low` to `high`, in radians."""

    family = "rotation"
    curved = True
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range("the angle", self.low, self.high)

    def parameters(self, size: Size, corners: int) -> Points:
        # Coverage shrinks with the angle up to half a turn, so the largest angle stands for all.
        return np.array([[min(_furthest(self.low, self.high), math.pi)]])

    def matrices(self, size: Size, corners: int) -> Points:
        low, high = self.low, min(self.high, self.low + 2 * math.pi)
        cos, sin = _around_arc(low, high, corners).T
        return _matrices(cos, -sin, sin, cos, np.zeros((len(cos), 2)))


@dataclass(frozen=True)
class Scale(Factor):
    """Scalings by every α from `low` to `high`, as in the paper: α > 1 shows the content smaller.

    >>> Scale(0.8, 1.2).shown
    'shown at 84 to 125 % of its size'
    >>> Scale.from_zoom(0.5, 2).shown
    'shown at 50 to 200 % of its size'
    """

    family = "scaling"
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range("the scale", self.low, self.high)
        if self.low <= 0:
            raise InputError("the scale", self.low, "must be positive", "e.g. 0.8 to 1.2")

    @classmethod
    def from_zoom(cls, low: float, high: float) -> Scale:
        """Return the scalings that magnify the content by every factor from `low` to `high`.

        Guarantee: every α = 1/m with m in that range is in the result.
        """
        _check_range("the zoom", low, high)
        if low < 1e-300:  # its inverse is finite
            raise InputError(
                "the zoom", low, "must be positive: 2 shows the content twice as large", "e.g. 0.8"
            )
        # As decimals and as floats: 0.8 is not the float nearest to it.
        least = min(1 / Fraction(high), 1 / Fraction(repr(float(high))))
        most = max(1 / Fraction(low), 1 / Fraction(repr(float(low))))
        return cls(float_down(least), -float_down(-most))

    @property
    def shown(self) -> str:
        """At which sizes the content is shown, in words."""
        # In decimals as they were written: the enclosure reaches beyond the nearest floats.
        return shown_size(Fraction(repr(float(self.low))), Fraction(repr(float(self.high))))

    def parameters(self, size: Size, corners: int) -> Points:
        return np.array([[round_up(_furthest(self.low - 1, self.high - 1))]])

    def matrices(self, size: Size, corners: int) -> Points:
        alpha = np.array([self.low, self.high])
        return _matrices(alpha, 0 * alpha, 0 * alpha, alpha, np.zeros((2, 2)))


@dataclass(frozen=True)
class ShearBy(Factor):
    """Horizontal shears from `low` to `high`, as fractions."""

    family = "shear"
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range("the shear", self.low, self.high)

    def parameters(self, size: Size, corners: int) -> Points:
        return np.array([[_furthest(self.low, self.high)]])

    def matrices(self, size: Size, corners: int) -> Points:
        shear, one = np.array([self.low, self.high]), np.ones(2)
        return _matrices(one, shear, 0 * one, one, np.zeros((2, 2)))


@dataclass(frozen=True)
class Shift(Factor):
    """Shifts of at most a Euclidean length, in units (`length`) or in pixels (`px`)."""

    family = "translation"
    curved = True
    length: float | None = None
    px: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.length, self.px) if value is not None]
        if len(given) != 1 or not (is_real(given[0]) and 0 <= given[0] < 1e9):
            raise InputError(
                "the shift",
                f"length={self.length}, px={self.px}",
                "must be one length of at least 0",
                "e.g. Shift(px=4)",
            )

    def parameters(self, size: Size, corners: int) -> Points:
        return round_up(self._length(size)) * _around_arc(0, 2 * math.pi, corners)

    def matrices(self, size: Size, corners: int) -> Points:
        shifts = self.parameters(size, corners)
        one = np.ones(len(shifts))
        return _matrices(one, 0 * one, 0 * one, one, shifts)

    def _length(self, size: Size) -> float:
        return self.length if self.length is not None else (self.px or 0.0) / unit_px(size)


def _around_arc(low: float, high: float, corners: int) -> Points:
    """Return points whose convex hull contains an arc of the unit circle: [k, 2].

    These are the two ends, and the intersections of tangents at equally spaced points.
    """
    step = (high - low) / corners
    middles = low + step * (np.arange(corners) + 0.5)
    outside = np.stack([np.cos(middles), np.sin(middles)], axis=1) / math.cos(step / 2)
    ends = np.array([[math.cos(low), math.sin(low)], [math.cos(high), math.sin(high)]])
    return np.concatenate([ends[:1], outside, ends[1:]])


def _matrices(a: Points, b: Points, c: Points, d: Points, shifts: Points) -> Points:
    """Return [[a, b, e], [c, d, f], [0, 0, 1]] for arrays of entries."""
    zero, one = np.zeros_like(a), np.ones_like(a)
    rows = [[a, b, shifts[:, 0]], [c, d, shifts[:, 1]], [zero, zero, one]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _furthest(low: float, high: float) -> float:
    return max(abs(low), abs(high))


def _check_range(name: str, low: float, high: float) -> None:
    if not (is_real(low) and is_real(high) and low <= high):
        raise InputError(name, f"{low} to {high}", "must be a finite range", "low before high")


_FAMILIES = {
    "rotation": "rotation",
    "rotate": "rotation",
    "scale": "scaling",
    "scaling": "scaling",
    "zoom": "zoom",
    "shift": "translation",
    "translation": "translation",
    "shear": "shear",
}
_ITEM = re.compile(r"\s*(\w+)\s*(<=|=)\s*([^,]+?)\s*")


def parse_factors(text: str) -> tuple[Factor, ...]:
    """Return the factors of a region, in the order written."""
    if not isinstance(text, str):
        raise InputError("the region", repr(text), "must be text", "e.g. 'rotation<=10deg'")
    return tuple(_factor(item) for item in text.split(","))


def _factor(item: str) -> Factor:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InputError(
            "a part of the region",
            repr(item.strip()),
            "must read name<=limit or name=low..high",
            "e.g. rotation<=10deg or zoom=0.8..1.25",
        )
    name, sign, value = match.groups()
    if name not in _FAMILIES:
        raise InputError(
            "a transformation",
            repr(name),
            "must be one of " + ", ".join(_FAMILIES),
            did_you_mean(name, _FAMILIES),
        )
    ends = value.split("..") if sign == "=" else [value]
    if len(ends) != (2 if sign == "=" else 1):
        raise InputError(
            "a range", repr(value), "must read low..high after '='", "or use <= for a limit"
        )
    return _build(_FAMILIES[name], sign, ends)


def _build(family: str, sign: str, ends: list[str]) -> Factor:
    if family == "translation":
        if sign == "=":
            raise InputError("a shift", "a range", "is limited by its length", "e.g. shift<=4px")
        # Pixels stay pixels until the size of the image is known.
        if ends[0].endswith("px"):
            return Shift(px=parse_quantity(ends[0].removesuffix("px"), Unit.COEFFICIENT))
        return Shift(length=parse_quantity(ends[0], Unit.LENGTH))
    unit = Unit.ANGLE if family == "rotation" else Unit.FRACTION
    values = [parse_quantity(end, unit) for end in ends]
    # A limit is a distance from the identity: 0 for angles and shears, 1 for factors.
    rest = 1.0 if family in ("scaling", "zoom") else 0.0
    low, high = values if sign == "=" else (rest - values[0], rest + values[0])
    match family:
        case "rotation":
            return Rotate(low, high)
        case "scaling":
            return Scale(low, high)
        case "zoom":
            return Scale.from_zoom(low, high)
    return ShearBy(low, high)


# How many numbers are held at once, and processed in all, to enclose a region by shifts.
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
                "requested over several blocks of parameters",
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
    """All compositions of the given factors, in the order in which the image undergoes them.

    `Region(Rotate(-a, a), Scale(0.8, 1.2))` rotates the image, then scales it, like
    `Compose(Rotation(), Scaling())`: the coordinate map is T = T_rotate ∘ T_scale.

    >>> Region.parse("rotation<=10deg, scale=0.8..1.2, shift<=4px").factors[1]
    Scale(low=0.8, high=1.2)
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
        """Read "rotation<=10deg, scale=0.8..1.2, shift<=4px": the image undergoes the first
        named first.

        `scale` is the paper's α, which shows the content smaller if above 1; `zoom` is the
        magnification 1/α of the content: zoom=0.8..1.25 shows it at 80 to 125 % of its size.
        """
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
        """Yield M - 1 for 3x3 maps M that enclose the region, in chunks of [k, 3, 3], each with the
        rounding error of its entries."""
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
        """Yield the region in the parameters of a family, or of a composition in the same order."""
        places: list[int] = []
        for factor in self.factors:
            start = places[-1] + 1 if places else 0
            if factor.family not in families[start:]:
                raise UnsupportedError(
                    "a region of " + ", then ".join(f.family for f in self.factors),
                    "requested of a certificate over " + ", then ".join(families),
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
        """Return the number of corners per curve that keeps the work bounded."""
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
    """A part of the image that is transformed about its own centre, the rest left unchanged.

    `rows` and `cols` are half-open pixel ranges. Only a vector-field certificate can cover it.
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
                check_integer(f"{name} of the patch", end, least=0)

    def shifts(self, space: Space) -> Iterator[Points]:
        families = tuple(block.family for block in space.blocks)
        if families != ("vector_field",):
            raise UnsupportedError(
                "a deformed patch",
                "requested of a certificate over " + ", then ".join(families),
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
        """Return (x, y, 1) of the patch's pixels, about its centre: [p, 3]."""
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
    """Move entries away from zero by their error, which only enlarges the enclosure."""
    return shifts + np.copysign(error, shifts)
