"""Circles and radii."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from spaces import ANGLE, BARELY, PLACE, TURN, ZOOM, decided, space_of

from deformrs.certificate import Bound
from deformrs.errors import InputError
from deformrs.noise import Gaussian, Independent, Uniform

Floats = NDArray[np.float64]


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


def test_textbook_radii() -> None:
    # Uniform: λ(p_A - p_B). Gaussian: σ/2 (Φ⁻¹(p_A) - Φ⁻¹(p_B)), with Φ(1) = 0.8413447460685429
    # and Φ(-1) = 1 - Φ(1).
    line = space_of(ZOOM)
    assert Uniform(0.5).radii(decided(0.9), line)[0] == pytest.approx(0.4, rel=1e-11)
    assert Uniform(0.5).radii(Bound(0.45, 0.2), line)[0] == pytest.approx(0.125, rel=1e-11)
    one = 0.8413447460685429
    assert Gaussian(0.5).radii(decided(one), line)[0] == pytest.approx(0.5, rel=1e-11)
    assert Gaussian(0.5).radii(Bound(0.5, 1 - one), line)[0] == pytest.approx(0.25, rel=1e-11)


def test_a_certain_class_has_an_endless_gaussian_radius() -> None:
    line, certain = space_of(ZOOM), Bound(1.0, 0.0)
    assert Gaussian(0.5).radii(certain, line) == (math.inf,)
    assert Gaussian(0.5).radii(certain, space_of(ANGLE)) == (math.pi,)
    assert Uniform(0.5).radii(certain, line)[0] == pytest.approx(0.5, rel=1e-11)


def test_one_angle_beside_other_parameters_must_not_be_too_wide() -> None:
    for space in (space_of(ANGLE), space_of(ZOOM, ANGLE), space_of(ANGLE, PLACE)):
        with pytest.raises(InputError, match="must not exceed half the period"):
            Uniform(3.2).check(space)
    Uniform(3.2).check(space_of(ZOOM, PLACE))


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
