"""Every distance, coverage and radius rounds to the safe side, and only a little.

The references are exact (tests/exact.py). Nothing here is statistical: the seeds are fixed, no
input is allowed to fail, and each test says how many it generates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deformrs.certificate import Bound
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.noise.distance import Distance, gaussian_margin
from deformrs.rounding import complement_up
from deformrs.space import Block, Space
from deformrs.units import Unit
from exact import (
    HP,
    Floats,
    Periods,
    certified,
    circle,
    high,
    kept,
    length_squared,
    lost,
    quantile,
)

TURN = 2 * math.pi
# The true circle, to 50 digits; the package writes its circumference as a double.
TRUE_TURN = Fraction(int(HP.floor(2 * HP.pi * HP.mpf(10) ** 50)), 10**50)


def rotation() -> Space:
    return Space((Block("rotation", 1, Unit.ANGLE, TURN),), (28, 28))


def random_space(rng: np.random.Generator) -> Space:
    """One to three blocks of one to three parameters, angles among them."""
    blocks = []
    for _ in range(rng.integers(1, 4)):
        if rng.random() < 0.3:
            blocks.append(Block("rotation", 1, Unit.ANGLE, TURN))
        else:
            blocks.append(Block("translation", int(rng.integers(1, 4)), Unit.LENGTH))
    return Space(tuple(blocks), (28, 28))


def periods_of(space: Space) -> Periods:
    return tuple(
        Fraction(b.period) if b.period is not None else None
        for b in space.blocks
        for _ in range(b.dim)
    )


def random_scale(rng: np.random.Generator, dim: int) -> tuple[float, ...]:
    """Scales over two orders of magnitude, none above π."""
    return tuple(float(s) for s in 10 ** rng.uniform(-1.5, math.log10(math.pi), size=dim))


class Case:
    """A law on a space, and its exact distances."""

    def __init__(self, rng: np.random.Generator, kind: str) -> None:
        self.space = random_space(rng)
        scale = random_scale(rng, self.space.dim)
        self.law: NoiseLaw
        self.uniform = np.zeros(self.space.dim, dtype=bool)
        if kind == "uniform":
            self.law = Uniform(scale)
            self.uniform[:] = True
        elif kind == "gaussian":
            self.law = Gaussian(scale)
        else:
            laws: list[Uniform | Gaussian] = []
            for part in self.space.slices:
                self.uniform[part] = rng.random() < 0.5
                laws.append(
                    Uniform(scale[part]) if self.uniform[part].all() else Gaussian(scale[part])
                )
            self.law = Independent(*laws)
        self.scale = np.asarray(scale)
        self.periods = periods_of(self.space)
        self.law.check(self.space)

    def lost(self, shift: Floats) -> Fraction:
        chosen = [p for p, uniform in zip(self.periods, self.uniform, strict=True) if uniform]
        return lost(shift[self.uniform], self.scale[self.uniform], tuple(chosen))

    def length_squared(self, shift: Floats) -> Fraction:
        normal = ~self.uniform
        chosen = [p for p, other in zip(self.periods, normal, strict=True) if other]
        return length_squared(shift[normal], self.scale[normal], tuple(chosen))

    def certified(self, shift: Floats, bound: Bound) -> bool:
        return certified(self.lost(shift), self.length_squared(shift), bound)

    def direction(self, rng: np.random.Generator) -> Floats:
        """Components of very different sizes, some of them zero, in units of the scales."""
        size = self.space.dim
        signs = rng.choice([-1.0, 1.0], size=size) * (rng.random(size) < 0.8)
        vector = signs * 10 ** rng.uniform(-6, 0, size=size) * self.scale
        if not vector.any():
            vector[0] = self.scale[0]
        return np.asarray(vector)


def random_bound(rng: np.random.Generator) -> Bound:
    """p_A from a near tie up to 1 - 1e-9; p_B = 1 - p_A, or of its own (with p_A below ½, too)."""
    style = rng.integers(4)
    if style == 0:
        lower = float(0.5 + 10 ** rng.uniform(-12, -0.31))
        return Bound(lower, complement_up(lower))
    if style == 1:
        lower = float(1 - 10 ** rng.uniform(-9, -0.31))
        return Bound(lower, complement_up(lower))
    lower = float(rng.uniform(0.02, 0.999))
    return Bound(lower, float(rng.uniform(0, min(lower, 1 - lower))))


def plain_bound(rng: np.random.Generator) -> Bound:
    """Neither a near tie nor near certainty: where the rounding must also cost next to nothing."""
    while True:
        lower = float(rng.uniform(0.05, 0.999))
        upper = complement_up(lower) if rng.random() < 0.5 else float(rng.uniform(0.002, lower))
        if lower - upper > 1e-3 and lower + upper <= 1:
            return Bound(lower, upper)


def farthest(case: Case, directions: Floats, bound: Bound) -> Floats:
    """Return the last covered and first uncovered multiple of each direction, adjacent floats."""
    covered = np.zeros(len(directions))
    beyond = np.full(len(directions), 4.0) / np.abs(directions / case.scale).max(axis=1)
    for _ in range(1100):
        middle = (covered + beyond) / 2
        inside = case.law.covers(middle[:, None] * directions, bound, case.space)
        moving = (covered < middle) & (middle < beyond)
        if not moving.any():
            break
        covered = np.where(moving & inside, middle, covered)
        beyond = np.where(moving & ~inside, middle, beyond)
    return np.stack([covered, beyond], axis=1)


KINDS = ["uniform", "gaussian", "independent"]


@pytest.mark.parametrize("kind", KINDS)
def test_distances_never_fall_below_the_exact_ones(kind: str) -> None:
    """480 shifts a law, of sizes from 1e-12 to 100 scales; within a part in 1e12 of exact."""
    rng = np.random.default_rng(1)
    for _ in range(120):
        case = Case(rng, kind)
        size = (4, case.space.dim)
        shifts = rng.normal(size=size) * 10 ** rng.uniform(-12, 2, size=size) * case.scale
        shifts[3] *= rng.random(case.space.dim) < 0.5
        found = case.law.distance(shifts, case.space)
        for shift, u, r in zip(shifts, found.lost.tolist(), found.length.tolist(), strict=True):
            exact_u, exact_r2 = case.lost(shift), case.length_squared(shift)
            assert exact_u <= Fraction(u) <= 1
            assert exact_r2 <= Fraction(r) ** 2
            if np.abs(shift).max() < math.pi:
                assert Fraction(u) <= exact_u * (1 + Fraction(1, 10**12))
                assert Fraction(r) ** 2 <= exact_r2 * (1 + Fraction(1, 10**12))


def test_guarantee_space_lengths_are_never_below_the_shortest_way_round() -> None:
    """2,000 angles of up to a thousand turns and a few at exact multiples of half a turn, against
    the circle of circumference 2 * math.pi and the true one."""
    rng = np.random.default_rng(2)
    angles = rng.normal(size=2000) * 10 ** rng.uniform(-3, 3.8, size=2000)
    special = [k * math.pi * (1 + s * 2.0**-52) for k in range(-5, 6) for s in (-2, -1, 0, 1, 2)]
    angles = np.concatenate([angles, special])
    found = rotation().lengths(angles[:, None])[:, 0]
    for angle, length in zip(angles.tolist(), found.tolist(), strict=True):
        assert circle(Fraction(angle), Fraction(TURN)) <= Fraction(length) <= Fraction(TURN) / 2
        true = min(circle(Fraction(angle), TRUE_TURN), Fraction(TURN) / 2)
        assert true <= Fraction(length) <= true + Fraction(1, 10**15) * (1 + abs(int(angle)) * 4)


@pytest.mark.parametrize("kind", KINDS)
def test_guarantee_within_is_true_only_where_the_exact_inequality_holds(kind: str) -> None:
    """960 shifts a law: at the very last covered float in 120 random directions, and around it
    at relative offsets of 1e-15 to 1e-9 to either side."""
    rng = np.random.default_rng(3)
    accepted = 0
    for _ in range(40):
        case, bound = Case(rng, kind), random_bound(rng)
        directions = np.stack([case.direction(rng) for _ in range(3)])
        edges = farthest(case, directions, bound)[:, 0]
        offsets = np.array([0.0, *(s * 10.0**-k for k in (15, 13, 9) for s in (-1, 1)), 0.3])
        shifts = edges[:, None, None] * (1 + offsets)[None, :, None] * directions[:, None, :]
        flat = shifts.reshape(-1, case.space.dim)
        covered = case.law.covers(flat, bound, case.space)
        for shift in flat[covered]:
            accepted += 1
            assert case.certified(shift, bound)
    assert accepted > 360


@pytest.mark.parametrize("kind", KINDS)
def test_covers_gives_away_less_than_a_part_in_a_billion(kind: str) -> None:
    """120 directions a law: covered up to t, and at t (1 + 1e-9) the exact inequality fails."""
    rng = np.random.default_rng(4)
    checked = 0
    for _ in range(40):
        case, bound = Case(rng, kind), plain_bound(rng)
        directions = np.stack([case.direction(rng) for _ in range(3)])
        edges = farthest(case, directions, bound)
        uncovered = case.law.covers(edges[:, 1, None] * directions, bound, case.space)
        for (edge, _), direction, everywhere in zip(edges, directions, uncovered, strict=True):
            if not everywhere:
                checked += 1
                assert case.certified(edge * direction, bound)
                assert not case.certified(edge * (1 + 1e-9) * direction, bound)
    assert checked > 80


def test_within_is_never_true_without_a_decision() -> None:
    """450 bounds with p_A <= p_B, equal ones among them: not even a shift of zero is covered."""
    rng = np.random.default_rng(5)
    for _ in range(150):
        upper = float(rng.uniform(0, 1))
        bound = Bound(upper * float(rng.choice([1.0, 1 - 1e-15, rng.random()])), upper)
        for kind in KINDS:
            case = Case(rng, kind)
            shifts = np.stack([np.zeros(case.space.dim), 1e-9 * case.scale])
            assert not case.law.covers(shifts, bound, case.space).any()


def around(threshold: float, rng: np.random.Generator) -> float:
    """A number beside a threshold, at a relative distance of 1e-15 to 1e-9."""
    return threshold * (1 + float(rng.choice([-1, 0, 1])) * 10 ** float(rng.uniform(-15, -9)))


@pytest.mark.parametrize(
    ("circumference", "widest"),
    [(Fraction(TURN), math.pi), (TRUE_TURN, 3.1)],
    ids=["double", "true"],
)
def test_angles_are_covered_only_where_the_exact_inequality_holds(
    circumference: Fraction, widest: float
) -> None:
    """3 * 400 angles of up to three turns, λ up to π, with p_A - p_B beside the angle's own
    threshold |ξ|/λ or the circle's (2π - 2λ)/λ."""
    rng = np.random.default_rng(6)
    space = rotation()
    accepted = refused = everywhere = 0
    for _ in range(400):
        lam = float(rng.choice([rng.uniform(0.05, widest), rng.uniform(2, widest), widest]))
        angle = float(rng.uniform(0, math.pi))
        threshold = min(angle, 2 * lam, TURN - 2 * lam) / lam
        margin = around(float(rng.choice([threshold, (TURN - 2 * lam) / lam])), rng)
        lower = min(1 - 1e-12, 0.5 + margin / 2)
        bound = Bound(lower, complement_up(lower))
        law = Uniform(lam)
        shifts = np.array([[angle], [-angle], [angle + int(rng.integers(-3, 4)) * TURN]])
        scale = np.array([lam])
        for shift, covered in zip(shifts, law.covers(shifts, bound, space), strict=True):
            exact = certified(lost(shift, scale, (circumference,)), Fraction(0), bound)
            assert exact or not covered
            accepted, refused = accepted + bool(covered), refused + (not covered)
        (radius,) = law.radii(bound, space)
        reach = min(2 * Fraction(lam), circumference - 2 * Fraction(lam))
        gap = Fraction(bound.lower) - Fraction(bound.upper)
        if radius == math.pi:
            everywhere += 1
            assert gap > reach / Fraction(lam) or gap * Fraction(lam) >= Fraction(math.pi)
        else:
            assert Fraction(radius) <= max(Fraction(0), gap * Fraction(lam))
    assert min(accepted, refused, everywhere) > 33


def exact_radius(case: Case, index: int, bound: Bound) -> Any:
    """Return the largest radius of one block, the others at rest."""
    part, block = case.space.slices[index], case.space.blocks[index]
    smallest = Fraction(min(case.scale[part].tolist()))
    gap = Fraction(bound.lower) - Fraction(bound.upper)
    cap = high(Fraction(block.period) / 2) if block.period is not None else HP.inf
    if not case.uniform[part].all():
        margin = (quantile(Fraction(bound.lower)) - quantile(Fraction(bound.upper))) / 2
        return min(high(smallest) * margin, cap)
    if block.period is not None and 2 * (Fraction(block.period) / 2 - smallest) < gap * smallest:
        return cap
    return min(high(smallest * gap), cap)


@pytest.mark.parametrize("kind", KINDS)
def test_radii_never_exceed_the_exact_ones(kind: str) -> None:
    """200 certificates a law, one radius a block; where the bound is not extreme they are within
    a part in 1e9 of exact."""
    rng = np.random.default_rng(7)
    for number in range(200):
        plain = number % 2 == 0
        case, bound = Case(rng, kind), (plain_bound if plain else random_bound)(rng)
        radii = case.law.radii(bound, case.space)
        assert len(radii) == len(case.space.blocks)
        for index, radius in enumerate(radii):
            exact = exact_radius(case, index, bound)
            assert radius >= 0
            assert high(radius) <= max(HP.mpf(0), exact)
            if plain:
                assert high(radius) >= exact * (1 - HP.mpf(10) ** -9)


def on_the_sphere(
    rng: np.random.Generator, dim: int, norm: int, radius: float
) -> Iterator[tuple[Floats, bool]]:
    """Shifts of exactly that norm on every axis, and random ones of at most that norm."""
    for axis in range(dim):
        for sign in (-1, 1):
            yield np.eye(dim)[axis] * sign * radius, True
    for _ in range(4):
        vector = rng.normal(size=dim) * 10 ** rng.uniform(-3, 0, size=dim)
        vector *= radius / np.linalg.norm(vector, ord=norm)
        exact = sum(abs(Fraction(x)) ** norm for x in vector.tolist())
        yield vector, exact <= Fraction(radius) ** norm


@pytest.mark.parametrize("kind", KINDS)
def test_guarantee_radii_every_shift_of_that_norm_is_covered(kind: str) -> None:
    """More than 750 shifts a law: all axes of every block, and random directions."""
    rng = np.random.default_rng(8)
    checked = 0
    for _ in range(100):
        case, bound = Case(rng, kind), random_bound(rng)
        radii = case.law.radii(bound, case.space)
        for index, (radius, part) in enumerate(zip(radii, case.space.slices, strict=True)):
            if radius == 0:
                continue
            width, norm = part.stop - part.start, case.law.norm(index)
            inside = [s for s, within in on_the_sphere(rng, width, norm, radius) if within]
            shifts = np.zeros((len(inside), case.space.dim))
            shifts[:, part] = inside
            checked += len(shifts)
            assert case.law.covers(shifts, bound, case.space).all()
    assert checked > 750


def test_gaussian_margin_rounds_down() -> None:
    """200 bounds, near ties and near certainty among them."""
    rng = np.random.default_rng(9)
    for _ in range(200):
        bound = random_bound(rng)
        exact = (quantile(Fraction(bound.lower)) - quantile(Fraction(bound.upper))) / 2
        # Both quantiles are rounded by 2**-47 of their size, far more than SciPy's error.
        sizes = abs(quantile(Fraction(bound.lower))) + abs(quantile(Fraction(bound.upper)))
        assert high(float(gaussian_margin(bound.lower, bound.upper))) <= exact - sizes / 2**49
        assert high(float(gaussian_margin(bound.lower, bound.upper))) >= exact - HP.mpf(10) ** -12
    assert gaussian_margin(1.0, 0.2) == gaussian_margin(0.8, 0.0) == math.inf
    assert max(gaussian_margin(0.0, 0.2), gaussian_margin(0.8, 1.0)) < 0
    lowers, uppers = np.array([1.0, 0.8, 0.0]), np.array([0.2, 0.1, 0.2])
    each = [gaussian_margin(p, q) for p, q in zip(lowers.tolist(), uppers.tolist(), strict=True)]
    assert gaussian_margin(lowers, uppers).tolist() == each


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_distances_of_parts_are_rounded_up(count: int) -> None:
    """50 rows: more than the error of the sums, less than a part in 10**12."""
    rng = np.random.default_rng(count)
    parts = 10 ** rng.uniform(-6, -0.01, size=(50, count)) / count
    found = Distance.of_parts(parts, parts)
    for row, lost_mass, length in zip(parts, found.lost, found.length, strict=True):
        kept_mass = math.prod(1 - Fraction(u) for u in row.tolist())
        norm = HP.sqrt(high(sum(Fraction(r) ** 2 for r in row.tolist())))
        for value, exact in ((lost_mass, high(1 - kept_mass)), (length, norm)):
            assert (
                exact * (1 + HP.mpf(2) ** -46)
                <= high(float(value))
                <= exact * (1 + HP.mpf(10) ** -12)
            )
    still = Distance.of_parts(np.zeros((1, count)), np.zeros((1, count)))
    assert (still.lost[0], still.length[0]) == (0, 0)


def test_what_a_class_keeps_is_rounded_down() -> None:
    """300 distances: L(p) less at least 2**-48 of it, and less than a part in 10**10 below."""
    rng = np.random.default_rng(10)
    for _ in range(300):
        u, r = float(rng.uniform(0, 0.9)), float(rng.uniform(0, 3))
        p = float(rng.uniform(u + 0.02, 1))
        found = Distance(np.array([u]), np.array([r]))._kept(p)[0]
        exact = kept(Fraction(p), Fraction(u), high(r))
        assert (
            exact * (1 - HP.mpf(10) ** -10) <= high(float(found)) <= exact * (1 - HP.mpf(2) ** -48)
        )
    for p, u in ((0.3, 0.3), (0.2, 0.3), (0.0, 0.0)):
        assert Distance(np.array([u]), np.array([0.5]))._kept(p)[0] == 0
