"""Noise laws against brute force: overlaps counted, the worst classifier built cell by cell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from spaces import ANGLE, PLACE, TURN, ZOOM, decided, space_of

from deformrs.certificate import Bound
from deformrs.noise import Gaussian, Independent, Uniform

Floats = NDArray[np.float64]


def unit_cells(n: int) -> Floats:
    """Midpoints of n cells of [-1, 1]."""
    return np.asarray((np.arange(n) + 0.5) / n * 2 - 1)


@pytest.mark.parametrize("scale", [0.2, 1.0, (0.2, 0.7)])
def test_guarantee_uniform_loses_what_a_shift_moves_off_the_box(
    scale: float | tuple[float, ...],
) -> None:
    """60 shifts in the plane, the lost mass counted on 800 x 800 cells."""
    rng = np.random.default_rng(0)
    space = space_of(PLACE)
    scales = np.broadcast_to(scale, 2)
    for shift in rng.uniform(-2.4, 2.4, size=(60, 2)) * scales:
        stays = [
            np.abs(unit_cells(800) * lam - xi) <= lam for lam, xi in zip(scales, shift, strict=True)
        ]
        counted = 1 - np.outer(*stays).mean()
        found = Uniform(scale).distance(shift[None], space)
        assert found.lost[0] == pytest.approx(counted, abs=3e-3)
        assert found.length[0] == 0


@pytest.mark.parametrize("lam", [0.05, 0.7, math.pi / 2, 2.0, 2.8, 3.1, math.pi])
def test_guarantee_uniform_loses_what_a_turn_moves_off_the_arc(lam: float) -> None:
    """81 angles over four turns, the lost mass counted on 20,000 cells of the arc."""
    cells = unit_cells(20_000) * lam
    for angle in np.linspace(-2 * TURN, 2 * TURN, 81):
        wrapped = np.remainder(cells - angle + math.pi, TURN) - math.pi
        counted = 1 - (np.abs(wrapped) <= lam * (1 + 1e-12)).mean()
        found = Uniform(lam).distance(np.array([[angle]]), space_of(ANGLE))
        assert found.lost[0] == pytest.approx(counted, abs=2e-4)


@pytest.mark.parametrize("lam", [0.3, 1.0])
def test_lost_mass_agrees_with_random_draws_in_five_dimensions(lam: float) -> None:
    """20 shifts, 40,000 draws each; a share misses by 6 deviations (0.015) once in 5e8."""
    rng = np.random.default_rng(1)
    space = space_of(PLACE, ZOOM, PLACE)
    for shift in rng.uniform(-0.8, 0.8, size=(20, 5)) * lam:
        draws = rng.uniform(-lam, lam, size=(40_000, 5))
        counted = (np.abs(draws - shift) > lam).any(axis=1).mean()
        assert Uniform(lam).distance(shift[None], space).lost[0] == pytest.approx(
            counted, abs=0.015
        )


def test_gaussian_length_is_the_mahalanobis_length() -> None:
    # (3 * 0.1 / 0.1, 4 * 0.2 / 0.2) has length 5.
    found = Gaussian((0.1, 0.2)).distance(np.array([[0.3, -0.8], [0, 0]]), space_of(PLACE))
    assert found.length == pytest.approx([5.0, 0.0], rel=1e-12)
    assert not found.lost.any()


def test_gaussian_turns_take_the_shorter_way_round() -> None:
    turns = np.array([[TURN - 0.1], [0.1], [-3 * TURN + 0.1]])
    found = Gaussian(0.5).distance(turns, space_of(ANGLE))
    assert found.length == pytest.approx([0.2, 0.2, 0.2], rel=1e-12)


def uniform_cells(lam: float, shift: float, period: float | None) -> tuple[Floats, Floats]:
    """Masses of cells of the line or circle before and after the shift, cut where either jumps."""
    ends = np.array([-lam, lam, shift - lam, shift + lam])
    low, high = (min(ends), max(ends)) if period is None else (-period / 2, period / 2)
    if period is not None:
        ends = np.remainder(ends + period / 2, period) - period / 2
    edges = np.unique(np.concatenate([np.linspace(low, high, 30), ends]))
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)

    def density(x: Floats) -> Floats:
        if period is not None:
            x = np.remainder(x + period / 2, period) - period / 2
        return np.asarray((np.abs(x) < lam) / (2 * lam))

    return density(middles) * widths, density(middles - shift) * widths


def normal_cells(sigma: float, shift: float) -> tuple[Floats, Floats]:
    edges = np.linspace(-9 * sigma, 9 * sigma + abs(shift), 1500)
    before, after = norm.cdf(edges, 0, sigma), norm.cdf(edges, abs(shift), sigma)
    return np.diff(before), np.diff(after)


def least_kept(p: float, before: Floats, after: Floats) -> float:
    """Least mass after the shift of any set of mass p before it: take the cells in the order of
    their likelihood ratio (Neyman-Pearson)."""
    order = np.argsort(after / before)
    filled = np.cumsum(before[order])
    share = np.clip((p - (filled - before[order])) / before[order], 0, 1)
    return float((share * after[order]).sum())


CASES = [(period, seed) for period in (None, TURN) for seed in range(4)]


@pytest.mark.parametrize(("period", "seed"), CASES)
def test_guarantee_independent_certifies_what_the_worst_classifier_cannot_break(
    period: float | None, seed: int
) -> None:
    """8 * 25 shifts of one uniform and one Gaussian parameter, p_B explicit in half of them. The
    two classes' worst cases are built on 45,000 cells, which is good to 1e-3; the shift is covered
    exactly if the first class keeps more than the second can reach."""
    rng = np.random.default_rng(seed)
    space = space_of(ANGLE if period else ZOOM, PLACE)
    sure = {True: 0, False: 0}
    for _ in range(25):
        lam, sigma = float(rng.uniform(0.3, math.pi)), float(rng.uniform(0.1, 1))
        xi, eta = float(rng.uniform(-0.8, 0.8) * lam), float(rng.uniform(-1.2, 1.2) * sigma)
        lower = float(rng.uniform(0.4, 0.99))
        upper = 1 - lower if lower > 0.5 and rng.random() < 0.5 else rng.uniform(0, 1 - lower)
        first = uniform_cells(lam, xi, period)
        second = normal_cells(sigma, eta)
        before, after = (np.outer(a, b).ravel() for a, b in zip(first, second, strict=True))
        before, after = before[before > 0], after[before > 0]
        balance = least_kept(lower, before, after) + least_kept(1 - upper, before, after) - 1
        law = Independent(Uniform(lam), Gaussian(sigma))
        # The Gaussian block has two parameters, of which one rests.
        shift = np.array([[xi, eta, 0.0]])
        covered = bool(law.covers(shift, Bound(lower, float(upper)), space)[0])
        if abs(balance) > 1e-3:
            assert covered == (balance > 0)
            sure[covered] += 1
    assert min(sure.values()) >= 3


@pytest.mark.parametrize("period", [None, TURN])
def test_uniform_certifies_what_the_worst_classifier_cannot_break(period: float | None) -> None:
    """200 shifts of one parameter, p_B explicit; all of the far side of the circle among them."""
    rng = np.random.default_rng(2)
    space = space_of(ANGLE if period else ZOOM)
    sure = {True: 0, False: 0}
    for _ in range(200):
        lam, xi = float(rng.uniform(0.3, math.pi)), float(rng.uniform(-math.pi, math.pi))
        lower = float(rng.uniform(0.3, 1))
        upper = float(rng.uniform(0, min(lower, 1 - lower)))
        before, after = uniform_cells(lam, xi, period)
        before, after = before[before > 0], after[before > 0]
        balance = least_kept(lower, before, after) + least_kept(1 - upper, before, after) - 1
        covered = bool(Uniform(lam).covers(np.array([[xi]]), Bound(lower, upper), space)[0])
        # 1e-9: a class that may keep nothing decides nothing, whatever the rounding of the cells.
        if abs(balance) > 1e-9:
            assert covered == (balance > 0)
            sure[covered] += 1
    assert min(sure.values()) >= 30


def test_gaussian_certifies_what_the_worst_classifier_cannot_break() -> None:
    """200 shifts of one parameter, p_B explicit; the cells are good to 1e-4."""
    rng = np.random.default_rng(3)
    sure = {True: 0, False: 0}
    for _ in range(200):
        sigma, eta = float(rng.uniform(0.1, 1)), float(rng.uniform(-2, 2))
        lower = float(rng.uniform(0.3, 1))
        upper = float(rng.uniform(0, min(lower, 1 - lower)))
        before, after = normal_cells(sigma, eta * sigma)
        before, after = before[before > 0], after[before > 0]
        balance = least_kept(lower, before, after) + least_kept(1 - upper, before, after) - 1
        shift, bound = np.array([[eta * sigma]]), Bound(lower, upper)
        covered = bool(Gaussian(sigma).covers(shift, bound, space_of(ZOOM))[0])
        if abs(balance) > 1e-4:
            assert covered == (balance > 0)
            sure[covered] += 1
    assert min(sure.values()) >= 30


def test_guarantee_gaussian_and_independent_agree_with_their_formulas() -> None:
    """200 shifts, p_B = 1 - p_A: √Σ(ξ/σ)² < Φ⁻¹(p_A); (1-u) Φ(Φ⁻¹((p_A-u)/(1-u)) - r) > ½."""
    rng = np.random.default_rng(4)
    space = space_of(ZOOM, PLACE)
    for _ in range(200):
        p = float(rng.uniform(0.5, 0.999))
        shift = rng.uniform(-1, 1, size=3)
        u, r = abs(shift[0]) / 2, math.hypot(*shift[1:] / 0.8)
        normal = Gaussian(0.8).covers(shift[None, 1:], decided(p), space_of(PLACE))
        assert normal[0] == (r < norm.ppf(p))
        mixed = Independent(Uniform(1.0), Gaussian(0.8)).covers(shift[None], decided(p), space)
        kept = (1 - u) * norm.cdf(norm.ppf((p - u) / (1 - u)) - r) if p > u else 0.0
        assert mixed[0] == (kept > 0.5)
