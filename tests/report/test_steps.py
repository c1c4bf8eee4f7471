"""Curves and radii that are nowhere above the truth."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import many, stored

from deformrs import Rotation, Translation, Uniform
from deformrs.report.people import float_down, reach
from deformrs.report.radii import Radius
from deformrs.report.steps import Steps, envelope, steps_of
from deformrs.report.summary import by_class, summarise
from deformrs.space import Block
from deformrs.units import PI_ABOVE, Unit

ANGLE = Rotation().space((28, 28)).blocks[0]

curves = st.lists(st.integers(1, 400), min_size=1, max_size=60).map(
    lambda radii: Steps(
        tuple(Fraction(r, 10) for r in sorted(set(radii))),
        tuple(sum(other >= r for other in radii) for r in sorted(set(radii))),
        len(radii) + 3,
    )
)
places = st.lists(st.fractions(0, 45), max_size=5)


@given(curves, places, places, st.integers(1, 10))
def test_guarantee_thinned_curves_never_rise_and_keep_what_is_asked(
    curve: Steps, keep: list[Fraction], anywhere: list[Fraction], most: int
) -> None:
    thin = curve.thinned(keep, most)
    assert len(thin.ends) <= most + len(keep) + 2
    for radius in [*curve.ends, *anywhere]:
        assert thin.at(radius) <= curve.at(radius)
    for radius in [Fraction(0), *keep]:
        assert thin.at(radius) == curve.at(radius)


@settings(max_examples=60)
@given(st.lists(curves, min_size=2, max_size=4), places)
def test_the_envelope_is_the_best_at_each_radius(
    some: list[Steps], anywhere: list[Fraction]
) -> None:
    best = envelope(some)
    for radius in [Fraction(0), *(end for curve in some for end in curve.ends), *anywhere]:
        shares = [Fraction(curve.at(radius), curve.total) for curve in some]
        found = best.at(radius)
        if found is None:
            assert max(shares) == 0
        else:
            count, total, run = found
            assert Fraction(count, total) == max(shares)
            assert (count, total) == (some[run].at(radius), some[run].total)


def test_a_curve_counts_what_the_results_say(tmp_path: Path) -> None:
    run = stored(tmp_path, many(200))
    curve = steps_of(run.results, ANGLE)
    for degrees in (0, 1, 10, 25.5, 40, 56, 57, 180):
        held = sum(result.holds(math.radians(degrees)) for result in run.results)
        assert curve.at(Fraction(degrees)) == held
    assert curve.at(Fraction(0)) == sum(result.correct for result in run.results)
    assert 0 < curve.at(Fraction(56)) < curve.at(Fraction(10)) < curve.at(Fraction(0))


def test_every_angle_is_180_degrees(tmp_path: Path) -> None:
    run = stored(tmp_path, many(20), law=Uniform(math.pi))
    curve = steps_of(run.results, ANGLE)
    assert curve.ends == (Fraction(180),)
    assert Radius("180deg", ANGLE).holds(run.results[0])
    assert Radius("270deg", ANGLE).holds(run.results[0]), "there is no further than half a turn"


@given(st.floats(0, 3), st.sampled_from(list(Unit)))
def test_guarantee_reach_and_float_down_stay_below(radius: float, unit: Unit) -> None:
    factor = {
        Unit.ANGLE: 180 / PI_ABOVE,
        Unit.LENGTH: Fraction(37, 2),
        Unit.FRACTION: Fraction(100),
        Unit.COEFFICIENT: Fraction(1),
    }[unit]
    shown = reach(Block("some", 1, unit), radius, (41, 37))
    exact = Fraction(radius) * factor
    assert exact - Fraction(2, 10**9) < shown <= exact
    assert Fraction(float_down(exact)) <= exact


def test_pixels_are_counted_on_each_image(tmp_path: Path) -> None:
    """The same length is four times as many pixels on an image four times as large."""
    block = Translation().space((28, 28)).blocks[0]
    both = [
        stored(tmp_path, many(1), Translation(), size=size).results[0]
        for size in ((16, 16), (64, 64))
    ]
    assert both[0].certificate.radius == both[1].certificate.radius
    small, large = (reach(block, r.certificate.radius, r.certificate.space.size) for r in both)
    assert large == pytest.approx(4 * small)
    assert [Radius("20px", block).holds(result) for result in both] == [False, True]


def test_a_summary_adds_up_over_classes(tmp_path: Path) -> None:
    run = stored(tmp_path, many(90))
    radii = (Radius("10deg", ANGLE), Radius("50deg", ANGLE))
    whole, parts = summarise(run.results, radii), by_class(run.results, radii)
    assert sorted(parts) == list(range(10))
    assert whole.plain is not None
    for name in ("total", "right", "abstained", "plain"):
        assert getattr(whole, name) == sum(getattr(part, name) for part in parts.values())
    assert whole.certified == tuple(
        sum(part.certified[k] for part in parts.values()) for k in range(2)
    )
    average = sum((p.averages[0] * p.total for p in parts.values()), Fraction(0)) / whole.total
    assert whole.averages[0] == average
    assert 0 < whole.abstained < whole.total
