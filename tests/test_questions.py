"""Radii and regions asked of results."""

from __future__ import annotations

import math

import pytest

from deformrs import Affine, Compose, Counts, Gaussian, Rotation, Translation, Uniform
from deformrs.deformations import Deformation
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import NoiseLaw
from deformrs.report.radii import Radius
from deformrs.runs import Result
from deformrs.stopping import Stopping, parse_queries


def result(
    deformation: Deformation, law: NoiseLaw, label: int = 1, size: tuple[int, int] = (28, 28)
) -> Result:
    certificate = law.certify(Counts((0, 100), (10, 990)), deformation.space(size), 0.001)
    return Result(0, label, certificate)


def test_a_radius_is_read_in_the_unit_of_the_family() -> None:
    asked = parse_queries(["10deg", "45deg", "0.5rad"], [])
    assert [q.holds(result(Rotation(), Uniform(0.6))) for q in asked] == [True, False, True]
    assert [q.holds(result(Rotation(), Uniform(0.6), label=0)) for q in asked] == [False] * 3
    assert [q.words for q in asked][:2] == ["up to 10deg", "up to 45deg"]


def test_beyond_half_a_turn_there_is_no_other_angle() -> None:
    """The rule that stops sampling asks the same as what is asked of results and in reports."""
    whole, part = Uniform(math.pi), Uniform(0.6)
    space = Rotation().space((28, 28))
    for text in ("180deg", "270deg", "720deg"):
        (asked,) = parse_queries([text], [])
        assert asked.holds(result(Rotation(), whole))
        assert not asked.holds(result(Rotation(), part))
        assert Radius(text, space.blocks[0]).value((28, 28)) == math.pi
        assert Stopping(radii=(text,)).rule(whole, space, 0.001, 10).thresholds
    half, more = (Stopping(radii=(r,)).rule(whole, space, 0.001, 10) for r in (math.pi, 5.0))
    assert half.thresholds == more.thresholds


def test_pixels_are_counted_on_each_image() -> None:
    (asked,) = parse_queries(["5px"], [])
    assert asked.holds(result(Translation(), Gaussian(0.2), size=(64, 64)))
    assert not asked.holds(result(Translation(), Gaussian(0.2), size=(16, 16)))


def test_a_region_is_asked_of_affine_and_composed_certificates() -> None:
    (asked,) = parse_queries([], ["rotation<=2deg, shift<=1px"])
    assert asked.holds(result(Affine(), Gaussian(0.3)))
    assert not asked.holds(result(Affine(), Gaussian(0.02)))
    assert asked.words == "for rotation<=2deg, shift<=1px"


def test_what_cannot_be_asked_is_said_beforehand() -> None:
    radius, region = parse_queries(["10deg"], ["rotation<=2deg, scale=0.8..1.2"])
    with pytest.raises(UnsupportedError, match="ask for a region"):
        radius.check(Compose(Rotation(), Translation()).space((28, 28)))
    with pytest.raises(InputError, match="'10deg'"):
        radius.check(Translation().space((28, 28)))
    with pytest.raises(UnsupportedError):
        region.check(Rotation().space((28, 28)))
    region.check(Affine().space((28, 28)))
    with pytest.raises(InputError, match="not negative"):
        parse_queries(["-3deg"], [])[0].check(Rotation().space((28, 28)))
    with pytest.raises(InputError, match="did you mean 'rotation'"):
        parse_queries([], ["rotatoin<=2deg"])
