"""How far a shift moves the noise, and whether a probability bound still certifies it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from deformrs.rounding import array_down, array_up

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Distance:
    """How far shifts move the noise, rounded up. lost, length: [k].

    `lost` is the probability mass that a shift moves off the support of the uniform parameters;
    `length` is the Mahalanobis length of the shift of the Gaussian ones.
    """

    lost: Floats
    length: Floats

    @classmethod
    def of_parts(cls, lost: Floats, length: Floats) -> Distance:
        """Combine independent parts, rounded up. lost: [k, l], length: [k, m].

        1 - Π(1 - u_i) and √Σr_i². No part, or parts that are all zero, give exactly zero, so that
        a law that loses nothing is recognised.
        """
        with np.errstate(divide="ignore"):
            mass = array_up(-np.expm1(_sum(np.log1p(-lost))), relative=2.0**-44)
        norm = array_up(np.sqrt(_sum(np.square(length))), relative=2.0**-44)
        return cls(
            lost=np.where(lost.any(axis=1), np.minimum(mass, 1.0), 0.0),
            length=np.where(length.any(axis=1), norm, 0.0),
        )

    @classmethod
    def joined(cls, parts: Sequence[Distance]) -> Distance:
        """Concatenate several."""
        return cls(
            np.concatenate([part.lost for part in parts]),
            np.concatenate([part.length for part in parts]),
        )

    def outermost(self) -> Distance:
        """Drop those that another one equals or exceeds in both.

        Guarantee: what certifies all of these certifies every one: less lost mass and a shorter
        way never need a larger probability.
        """
        # What is no number is as far as can be.
        lost, length = (np.where(np.isnan(x), np.inf, x) for x in (self.lost, self.length))
        order = np.lexsort((-length, -lost))
        length = length[order]
        before = np.maximum.accumulate(np.concatenate([[-np.inf], length[:-1]]))
        farther = length > before
        return Distance(lost[order][farther], length[farther])

    def within(self, lower: Floats | float, upper: Floats | float) -> NDArray[np.bool_]:
        """Return which shifts a probability bound certifies, or which each of several does:
        [k] for numbers, [m, k] for arrays of [m, 1].

        Guarantee: True only where a candidate of probability p_A >= `lower` stays the most
        probable class, all others being at most p_B <= `upper`.

        Neyman-Pearson for the joint law (docs/theory.md, section 2.4): a class of probability p
        keeps at least L(p) = (1-u) Φ(Φ⁻¹((p-u)/(1-u)) - r), so certified while
        L(p_A) + L(1 - p_B) > 1. For u = 0 or r = 0 that is the closed form used here instead.
        """
        rest = np.maximum(np.nextafter(1 - np.asarray(upper), -np.inf), 0.0)  # 1 - p_B
        return np.where(
            self.length == 0,
            2 * self.lost < array_down(np.subtract(lower, upper)),
            np.where(
                self.lost == 0,
                self.length < gaussian_margin(lower, upper),
                self._kept(lower) + self._kept(rest) > 1 + 1e-14,
            ),
        )

    def _kept(self, p: Floats | float) -> Floats:
        """Return L(p), rounded down at every step: each function is monotone in the one before."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = array_down((p - self.lost) / (1 - self.lost))
            quantile = array_down(ndtri(np.clip(share, 0, 1)))
            kept = array_down((1 - self.lost) * ndtr(array_down(quantile - self.length)))
        return np.where(share > 0, kept, 0.0)


def _sum(values: Floats) -> Floats:
    """Return the sums of rows, accurate to a few dozen units in the last place for any length.

    NumPy adds pairwise along contiguous memory only; otherwise the error grows with the length.
    """
    sums: Floats = np.ascontiguousarray(values).sum(axis=1)
    return sums


def gaussian_margin(lower: Floats | float, upper: Floats | float) -> Floats:
    """Return ½(Φ⁻¹(p_A) - Φ⁻¹(p_B)), rounded down; infinite where the class is certain."""
    with np.errstate(invalid="ignore", over="ignore"):
        margin = (array_down(ndtri(lower)) - array_up(ndtri(upper))) / 2
    certain = np.logical_or(np.equal(lower, 1), np.equal(upper, 0))
    return np.where(certain, np.inf, array_down(margin, relative=2.0**-52))
