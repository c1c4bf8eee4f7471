"""Straight lines through what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    """y = start + slope * x by least squares. `furthest` is the largest |y - line| / |y|."""

    slope: float
    start: float
    furthest: float

    def at(self, x: float) -> float:
        return self.start + self.slope * x


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """The line through points, of which there are at least two.

    >>> fit_line([1, 2, 3], [5, 7, 9])
    Line(slope=2.0, start=3.0, furthest=0.0)
    """
    x, y = np.asarray(xs, dtype=np.float64), np.asarray(ys, dtype=np.float64)
    around = x - x.mean()
    slope = float((around * y).sum() / (around * around).sum())
    start = float(y.mean() - slope * x.mean())
    off = [abs(b - start - slope * a) / max(abs(b), 1e-300) for a, b in zip(x, y, strict=True)]
    return Line(slope, start, float(max(off)))


def fit_power(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """log y against log x: the slope is the exponent.

    >>> round(fit_power([1, 2, 4], [3, 12, 48]).slope, 6)
    2.0
    """
    return fit_line([math.log(x) for x in xs], [math.log(y) for y in ys])
