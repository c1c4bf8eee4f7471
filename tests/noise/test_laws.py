"""What each law certifies, against brute force: overlaps counted on grids, and the worst possible
classifier built cell by cell. Checks that hold for any law run over the registry."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from deformrs.certificate import Bound, Counts
from deformrs.errors import InputError
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.space import Block, Space
from deformrs.statistics.bounds import complement
from deformrs.units import Unit

Floats = NDArray[np.float64]

TURN = 2 * math.pi
ANGLE = Block("rotation", 1, Unit.ANGLE, TURN)
ZOOM = Block("scaling", 1, Unit.FRACTION)
PLACE = Block("translation", 2, Unit.LENGTH)


def space_of(*blocks: Block) -> Space:
    return Space(blocks, (28, 28))


def decided(lower: float) -> Bound:
    """p_B = 1 - p_A."""
    return Bound(lower, complement(lower))


BARELY = decided(math.nextafter(0.5, 1))

# ---------------------------------------------------------------- overlaps, counted


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


# ---------------------------------------------------------------- the worst classifier, built


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


# ---------------------------------------------------------------- angles


@pytest.mark.parametrize("bound", [BARELY, decided(0.6), Bound(0.2, 0.19), decided(0.999)])
def test_noise_on_the_whole_circle_certifies_every_angle(bound: Bound) -> None:
    law, space = Uniform(math.pi), space_of(ANGLE)
    angles = np.linspace(-3 * TURN, 3 * TURN, 1001)[:, None]
    assert law.covers(angles, bound, space).all()
    assert law.radii(bound, space) == (math.pi,)


def test_noise_on_the_whole_circle_still_abstains_without_a_decision() -> None:
    law, space = Uniform(math.pi), space_of(ANGLE)
    for bound in (Bound(0.5, 0.5), Bound(0.3, 0.7)):
        assert not law.covers(np.zeros((1, 1)), bound, space).any()
        assert law.radii(bound, space) == (0.0,)


@pytest.mark.parametrize("lam", [2.2, 2.6, 3.0, 3.14])
def test_below_the_whole_circle_every_angle_needs_the_wrap_around_threshold(lam: float) -> None:
    """p_A - p_B > (2π - 2λ)/λ certifies every angle; a little less, only λ(p_A - p_B)."""
    law, space = Uniform(lam), space_of(ANGLE)
    threshold = (TURN - 2 * lam) / lam
    angles = np.linspace(-math.pi, math.pi, 1001)[:, None]
    above, below = (decided(0.5 + threshold / 2 * factor) for factor in (1 + 1e-9, 1 - 1e-9))
    assert law.covers(angles, above, space).all()
    assert law.radii(above, space) == (math.pi,)
    assert not law.covers(np.array([[math.pi]]), below, space).any()
    assert law.radii(below, space)[0] == pytest.approx(lam * threshold, rel=1e-8)


def test_narrow_arcs_never_certify_the_far_side() -> None:
    """Up to λ = 2π/3 the threshold (2π - 2λ)/λ is at least 1, which no p_A - p_B exceeds."""
    for lam in np.linspace(0.05, TURN / 3, 20).tolist():
        (radius,) = Uniform(lam).radii(decided(1 - 1e-12), space_of(ANGLE))
        assert radius == pytest.approx(lam, rel=1e-9)


def test_a_gaussian_radius_stops_at_half_a_turn() -> None:
    law, space = Gaussian(2.0), space_of(ANGLE)
    assert law.radii(decided(0.99), space) == (math.pi,)
    assert law.covers(np.linspace(-20, 20, 101)[:, None], decided(0.99), space).all()
    # Φ⁻¹(0.9) = 1.2816: 2.563 rad is less than half a turn.
    assert law.radii(decided(0.9), space)[0] == pytest.approx(2 * 1.2815515655446, rel=1e-11)


# ---------------------------------------------------------------- radii


def test_textbook_radii() -> None:
    # Uniform: λ(p_A - p_B). Gaussian: σ/2 (Φ⁻¹(p_A) - Φ⁻¹(p_B)), with Φ(1) = 0.8413447460685429
    # and Φ(-1) = 1 - Φ(1).
    line = space_of(ZOOM)
    assert Uniform(0.5).radii(decided(0.9), line)[0] == pytest.approx(0.4, rel=1e-11)
    assert Uniform(0.5).radii(Bound(0.45, 0.2), line)[0] == pytest.approx(0.125, rel=1e-11)
    one = 0.8413447460685429
    assert Gaussian(0.5).radii(decided(one), line)[0] == pytest.approx(0.5, rel=1e-11)
    assert Gaussian(0.5).radii(Bound(0.5, 1 - one), line)[0] == pytest.approx(0.25, rel=1e-11)


def test_an_explicit_runner_up_certifies_below_one_half() -> None:
    bound, line = Bound(0.4, 0.1), space_of(ZOOM)
    expected = {Uniform(1.0): 0.3, Gaussian(1.0): (norm.ppf(0.4) - norm.ppf(0.1)) / 2}
    for law, radius in expected.items():
        assert law.radii(bound, line)[0] == pytest.approx(radius, rel=1e-11)
        inside, outside = np.array([[radius * 0.999]]), np.array([[radius * 1.001]])
        assert law.covers(inside, bound, line).all()
        assert not law.covers(outside, bound, line).any()


def test_the_uniform_set_contains_the_papers_ball_and_is_larger_off_the_axes() -> None:
    """p_A - p_B = 0.8, λ = 1: |ξ|₁ < 0.8. At (0.42, 0.42), 2u = 2 (1 - 0.79²) = 0.7518."""
    law, space, bound = Uniform(1.0), space_of(PLACE), decided(0.9)
    corner = np.array([[0.42, 0.42], [0.42, -0.42]])
    assert law.covers(corner, bound, space).all()
    assert not law.covers(np.array([[0.84, 0.0]]), bound, space).any()
    rng = np.random.default_rng(5)
    shares = rng.dirichlet([0.3, 0.3], size=500) * rng.choice([-1, 1], size=(500, 2))
    assert law.covers(0.8 * (1 - 1e-9) * shares, bound, space).all()


def test_the_smallest_scale_of_each_block_sets_its_radius() -> None:
    space, bound = space_of(PLACE, ZOOM), decided(0.9)
    assert Uniform((0.4, 0.2, 0.1)).radii(bound, space) == pytest.approx((0.16, 0.08))
    z = norm.ppf(0.9)
    assert Gaussian((0.4, 0.2, 0.1)).radii(bound, space) == pytest.approx((0.2 * z, 0.1 * z))


@pytest.mark.parametrize(
    "law", [Uniform(0.7), Uniform((0.7, 0.3)), Gaussian(0.7), Gaussian((1, 2))]
)
@pytest.mark.parametrize("bound", [BARELY, decided(0.8), Bound(0.4, 0.1)])
def test_independent_with_a_single_law_is_that_law(law: Uniform | Gaussian, bound: Bound) -> None:
    space, alone = space_of(PLACE), Independent(law)
    shifts = np.random.default_rng(6).normal(size=(300, 2)) * np.geomspace(1e-3, 1, 300)[:, None]
    assert (alone.covers(shifts, bound, space) == law.covers(shifts, bound, space)).all()
    assert alone.radii(bound, space) == law.radii(bound, space)


def test_independent_has_the_radius_of_each_law_on_its_own_block() -> None:
    space, bound = space_of(ANGLE, PLACE, ZOOM), decided(0.8)
    laws = (Uniform(3.1), Gaussian((0.1, 0.2)), Uniform(0.5))
    found = Independent(*laws)
    assert found.radii(bound, space) == tuple(
        law.radii(bound, space.alone(index))[0] for index, law in enumerate(laws)
    )
    assert [found.norm(index) for index in range(3)] == [1, 2, 1]
    assert found.radii(bound, space)[0] == math.pi


def test_independent_blocks_share_one_budget() -> None:
    """Each block alone up to its radius is covered; all of them at once are not."""
    space, bound = space_of(ZOOM, PLACE), decided(0.8)
    law = Independent(Uniform(0.5), Gaussian(0.1))
    first, second = law.radii(bound, space)
    alone = np.array([[first, 0, 0], [0, second, 0], [0, 0, -second]])
    assert law.covers(alone, bound, space).all()
    assert not law.covers(np.array([[first, second, 0]]), bound, space).any()
    assert law.covers(np.array([[first / 3, second / 3, 0]]), bound, space).all()


def test_a_full_circle_leaves_the_whole_budget_to_the_other_blocks() -> None:
    space, bound = space_of(ANGLE, PLACE), decided(0.8)
    law = Independent(Uniform(math.pi), Gaussian(0.1))
    radius = law.radii(bound, space)[1]
    assert law.covers(np.array([[3.0, radius, 0.0]]), bound, space).all()
    assert not law.covers(np.array([[0.0, radius * (1 + 1e-9), 0.0]]), bound, space).any()


# ---------------------------------------------------------------- every registered law

LAWS = sorted(NoiseLaw.registry.items())
SPACES = [
    space_of(*blocks)
    for count in (1, 2)
    for blocks in itertools.product([ZOOM, PLACE, ANGLE], repeat=count)
]


def examples() -> list[NoiseLaw]:
    return [law for _, kind in LAWS for law in cast(type[NoiseLaw], kind).examples()]


def homes(law: NoiseLaw) -> list[Space]:
    """The spaces that this law can be put on."""

    def fits(space: Space) -> bool:
        try:
            law.check(space)
        except InputError:
            return False
        return True

    return [space for space in SPACES if fits(space)]


every_law = pytest.mark.parametrize("law", examples(), ids=repr)


@pytest.mark.parametrize(("name", "kind"), LAWS)
def test_every_law_has_a_name_and_examples(name: str, kind: type) -> None:
    law = cast(type[NoiseLaw], kind)
    assert law.name == name
    assert law.examples(), f"{law.__qualname__} gives no examples to test it on"
    assert all(type(example) is law and homes(example) for example in law.examples())


def test_the_known_laws_are_registered() -> None:
    assert {"uniform": Uniform, "gaussian": Gaussian, "independent": Independent}.items() <= (
        NoiseLaw.registry.items()
    )


@every_law
def test_configuration_round_trips_through_json(law: NoiseLaw) -> None:
    text = json.dumps(law.to_config(), allow_nan=False)
    assert NoiseLaw.from_config(json.loads(text)) == law


@pytest.mark.parametrize(
    "law", [Uniform((0.1, 0.2)), Independent(Gaussian((0.1, 0.2)), Uniform(1))]
)
def test_a_scale_for_each_parameter_round_trips_too(law: NoiseLaw) -> None:
    back = NoiseLaw.from_config(json.loads(json.dumps(law.to_config())))
    assert back == law
    assert hash(back) == hash(law)
    assert repr(back) == repr(law)


@every_law
def test_prints_as_it_is_written(law: NoiseLaw) -> None:
    names = {kind.__name__: kind for _, kind in LAWS}
    assert eval(repr(law), names) == law


@every_law
def test_is_immutable_and_hashable(law: NoiseLaw) -> None:
    field = dataclasses.fields(law)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(law, field, 1.0)
    assert hash(law) == hash(NoiseLaw.from_config(law.to_config()))


@every_law
def test_rests_at_zero_and_decides_nothing_without_a_decision(law: NoiseLaw) -> None:
    for space in homes(law):
        still = np.zeros((1, space.dim))
        assert law.distance(still, space).lost == law.distance(still, space).length == 0
        assert law.covers(still, BARELY, space).all()
        assert not law.covers(still, Bound(0.5, 0.5), space).any()
        assert law.radii(Bound(0.5, 0.5), space) == (0.0,) * len(space.blocks)


@every_law
def test_is_symmetric_and_grows_with_the_bound(law: NoiseLaw) -> None:
    rng = np.random.default_rng(7)
    for space in homes(law):
        shifts = rng.normal(size=(200, space.dim)) * 10 ** rng.uniform(-3, 0.5, size=(200, 1))
        before = np.zeros(200, dtype=bool)
        radii = (0.0,) * len(space.blocks)
        for bound in (BARELY, decided(0.6), Bound(0.6, 0.3), decided(0.9), decided(0.999)):
            now = law.covers(shifts, bound, space)
            assert (now == law.covers(-shifts, bound, space)).all()
            assert (now | ~before).all()
            grown = law.radii(bound, space)
            assert all(a <= b for a, b in zip(radii, grown, strict=True))
            before, radii = now, grown


@every_law
def test_guarantee_radii_are_the_largest_that_covers_allows(law: NoiseLaw) -> None:
    """Along some axis a part in 1e9 more is not covered, unless the radius is half a turn."""
    for space, bound in itertools.product(homes(law), [decided(0.7), Bound(0.4, 0.2)]):
        radii = law.radii(bound, space)
        for index, (block, part, radius) in enumerate(
            zip(space.blocks, space.slices, radii, strict=True)
        ):
            assert law.norm(index) in (1, 2)
            axes = np.eye(space.dim)[part]
            assert law.covers(radius * axes, bound, space).all()
            if block.period is None or radius < block.period / 2:
                assert not law.covers(radius * (1 + 1e-9) * axes, bound, space).all()


@every_law
def test_periodic_parameters_repeat(law: NoiseLaw) -> None:
    rng = np.random.default_rng(8)
    for space in (space for space in homes(law) if np.isfinite(space.periods).any()):
        shifts = rng.normal(size=(100, space.dim))
        turns = np.where(np.isfinite(space.periods), TURN, 0.0) * rng.integers(-2, 3, (100, 1))
        here, there = (law.distance(array, space) for array in (shifts, shifts + turns))
        assert there.lost == pytest.approx(here.lost, abs=1e-13)
        assert there.length == pytest.approx(here.length, abs=1e-12)


@every_law
def test_certify_gives_a_certificate_that_its_own_covers_agrees_with(law: NoiseLaw) -> None:
    rng = np.random.default_rng(9)
    for space in homes(law):
        sure = law.certify(Counts((10, 0), (990, 10)), space, 0.001)
        assert sure.prediction == 0
        assert sure.radii == law.radii(sure.bound, space)
        assert sure.covers([0.0] * space.dim)
        for shift in rng.normal(size=(20, space.dim)):
            assert sure.covers(shift) == law.covers(shift[None], sure.bound, space)[0]
        unsure = law.certify(Counts((10, 0), (510, 490)), space, 0.001)
        assert unsure.prediction is None
        assert unsure.radii == (0.0,) * len(space.blocks)
        assert not unsure.covers([0.0] * space.dim)


# ---------------------------------------------------------------- what is refused


def refusal(caught: pytest.ExceptionInfo[InputError]) -> str:
    """The message, which must give name, value, rule and remedy."""
    error = caught.value
    for part in (error.name, str(error.value), error.rule, error.remedy):
        assert part
        assert part in str(error)
    return str(error)


@pytest.mark.parametrize("kind", [Uniform, Gaussian])
@pytest.mark.parametrize(
    "scale", [0, 0.0, -0.1, math.nan, math.inf, -math.inf, (), (0.1, 0.0), (0.1, math.nan), "0.1"]
)
def test_scales_are_positive_and_finite(kind: type[Uniform] | type[Gaussian], scale: float) -> None:
    with pytest.raises(InputError) as caught:
        kind(scale)
    message = refusal(caught)
    assert message.startswith(f"the scale of {kind.__name__} is {scale}; it must ")
    assert message.endswith("e.g. 0.1")


@pytest.mark.parametrize("kind", [Uniform, Gaussian])
def test_there_is_one_scale_or_one_for_each_parameter(kind: type[Uniform] | type[Gaussian]) -> None:
    law, space = kind((0.1, 0.2, 0.3)), space_of(PLACE)
    for refused in (
        lambda: law.check(space),
        lambda: law.certify(Counts((1, 0), (9, 1)), space, 0.05),
        lambda: law.distance(np.zeros((1, 2)), space),
    ):
        with pytest.raises(InputError) as caught:
            refused()
        assert f"the scale of {kind.__name__} is 3 numbers; it must be one" in refusal(caught)
        assert "each of 2 parameters" in str(caught.value)


@pytest.mark.parametrize("lam", [math.nextafter(math.pi, 4), 4.0, 180.0])
def test_an_arc_is_at_most_the_circle(lam: float) -> None:
    space = space_of(ANGLE)
    for refused in (
        lambda: Uniform(lam).check(space),
        lambda: Uniform(lam).certify(Counts((1, 0), (9, 1)), space, 0.05),
        lambda: Independent(Uniform(lam)).check(space),
    ):
        with pytest.raises(InputError) as caught:
            refused()
        message = refusal(caught)
        assert f"the scale of Uniform is {lam}; it must not exceed half the period" in message
        assert "radians" in message
    Uniform(lam).check(space_of(ZOOM))
    Gaussian(lam).check(space)


@pytest.mark.parametrize("laws", [(Uniform(0.1),), (Uniform(0.1), Uniform(0.1), Gaussian(0.1))])
def test_there_is_one_law_for_each_block(laws: tuple[Uniform | Gaussian, ...]) -> None:
    with pytest.raises(InputError) as caught:
        Independent(*laws).check(space_of(ANGLE, PLACE))
    message = refusal(caught)
    assert f"Independent is {len(laws)} law(s); it must have one for each of 2 block(s)" in message
    assert "rotation, translation" in message


def test_independent_takes_laws_and_at_least_one() -> None:
    with pytest.raises(InputError) as caught:
        Independent()
    assert "Independent is empty" in refusal(caught)
    nested = Independent(Uniform(0.1))
    with pytest.raises(InputError) as caught:
        Independent(nested)  # type: ignore[arg-type]
    assert repr(nested) in refusal(caught)


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        ([0.1], "of shape (1,); it must have 2 parameter(s)"),
        ([0.1, 0.1, 0.1], "of shape (3,); it must have 2 parameter(s)"),
        ([0.1, math.nan], "not finite; it must be finite"),
        ([math.inf, 0.1], "not finite; it must be finite"),
    ],
)
def test_a_shift_has_one_finite_number_for_each_parameter(shift: list[float], said: str) -> None:
    certificate = Uniform(0.1).certify(Counts((10, 0), (99, 1)), space_of(PLACE), 0.05)
    with pytest.raises(InputError) as caught:
        certificate.covers(shift)
    assert refusal(caught).startswith(f"the shift is {said}")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"name": "unifrom", "scale": 0.1}, "did you mean 'uniform'"),
        ({"scale": 0.1}, "the name is None; it must be one of"),
        ({"name": "uniform", "scale": 0.1, "sigma": 1}, "a field of uniform is 'sigma'"),
        ({"name": "uniform", "scale": -0.1}, "the scale of Uniform is -0.1"),
    ],
)
def test_a_configuration_that_is_no_law_is_refused(
    config: dict[str, str | float], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        NoiseLaw.from_config(dict(config))
    assert said in refusal(caught)
