"""The ranges a region is made of: angles, zooms, shears and shifts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import is_real
from deformrs.errors import InputError
from deformrs.rounding import round_up
from deformrs.units import Size, unit_px

Points = NDArray[np.float64]


class Factor(ABC):
    """One kind of transformation with its range."""

    family: ClassVar[str]
    curved: ClassVar[bool] = False
    """Is the range a curve, which takes many corners to enclose?"""

    @abstractmethod
    def parameters(self, size: Size, corners: int) -> Points:
        """Parameters of the family itself that enclose the range: [k, dim]."""

    @abstractmethod
    def matrices(self, size: Size, corners: int) -> Points:
        """3x3 coordinate maps whose convex hull contains the range: [k, 3, 3]."""


@dataclass(frozen=True)
class Rotate(Factor):
    """Every angle from `low` to `high`, in radians."""

    family = "rotation"
    curved = True
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range("the angle", self.low, self.high)

    def parameters(self, size: Size, corners: int) -> Points:
        # Coverage shrinks with the angle up to half a turn, so the furthest angle stands for all.
        return np.array([[min(_furthest(self.low, self.high), math.pi)]])

    def matrices(self, size: Size, corners: int) -> Points:
        low, high = self.low, min(self.high, self.low + 2 * math.pi)
        cos, sin = _around_arc(low, high, corners).T
        return _matrices(cos, -sin, sin, cos, np.zeros((len(cos), 2)))


@dataclass(frozen=True)
class Zoom(Factor):
    """Every factor α from `low` to `high`; 1 leaves the picture as it is."""

    family = "scaling"
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range("the zoom", self.low, self.high)
        if self.low <= 0:
            raise InputError("the zoom", self.low, "must be positive", "e.g. 0.8 to 1.2")

    def parameters(self, size: Size, corners: int) -> Points:
        return np.array([[round_up(_furthest(self.low - 1, self.high - 1))]])

    def matrices(self, size: Size, corners: int) -> Points:
        alpha = np.array([self.low, self.high])
        return _matrices(alpha, 0 * alpha, 0 * alpha, alpha, np.zeros((2, 2)))


@dataclass(frozen=True)
class ShearBy(Factor):
    """Every horizontal shear from `low` to `high`, as a fraction."""

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
    """Every shift of at most that Euclidean length: in units (`length`) or in pixels (`px`)."""

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
    """Corners of a polygon whose convex hull contains the arc of the unit circle: [k, 2].

    The two ends, and where the tangents at equally spaced points of the arc meet.
    """
    step = (high - low) / corners
    middles = low + step * (np.arange(corners) + 0.5)
    outside = np.stack([np.cos(middles), np.sin(middles)], axis=1) / math.cos(step / 2)
    ends = np.array([[math.cos(low), math.sin(low)], [math.cos(high), math.sin(high)]])
    return np.concatenate([ends[:1], outside, ends[1:]])


def _matrices(a: Points, b: Points, c: Points, d: Points, shifts: Points) -> Points:
    """[[a, b, e], [c, d, f], [0, 0, 1]] for arrays of entries."""
    zero, one = np.zeros_like(a), np.ones_like(a)
    rows = [[a, b, shifts[:, 0]], [c, d, shifts[:, 1]], [zero, zero, one]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _furthest(low: float, high: float) -> float:
    return max(abs(low), abs(high))


def _check_range(name: str, low: float, high: float) -> None:
    if not (is_real(low) and is_real(high) and low <= high):
        raise InputError(name, f"{low} to {high}", "must be a finite range", "low before high")
