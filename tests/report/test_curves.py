"""Curves and radii that are nowhere above the truth."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from deformrs import Rotation, Translation, Uniform
from deformrs.report.curves import (
    Curve,
    add_steps,
    curve_of,
    envelope,
    save_figure,
)
from deformrs.report.radii import Radius, displayed_radius, float_down, radius_of
from deformrs.report.summary import count_certified
from deformrs.space import Block
from deformrs.units import PI_ABOVE, Unit
from made_runs import Entry, many, stored

ANGLE = Rotation().space((28, 28)).blocks[0]


def made_curve(radii: list[int], until: int | None) -> Curve:
    """The curve of images certified up to these tenths, of which none beyond `until` is known."""
    known = radii if until is None else [min(radius, until) for radius in radii]
    return Curve(
        tuple(Fraction(r, 10) for r in sorted(set(known))),
        tuple(sum(other >= r for other in known) for r in sorted(set(known))),
        len(radii) + 3,
        None if until is None else Fraction(until, 10),
    )


curves = st.builds(
    made_curve,
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
    st.none() | st.integers(1, 450),
)
places = st.lists(st.fractions(0, 45), max_size=5)


@given(curves, places, places, st.integers(1, 10))
def test_guarantee_thinned_curves_never_rise_and_keep_what_is_requested(
    curve: Curve, keep: list[Fraction], anywhere: list[Fraction], most: int
) -> None:
    thin = curve.thinned(keep, most)
    assert len(thin.ends) <= most + len(keep) + 2
    for radius in [*curve.ends, *anywhere]:
        exact, thinned = curve.at(radius), thin.at(radius)
        assert (exact is None) == (thinned is None) == (radius > (curve.until or 99))
        assert exact is None or thinned is None or thinned <= exact
    for radius in [Fraction(0), *keep]:
        assert thin.at(radius) == curve.at(radius)


@settings(max_examples=60)
@given(st.lists(curves, min_size=2, max_size=4), places)
def test_the_envelope_is_the_best_at_each_radius(
    some: list[Curve], anywhere: list[Fraction]
) -> None:
    best = envelope(some)
    for radius in [Fraction(0), *(end for curve in some for end in curve.ends), *anywhere]:
        counts = [curve.at(radius) for curve in some]
        if all(count is None for count in counts):
            assert best.until is not None
            assert radius > best.until
            continue
        assert best.until is None or radius <= best.until
        pairs = zip(counts, some, strict=True)
        shares = [Fraction(count or 0, curve.total) for count, curve in pairs]
        step = bisect_left(best.ends, radius)
        if step == len(best.ends):
            assert max(shares) == 0
        else:
            count, total, run = best.counts[step], best.totals[step], best.runs[step]
            assert Fraction(count, total) == max(shares)
            assert (count, total) == (some[run].at(radius), some[run].total)


def test_a_curve_counts_what_the_results_say(tmp_path: Path) -> None:
    run = stored(tmp_path, many(200))
    curve = curve_of(run.results, ANGLE)
    for degrees in (0, 1, 10, 25.5, 40, 56, 57, 180):
        held = sum(result.holds(math.radians(degrees)) for result in run.results)
        assert curve.at(Fraction(degrees)) == held
        assert count_certified(run.results, Radius(f"{degrees}deg", ANGLE)) == held
    assert curve.at(Fraction(0)) == sum(result.correct for result in run.results)
    counts = [curve.at(Fraction(degrees)) or 0 for degrees in (56, 10, 0)]
    assert 0 < counts[0] < counts[1] < counts[2]


def test_a_curve_ends_at_the_last_requested_radius(tmp_path: Path) -> None:
    """It neither falls there nor goes on, in counts and in the figure."""
    run = stored(tmp_path, many(200))
    curve = curve_of(run.results, ANGLE, until=Fraction(30))
    held = sum(result.holds(math.radians(30)) for result in run.results)
    assert curve.at(Fraction(30)) == held > 0
    assert curve.at(Fraction(301, 10)) is None
    assert curve.at(Fraction(10)) == curve_of(run.results, ANGLE).at(Fraction(10))
    axes = Figure().add_subplot()
    add_steps(axes, curve, "", "black")
    assert np.asarray(axes.lines[0].get_xydata())[-1].tolist() == [30, held / 200]
    nothing = curve_of(stored(tmp_path, [Entry(0, 0, 500)]).results, ANGLE, until=Fraction(30))
    assert nothing.at(Fraction(30)) == 0, "requested, and held by none"


def test_every_angle_is_180_degrees(tmp_path: Path) -> None:
    run = stored(tmp_path, many(20), law=Uniform(math.pi))
    curve = curve_of(run.results, ANGLE)
    assert curve.ends == (Fraction(180),)
    assert Radius("180deg", ANGLE).holds(run.results[0])
    assert Radius("270deg", ANGLE).holds(run.results[0]), "there is no further than half a turn"


@given(st.floats(0, 3), st.sampled_from(list(Unit)))
def test_guarantee_displayed_radius_and_float_down_stay_below(radius: float, unit: Unit) -> None:
    factor = {
        Unit.ANGLE: 180 / PI_ABOVE,
        Unit.LENGTH: Fraction(37, 2),
        Unit.FRACTION: Fraction(100),
        Unit.COEFFICIENT: Fraction(1),
    }[unit]
    shown = displayed_radius(Block("some", 1, unit), radius, (41, 37))
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
    small, large = map(radius_of, both)
    assert large == pytest.approx(4 * small)
    assert [Radius("20px", block).holds(result) for result in both] == [False, True]


def test_guarantee_save_figure_leaves_whole_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.png"
    save_figure(Figure(), path)
    before = path.read_bytes()

    def fail(figure: Figure, file: BytesIO, **options: object) -> None:
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="no space left"):
        save_figure(Figure(), path)
    assert path.read_bytes() == before
