"""Every bound, radius and printed figure rounds to the safe side, and only a little.

The references are exact: rational numbers (`Fraction`) where the formula is rational, arithmetic
of 60 digits elsewhere (mpmath). Each test says how many inputs it generates; together they are
more than 20,000. Nothing here is statistical: the seeds are fixed, and no input is allowed to fail.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.noise.distance import complement_down, gaussian_margin
from deformrs.rounding import (
    array_down,
    array_up,
    format_down,
    format_up,
    percent_down,
    round_down,
    round_up,
)
from deformrs.space import Block, Space
from deformrs.statistics import (
    anytime_lower,
    anytime_upper,
    clopper_pearson_lower,
    clopper_pearson_upper,
    sign_test,
)
from deformrs.statistics.bounds import complement
from deformrs.units import Unit

HP: Any = mpmath.mp.clone()
HP.dps = 60

Floats = NDArray[np.float64]

# ---------------------------------------------------------------- references


def high(value: float | Fraction) -> Any:
    """The same number, to 60 digits."""
    exact = Fraction(value)
    return HP.mpf(exact.numerator) / exact.denominator


def incomplete_beta(a: Fraction, b: Fraction, x: Fraction) -> Any:
    """I_x(a, b) to 50 digits or more: the series with positive terms, DLMF 8.17.8.

    I_x(a, b) = x^a (1-x)^b / (a B(a, b)) Σ_k Π_{j<k} x (a+b+j) / (a+1+j), summed in integers.
    """
    if x > Fraction(1, 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    term = total = 1 << 240
    up, down = Fraction(a + b), Fraction(a + 1)
    scale = math.lcm(up.denominator, down.denominator)
    n, d = int(up * scale), int(down * scale)
    while term > total >> 220:
        term = term * n * x.numerator // (d * x.denominator)
        total += term
        n, d = n + scale, d + scale
    p, q, y = high(a), high(b), high(x)
    log_front = HP.loggamma(p + q) - HP.loggamma(p + 1) - HP.loggamma(q)
    return HP.exp(log_front + p * HP.log(y) + q * HP.log1p(-y)) * total / (1 << 240)


def upper_tail(hits: int, trials: int, p: Fraction) -> Any:
    """P(Bin(trials, p) >= hits)."""
    return incomplete_beta(Fraction(hits), Fraction(trials - hits + 1), p)


def log_e(hits: int, trials: int, p: Fraction) -> Any:
    """log of the truncated beta mixture: ∫_p^1 r^S (1-r)^F dBeta(½,½)(r | r > p) / p^S (1-p)^F."""
    half = Fraction(1, 2)
    a, b = hits + half, trials - hits + half

    def log_mass(a: Fraction, b: Fraction) -> Any:
        beta = HP.loggamma(high(a)) + HP.loggamma(high(b)) - HP.loggamma(high(a + b))
        return beta + HP.log(1 - incomplete_beta(a, b, p))

    likelihood = hits * HP.log(high(p)) + (trials - hits) * HP.log1p(-high(p))
    return log_mass(a, b) - log_mass(half, half) - likelihood


@functools.lru_cache(maxsize=4096)
def quantile(p: Fraction) -> Any:
    """Φ⁻¹(p)."""
    return HP.sqrt(2) * HP.erfinv(high(2 * p - 1))


def circle(length: Fraction, period: Fraction | None) -> Fraction:
    """|length|, on a circle the shorter way round."""
    if period is None:
        return abs(length)
    return min(abs(length) % period, period - abs(length) % period)


Periods = tuple[Fraction | None, ...]


def lost(shift: Floats, scale: Floats, periods: Periods) -> Fraction:
    """u(ξ) = 1 - Π (1 - min(|ξ_i|, 2λ_i, P_i - 2λ_i) / 2λ_i), exactly."""
    kept = Fraction(1)
    for xi, lam, period in zip(shift.tolist(), scale.tolist(), periods, strict=True):
        width = 2 * Fraction(lam)
        reach = width if period is None else min(width, period - width)
        kept *= 1 - min(circle(Fraction(xi), period), reach) / width
    return 1 - kept


def length_squared(shift: Floats, scale: Floats, periods: Periods) -> Fraction:
    """r(ξ)² = Σ (ξ_i / σ_i)², exactly."""
    return sum(
        (
            (circle(Fraction(xi), period) / Fraction(sigma)) ** 2
            for xi, sigma, period in zip(shift.tolist(), scale.tolist(), periods, strict=True)
        ),
        Fraction(0),
    )


def kept(p: Fraction, u: Fraction, r: Any) -> Any:
    """L(p) = (1-u) Φ(Φ⁻¹((p-u)/(1-u)) - r), and 0 where p <= u."""
    if p <= u:
        return HP.mpf(0)
    return high(1 - u) * HP.ncdf(quantile((p - u) / (1 - u)) - r)


def certified(u: Fraction, r_squared: Fraction, bound: Bound) -> bool:
    """The exact inequality of DESIGN.md, section 4, for p_A and p_B as given."""
    above, below = Fraction(bound.lower), Fraction(bound.upper)
    if above <= below:
        return False
    if r_squared == 0:
        return above - below > 2 * u
    r = HP.sqrt(high(r_squared))
    if u == 0:
        return bool(r < (quantile(above) - quantile(below)) / 2)
    return bool(kept(above, u, r) + kept(1 - below, u, r) > 1)


def test_the_reference_agrees_with_mpmath_itself() -> None:
    """20 inputs: the series above against mpmath's own incomplete beta function."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = (Fraction(int(k), 2) for k in rng.integers(1, 200, size=2))
        x = Fraction(float(rng.uniform(0.01, 0.99)))
        theirs = HP.betainc(high(a), high(b), 0, high(x), regularized=True)
        assert abs(incomplete_beta(a, b, x) - theirs) < HP.mpf(10) ** -45


# ---------------------------------------------------------------- bounds on probabilities

ALPHAS = st.floats(math.log(1e-6), math.log(0.4)).map(math.exp)


@st.composite
def tallies(draw: st.DrawFn) -> tuple[int, int]:
    """(hits, trials): trials spread over six orders of magnitude, hits often near an end.

    Exactly 1000 is where the inverse beta function that SciPy takes from Boost changes methods.
    """
    trials = round(10 ** draw(st.floats(0, 6)))
    some = st.floats(0, 6).map(lambda exponent: round(10**exponent) - 1)
    few = min(trials, draw(some | st.sampled_from([998, 999, 1000, 1001])))
    return draw(st.sampled_from([few, trials - few])), trials


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(tallies(), ALPHAS)
@example((1_000_000, 1_000_000), 1e-6)
@example((1, 1_000_000), 0.4)
@example((1000, 703_722), 0.00017865569728922772)
@example((151_984, 152_983), 0.00014482891571133345)
@example((634_025, 635_024), 0.00010101599746783948)
@example((174_556, 175_555), 0.0007293832933016499)
def test_guarantee_clopper_pearson_lower_never_exceeds_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """1,000 inputs. The tail at the result is at most alpha; a part in 1e9 higher it is more."""
    hits, trials = tally
    lower = Fraction(clopper_pearson_lower(hits, trials, alpha))
    if hits == 0:
        assert lower == 0
        return
    assert upper_tail(hits, trials, lower) <= high(alpha)
    assert upper_tail(hits, trials, min(Fraction(1), lower * (1 + Fraction(1, 10**9)))) > alpha


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(tallies(), ALPHAS)
@example((0, 1_000_000), 1e-6)
@example((999_999, 1_000_000), 0.4)
@example((1, 1_000_000), math.exp(-1))
@example((999, 230_900), 2.192612974885905e-05)
@example((999, 82_133), 3.2460959691235624e-05)
@example((999, 43_196), 0.17311384969458557)
def test_guarantee_clopper_pearson_upper_never_falls_below_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """1,000 inputs. P(Bin <= hits) at the result is at most alpha; a part in 1e9 lower, more."""
    hits, trials = tally
    upper = Fraction(clopper_pearson_upper(hits, trials, alpha))
    assert upper <= 1
    if hits == trials:
        assert upper == 1
        return
    if upper < 1:
        assert 1 - upper_tail(hits + 1, trials, upper) <= high(alpha)
    assert 1 - upper_tail(hits + 1, trials, upper * (1 - Fraction(1, 10**9))) > alpha


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(tallies())
@example((1_000_000, 1_000_000))
@example((9, 1075))
def test_guarantee_sign_test_never_falls_below_the_exact_p_value(tally: tuple[int, int]) -> None:
    """1,000 inputs of up to 1e6 answers, tails down to 1e-300000."""
    first, total = tally
    p_value = sign_test(first, total - first)
    exact = min(HP.mpf(1), 2 * upper_tail(max(first, total - first), total, Fraction(1, 2)))
    # The reference itself is good to 50 digits. Nobody asks for less than 1e-290.
    assert high(p_value) >= exact * (1 - HP.mpf(10) ** -40)
    assert high(p_value) <= exact * (1 + HP.mpf(10) ** -9) + 2 * HP.mpf(10) ** -290


@settings(deadline=None, derandomize=True, max_examples=500)
@given(tallies(), ALPHAS)
@example((1_000_000, 1_000_000), 1e-6)
@example((1, 1_000_000), 0.4)
def test_guarantee_anytime_lower_never_exceeds_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """500 inputs. The evidence against the result is at least 1/alpha; 1e-6 higher it is less."""
    hits, trials = tally
    lower = Fraction(anytime_lower(hits, trials, alpha))
    if hits == 0:
        assert lower == 0
        return
    assert 0 < lower < Fraction(hits, trials)
    assert log_e(hits, trials, lower) >= -HP.log(high(alpha))
    higher = lower + Fraction(1, 10**6)
    assert higher >= Fraction(hits, trials) or log_e(hits, trials, higher) < -HP.log(high(alpha))


@settings(deadline=None, derandomize=True, max_examples=500)
@given(tallies(), ALPHAS)
def test_guarantee_anytime_upper_never_falls_below_the_exact_bound(
    tally: tuple[int, int], alpha: float
) -> None:
    """500 inputs: it is the lower bound of the misses, complemented upwards."""
    hits, trials = tally
    exact = 1 - Fraction(anytime_lower(trials - hits, trials, alpha))
    assert exact <= Fraction(anytime_upper(hits, trials, alpha)) <= exact + Fraction(1, 2**52)


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(st.floats(0, 1))
def test_complements_round_in_the_direction_of_their_names(p: float) -> None:
    """1,000 inputs."""
    exact = 1 - Fraction(p)
    assert exact <= Fraction(complement(p)) <= exact + Fraction(1, 2**52)
    assert exact - Fraction(1, 2**52) <= Fraction(complement_down(p)) <= exact


# ---------------------------------------------------------------- distances, covers, radii

TURN = 2 * math.pi
# The circle of DESIGN.md, to 50 digits; the package writes its circumference as a double.
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
        return Bound(lower, complement(lower))
    if style == 1:
        lower = float(1 - 10 ** rng.uniform(-9, -0.31))
        return Bound(lower, complement(lower))
    lower = float(rng.uniform(0.02, 0.999))
    return Bound(lower, float(rng.uniform(0, min(lower, 1 - lower))))


def plain_bound(rng: np.random.Generator) -> Bound:
    """Neither a near tie nor near certainty: where the rounding must also cost next to nothing."""
    while True:
        lower = float(rng.uniform(0.05, 0.999))
        upper = complement(lower) if rng.random() < 0.5 else float(rng.uniform(0.002, lower))
        if lower - upper > 1e-3 and lower + upper <= 1:
            return Bound(lower, upper)


def farthest(case: Case, directions: Floats, bound: Bound) -> Floats:
    """The last covered and the first uncovered multiple of each direction: neighbouring floats."""
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
    """1,200 shifts a law, of sizes from 1e-12 to 100 scales; within a part in 1e12 of exact."""
    rng = np.random.default_rng(1)
    for _ in range(300):
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
    """2,400 shifts a law: at the very last covered float in 300 random directions, and around it
    at relative offsets of 1e-15 to 1e-9 to either side."""
    rng = np.random.default_rng(3)
    accepted = 0
    for _ in range(100):
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
    assert accepted > 900


@pytest.mark.parametrize("kind", KINDS)
def test_covers_gives_away_less_than_a_part_in_a_billion(kind: str) -> None:
    """300 directions a law: covered up to t, and at t (1 + 1e-9) the exact inequality fails."""
    rng = np.random.default_rng(4)
    checked = 0
    for _ in range(100):
        case, bound = Case(rng, kind), plain_bound(rng)
        directions = np.stack([case.direction(rng) for _ in range(3)])
        edges = farthest(case, directions, bound)
        uncovered = case.law.covers(edges[:, 1, None] * directions, bound, case.space)
        for (edge, _), direction, everywhere in zip(edges, directions, uncovered, strict=True):
            if not everywhere:
                checked += 1
                assert case.certified(edge * direction, bound)
                assert not case.certified(edge * (1 + 1e-9) * direction, bound)
    assert checked > 200


def test_within_is_never_true_without_a_decision() -> None:
    """1,500 bounds with p_A <= p_B, equal ones among them: not even a shift of zero is covered."""
    rng = np.random.default_rng(5)
    for _ in range(500):
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
    """3 * 1,200 angles of up to three turns, λ up to π, with p_A - p_B beside the angle's own
    threshold |ξ|/λ or the circle's (2π - 2λ)/λ."""
    rng = np.random.default_rng(6)
    space = rotation()
    accepted = refused = everywhere = 0
    for _ in range(1200):
        lam = float(rng.choice([rng.uniform(0.05, widest), rng.uniform(2, widest), widest]))
        angle = float(rng.uniform(0, math.pi))
        threshold = min(angle, 2 * lam, TURN - 2 * lam) / lam
        margin = around(float(rng.choice([threshold, (TURN - 2 * lam) / lam])), rng)
        lower = min(1 - 1e-12, 0.5 + margin / 2)
        bound = Bound(lower, complement(lower))
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
    assert min(accepted, refused, everywhere) > 100


def exact_radius(case: Case, index: int, bound: Bound) -> Any:
    """The largest radius of one block, the others at rest."""
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
    """500 certificates a law, one radius a block; where the bound is not extreme they are within
    a part in 1e9 of exact."""
    rng = np.random.default_rng(7)
    for number in range(500):
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
    """More than 1,500 shifts a law: all axes of every block, and random directions."""
    rng = np.random.default_rng(8)
    checked = 0
    for _ in range(200):
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
    assert checked > 1500


def test_gaussian_margin_rounds_down() -> None:
    """600 bounds, near ties and near certainty among them."""
    rng = np.random.default_rng(9)
    for _ in range(600):
        bound = random_bound(rng)
        exact = (quantile(Fraction(bound.lower)) - quantile(Fraction(bound.upper))) / 2
        assert high(gaussian_margin(bound)) <= exact
        assert high(gaussian_margin(bound)) >= exact - HP.mpf(10) ** -12


# ---------------------------------------------------------------- single numbers and print

FINITE = st.floats(-1e15, 1e15)


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(st.floats(-1e300, 1e300), st.sampled_from([2.0**-40, 2.0**-47, 2.0**-52, 1e-9, 0.1]))
def test_guarantee_round_down_and_round_up_leave_the_stated_margin(
    value: float, relative: float
) -> None:
    """1,000 inputs, zero and denormals among them."""
    exact, margin = Fraction(value), abs(Fraction(value)) * Fraction(relative)
    spare = margin / 10**6 + abs(exact) / 2**51 + Fraction(1, 2**1073)
    down, up = Fraction(round_down(value, relative)), Fraction(round_up(value, relative))
    assert exact - margin - spare <= down <= exact - margin
    assert exact + margin <= up <= exact + margin + spare
    assert array_down(np.array([value]), relative)[0] == round_down(value, relative)
    assert array_up(np.array([value]), relative)[0] == round_up(value, relative)


def test_arrays_round_in_the_direction_of_their_names_at_infinity() -> None:
    ends = np.array([-np.inf, np.inf])
    assert array_down(ends)[0] == -np.inf
    assert array_down(ends)[1] > 1e300
    assert array_up(ends)[0] < -1e300
    assert array_up(ends)[1] == np.inf


NUMBERS = st.one_of(FINITE, st.fractions(-(10**9), 10**9))


@settings(deadline=None, derandomize=True, max_examples=2000)
@given(NUMBERS, st.integers(0, 9))
@example(0.3, 1)
@example(-0.001, 2)
def test_format_down_and_format_up_are_exact(value: float | Fraction, decimals: int) -> None:
    """2,000 floats and fractions: the nearest printable number on the safe side."""
    exact, step = Fraction(value), Fraction(1, 10**decimals)
    down, up = format_down(value, decimals), format_up(value, decimals)
    assert exact - step < Fraction(down) <= exact <= Fraction(up) < exact + step
    for text in (down, up):
        assert len(text.partition(".")[2]) == decimals
        assert "E" not in text


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(st.integers(1, 10**7), st.data())
def test_percent_down_is_exact(whole: int, data: st.DataObject) -> None:
    """1,000 inputs. 100.0 is printed only for all of them."""
    part = data.draw(st.integers(0, whole) | st.just(whole - 1))
    decimals = data.draw(st.integers(0, 4))
    exact, step = Fraction(100 * part, whole), Fraction(1, 10**decimals)
    text = percent_down(part, whole, decimals)
    assert exact - step < Fraction(text) <= exact
    assert (Fraction(text) == 100) == (part == whole)


def shown_unit(unit: Unit, size: tuple[int, int]) -> tuple[Any, str, int]:
    """One unit inside the package in the unit shown, how that is written, and extra decimals."""
    match unit:
        case Unit.ANGLE:
            return 180 / HP.pi, "°", 0
        case Unit.LENGTH:
            return HP.mpf(min(size)) / 2, " px", 0
        case Unit.FRACTION:
            return HP.mpf(100), " %", 0
        case Unit.COEFFICIENT:
            return HP.mpf(1), "", 2


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(
    st.sampled_from(Unit),
    st.floats(0, 1000) | st.integers(0, 1800).map(lambda k: math.radians(k / 10)),
    st.tuples(st.integers(1, 600), st.integers(1, 600)),
    st.integers(0, 6),
)
@example(Unit.ANGLE, math.pi, (28, 28), 2)
def test_units_are_shown_rounded_down(
    unit: Unit, value: float, size: tuple[int, int], decimals: int
) -> None:
    """1,000 figures, whole tenths of degrees (which no double hits) among them."""
    factor, suffix, extra = shown_unit(unit, size)
    text = unit.show_down(value, size, decimals)
    assert text.endswith(suffix)
    shown, exact = HP.mpf(text.removesuffix(suffix)), high(value) * factor
    assert exact - HP.mpf(10) ** -(decimals + extra) < shown <= exact
