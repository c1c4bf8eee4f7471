"""How far a shift moves the noise, and whether a probability bound still certifies it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from deformrs.certificate import Bound
from deformrs.rounding import array_down, array_up, complement_down, round_down


@final
@dataclass(frozen=True)
class Distance:
    """How far shifts move the noise, rounded up. lost, length: [k].

    `lost` is the probability mass that a shift moves off the support of the uniform parameters;
    `length` is the Mahalanobis length of the shift of the Gaussian ones.
    """

    lost: NDArray[np.float64]
    length: NDArray[np.float64]

    @classmethod
    def of_parts(cls, lost: NDArray[np.float64], length: NDArray[np.float64]) -> Distance:
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
        """Return L(p), rounded down at every step: each function is monotone in the one before."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = array_down((p - self.lost) / (1 - self.lost))
            quantile = array_down(ndtri(np.clip(share, 0, 1)))
            kept = array_down((1 - self.lost) * ndtr(array_down(quantile - self.length)))
        return np.where(share > 0, kept, 0.0)


def _sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of rows, accurate to a few dozen units in the last place for any length.

    NumPy adds pairwise along contiguous memory only; otherwise the error grows with the length.
    """
    sums: NDArray[np.float64] = np.ascontiguousarray(values).sum(axis=1)
    return sums


def gaussian_margin(bound: Bound) -> float:
    """Return ½(Φ⁻¹(p_A) - Φ⁻¹(p_B)), rounded down; infinite where the class is certain."""
    if bound.lower == 1 or bound.upper == 0:
        return math.inf
    return round_down(
        float(array_down(ndtri(bound.lower)) - array_up(ndtri(bound.upper))) / 2, relative=2.0**-52
    )
