"""How far shifts move the noise: the outermost stand for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from spaces import ANGLE, PLACE, ZOOM, decided, space_of

from deformrs.deformations import VectorField
from deformrs.errors import InputError
from deformrs.noise.distance import Distance
from deformrs.noise.gaussian import Gaussian
from deformrs.noise.independent import Independent
from deformrs.noise.law import NoiseLaw, distance_of
from deformrs.noise.uniform import Uniform
from deformrs.regions import Region
from deformrs.space import Space

LOST = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.35, 0.6]), min_size=1, max_size=12)
SEED = st.integers(0, 2**16)


@given(lost=LOST, seed=SEED, p=st.floats(0.5, 1.0))
def test_guarantee_what_certifies_the_outermost_certifies_every_one(
    lost: list[float], seed: int, p: float
) -> None:
    length = np.random.default_rng(seed).choice([0.0, 0.3, 0.7, 1.1, 2.0], len(lost))
    distance = Distance(np.array(lost), length)
    outermost = distance.outermost()
    bound = decided(p)
    assert bool(outermost.within(bound).all()) == bool(distance.within(bound).all())
    kept = set(zip(outermost.lost.tolist(), outermost.length.tolist(), strict=True))
    assert len(kept) == len(outermost.lost), "none twice"
    every = list(zip(lost, length.tolist(), strict=True))
    assert kept <= set(every)
    for u, r in kept:
        assert not any(v >= u and s >= r and (v, s) != (u, r) for v, s in every)
    for u, r in every:
        assert any(v >= u and s >= r for v, s in kept)


@pytest.mark.parametrize(
    "law",
    [
        Independent(Gaussian(0.3), Uniform(1.0), Gaussian(0.2)),
        Independent(Gaussian(0.3), Gaussian(0.4), Gaussian(0.2)),
        Independent(Uniform(0.9), Uniform(1.0), Uniform(0.8)),
    ],
)
def test_a_region_is_enclosed_once_and_answered_as_its_shifts_are(law: Independent) -> None:
    space = space_of(PLACE, ANGLE, ZOOM)
    region = Region.parse("shift<=0.3162277661, rotation<=10deg, scale=0.8..1.2")
    for p in (0.6, 0.8, 0.9, 0.93, 0.95, 0.97, 0.99, 1.0):
        bound = decided(p)
        each = [law.covers(shifts, bound, space).all() for shifts in region.shifts(space)]
        assert law.covers_region(region, bound, space) == all(each)
    assert distance_of(law, region, space) is distance_of(law, Region(*region.factors), space)


class Told:
    """A region of the user's own, which may change."""

    def __init__(self, *shifts: list[list[float]]) -> None:
        self.told = shifts

    def shifts(self, space: Space) -> list[NDArray[np.float64]]:
        return [np.array(chunk, dtype=np.float64).reshape(-1, space.dim) for chunk in self.told]


def test_guarantee_what_is_no_number_is_not_covered() -> None:
    space = space_of(ANGLE)
    sure = decided(1.0)
    for law in (Gaussian(0.3), Uniform(0.5)):
        assert law.covers_region(Told([[0.1]]), sure, space)
        for bad in (math.nan, math.inf):
            for chunks in ([[[bad]]], [[[0.1], [bad], [0.0]]], [[[0.1]], [[bad]]]):
                assert not law.covers_region(Told(*chunks), sure, space)
    with pytest.raises(InputError, match="must hold a transformation"):
        Gaussian(0.3).covers_region(Told(), sure, space)
    vast = Region.parse("rotation<=5deg, scale=1e200..1e200, scale=1e200..1e200")
    field = VectorField().space((8, 8))
    with np.errstate(over="ignore", invalid="ignore"):
        assert not Gaussian(0.3).covers_region(vast, sure, field)


def test_a_region_that_changes_is_enclosed_again() -> None:
    region, space = Told([[0.1]]), space_of(ANGLE)
    assert Uniform(0.5).covers_region(region, decided(1.0), space)
    region.told = ([[0.9]],)
    assert not Uniform(0.5).covers_region(region, decided(1.0), space)


@pytest.mark.parametrize("name", ["covers", "covers_region", "sample"])
def test_no_law_answers_the_same_question_twice(name: str) -> None:
    with pytest.raises(InputError, match=f"the method {name} of Strict is its own"):
        type("Strict", (NoiseLaw,), {name: lambda *_: False})
