"""Checks that run over every registered law: a new one is tested by existing."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from spaces import ANGLE, BARELY, PLACE, TURN, ZOOM, decided, space_of

from deformrs.certificate import Bound, Counts
from deformrs.errors import InputError
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.space import Space

Floats = NDArray[np.float64]

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
