"""Regions: enclosed by shifts that never fall short of them."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from deformrs import (
    DCT,
    Affine,
    Certificate,
    Compose,
    Counts,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Patch,
    Region,
    Rotation,
    Scaling,
    Shear,
    Translation,
    Uniform,
    VectorField,
    regions,
)
from deformrs.errors import InputError, UnsupportedError
from deformrs.regions import Rotate, Scale, ShearBy, Shift
from deformrs.rounding import format_down

SIZE = 28, 28
AFFINE = Affine().space(SIZE)
DEG = math.pi / 180

REGIONS = {
    "the paper's first": Region(Rotate(-2 * DEG, 2 * DEG), ShearBy(0, 0.02)),
    "the paper's second": Region(
        Shift(length=math.sqrt(0.1)), Rotate(-10 * DEG, 10 * DEG), Scale(0.8, 1.2)
    ),
    "in text": Region.parse("rotation<=10deg, scale=0.8..1.2, shift<=4px"),
    "one-sided": Region(Scale(1.1, 1.3), Rotate(5 * DEG, 40 * DEG)),
    "the whole circle": Region(Rotate(-math.pi, math.pi), Shift(px=1)),
    "two of a kind": Region(Shift(px=2), ShearBy(-0.1, 0.2), Shift(px=1), Rotate(0, 0.3)),
    "nothing": Region(Rotate(0, 0)),
}
FAMILIES = {
    "rotation": Rotation(),
    "scaling": Scaling(),
    "shear": Shear(),
    "translation": Translation(),
}


def composed(region: Region) -> Deformation:
    """Return the composition that the region ranges over."""
    return Compose(*(FAMILIES[factor.family] for factor in region.factors))


def members(region: Region, count: int, corners: bool) -> NDArray[np.float64]:
    """Return random parameters of that composition, at the region's corners or anywhere in it."""
    generator = np.random.default_rng(7)
    columns: list[NDArray[np.float64]] = []
    for factor in region.factors:
        share = generator.random(count)
        if corners and not isinstance(factor, Rotate):
            share = np.round(share)
        match factor:
            case Shift():
                length = factor.length if factor.px is None else factor.px / 14
                assert length is not None
                radius = length * (1.0 if corners else np.sqrt(share))
                angle = 2 * math.pi * generator.random(count)
                columns += [radius * np.cos(angle), radius * np.sin(angle)]
            case Scale(low, high):
                columns.append(low + share * (high - low) - 1)
            case Rotate(low, high) | ShearBy(low, high):
                columns.append(low + share * (high - low))
    return np.stack(columns, axis=1)


def affine_shifts(region: Region, params: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (a, b, c, d, e, f) of composed parameters, measured on the deformation itself."""
    size = (4, 4)
    field = composed(region).field(torch.from_numpy(params), size).numpy()
    corner = field[:, [0, 0, 3], [0, 3, 0]]  # at (-¾, -¾), (¾, -¾), (-¾, ¾)
    along_x, along_y = (corner[:, 1] - corner[:, 0]) / 1.5, (corner[:, 2] - corner[:, 0]) / 1.5
    middle = (corner[:, 1] + corner[:, 2]) / 2
    return np.stack(
        [along_x[:, 0], along_y[:, 0], along_x[:, 1], along_y[:, 1], middle[:, 0], middle[:, 1]],
        axis=1,
    )


def certificate(deformation: Deformation, noise: NoiseLaw, hits: int) -> Certificate:
    """Return the certificate of 1,000 samples with that many hits."""
    counts = Counts((0, 100), (1000 - hits, hits))
    return noise.certify(counts, deformation.space(SIZE), alpha=0.001)


def test_the_papers_two_radii() -> None:
    """0.0651 and 0.503 to the digits the paper prints, which rounds to nearest; and the closed
    forms it gives for them."""
    first = REGIONS["the paper's first"].radius_needed(AFFINE)
    s, theta = 0.02, -2 * DEG
    exact = math.sqrt(s**2 - 2 * s * math.sin(theta) - 4 * math.cos(theta) + 4)
    assert f"{first:.4f}" == "0.0651"
    assert exact <= first <= exact * (1 + 1e-4)
    second = REGIONS["the paper's second"].radius_needed(AFFINE)
    exact = math.sqrt(2 + 2 * 1.2**2 - 4 * 1.2 * math.cos(10 * DEG) + 0.1)
    assert f"{second:.3f}" == "0.503"
    assert exact <= second <= exact * (1 + 1e-4)


@pytest.mark.parametrize("name", REGIONS)
def test_guarantee_radius_needed_is_never_below_the_true_maximum(name: str) -> None:
    """20,000 members, half of them at corners; and not more than 2 % above the largest seen."""
    region = REGIONS[name]
    shifts = np.concatenate(
        [affine_shifts(region, members(region, 10_000, c)) for c in (True, False)]
    )
    for norm in (1, 2):
        largest = np.linalg.norm(shifts, ord=norm, axis=1).max()
        needed = region.radius_needed(AFFINE, norm)
        assert largest <= needed <= 1.02 * largest + 1e-12


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize(
    "law", [Gaussian(0.2), Gaussian((0.2, 0.4, 0.3, 0.2, 0.5, 0.5)), Uniform(1.5)]
)
def test_guarantee_a_covered_region_has_only_covered_members(name: str, law: NoiseLaw) -> None:
    region = REGIONS[name]
    shifts = affine_shifts(region, members(region, 300, corners=True))
    for hits in (560, 700, 850, 970, 1000):
        c = certificate(Affine(), law, hits)
        if c.covers_region(region):
            assert all(c.covers(shift) for shift in shifts)
        elif name in ("the paper's first", "nothing"):
            assert hits < 1000, "all samples agree, and a small region is still not covered"


def test_affine_route_certifies_where_the_radius_suffices() -> None:
    region = REGIONS["the paper's first"]
    strong, weak = (certificate(Affine(), Gaussian(0.1), hits) for hits in (950, 700))
    needed = region.radius_needed(AFFINE)
    assert weak.radius < needed < strong.radius
    assert strong.covers_region(region)
    assert not weak.covers_region(region)


@pytest.mark.parametrize("name", ["the paper's second", "in text", "one-sided"])
def test_composed_route(name: str) -> None:
    """A composition in the region's order is covered through its own parameters."""
    region = REGIONS[name]
    deformation = composed(region)
    laws = [
        Gaussian(0.5) if isinstance(factor, Shift) else Uniform(1.2) for factor in region.factors
    ]
    strong = certificate(deformation, Independent(*laws), 1000)
    weak = certificate(deformation, Independent(*laws), 600)
    assert strong.covers_region(region)
    assert not weak.covers_region(region)
    for shift in members(region, 300, corners=True):
        assert strong.covers(shift)


def test_parts_of_a_composition_may_rest() -> None:
    three = Compose(Rotation(), Scaling(), Translation())
    law = Independent(Uniform(1.0), Uniform(0.5), Gaussian(0.3))
    c = certificate(three, law, 900)
    assert c.covers_region(Region(Rotate(-0.2, 0.2)))
    assert c.covers_region(Region(Rotate(-0.2, 0.2), Shift(px=0.5)))
    assert not c.covers_region(Region(Shift(px=14)))


@pytest.mark.parametrize("text", ["zoom=0.8..1.25", "zoom=30%..3", "zoom<=20%", "zoom=1..1.1"])
def test_guarantee_a_zoom_contains_every_requested_magnification(text: str) -> None:
    """1/m for 10,000 magnifications, and for both ends as exact decimals: α as it is given, and in
    the shifts that enclose it."""
    ends = text.removeprefix("zoom").replace("<=20%", "0.8..1.2").replace("30%", "0.3")
    low, high = (Fraction(end) for end in ends.removeprefix("=").split(".."))
    region = Region.parse(text)
    (factor,) = region.factors
    assert isinstance(factor, Scale)
    assert factor == Scale.from_zoom(float(low), float(high))
    inside = [low + (high - low) * Fraction(k, 10_000) for k in range(10_001)]
    assert all(Fraction(factor.low) <= 1 / m <= Fraction(factor.high) for m in inside)
    assert factor.low == pytest.approx(float(1 / high), rel=1e-13)
    assert factor.high == pytest.approx(float(1 / low), rel=1e-13)
    needed = Fraction(region.radius_needed(Scaling().space(SIZE)))
    assert needed >= max(1 / low - 1, 1 - 1 / high)


def test_a_zoom_shows_the_content_larger() -> None:
    """A white square of 8 pixels, magnified by 2, is 16 pixels wide."""
    image = torch.zeros(1, 32, 32)
    image[:, 12:20, 12:20] = 1
    (factor,) = Region.parse("zoom=2..2").factors
    assert isinstance(factor, Scale)
    params = torch.tensor([[factor.low - 1]], dtype=torch.float32)
    shown = Scaling().apply(image, params)
    assert shown[0, 0, 16].sum().item() == pytest.approx(16, abs=0.6)


@pytest.mark.parametrize(
    "text", ["zoom<=100%", "zoom=0..1", "zoom=-1..1", "zoom=1e-320..1", "zoom=1.2..0.8"]
)
def test_impossible_zooms(text: str) -> None:
    with pytest.raises(InputError, match="the zoom"):
        Region.parse(text)


def test_another_order_is_refused() -> None:
    c = certificate(Compose(Rotation(), Scaling()), Gaussian(0.2), 1000)
    with pytest.raises(UnsupportedError, match="scaling, then rotation.*rotation, then scaling"):
        c.covers_region(Region(Scale(0.9, 1.1), Rotate(-0.1, 0.1)))
    with pytest.raises(UnsupportedError, match="dct"):
        certificate(DCT(2), Gaussian(0.2), 1000).covers_region(Region(Scale(0.9, 1.1)))


def test_one_family_alone() -> None:
    c = certificate(Rotation(), Uniform(math.radians(60)), 950)
    degrees = math.degrees(c.radius)
    assert c.covers_region(Region.parse(f"rotation<={format_down(degrees, 4)}deg"))
    assert not c.covers_region(Region.parse(f"rotation<={degrees + 1}deg"))
    everywhere = certificate(Rotation(), Uniform(math.pi), 600)
    assert everywhere.covers_region(Region.parse("rotation<=180deg"))
    assert everywhere.covers_region(Region(Rotate(0, 100)))


def test_an_angle_range_beyond_half_a_turn_is_not_mistaken_for_its_end() -> None:
    """270 degrees is a quarter turn the other way; the range up to it holds the half turn too."""
    c = certificate(Rotation(), Uniform(math.radians(120)), 950)
    assert 1.6 < c.radius < math.pi
    assert c.covers([math.radians(270)])
    assert not c.covers_region(Region(Rotate(0, math.radians(270))))


def test_an_abstaining_certificate_covers_nothing() -> None:
    c = certificate(Rotation(), Uniform(1.0), 400)
    assert c.prediction is None
    assert not c.covers_region(Region(Rotate(0, 0)))


@pytest.mark.parametrize("name", REGIONS)
def test_vector_field_route(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The field of every member is within the radius needed, in both norms."""
    monkeypatch.setattr(regions, "_BUDGET", 2**22)  # eight times fewer corners
    region = REGIONS[name]
    space = VectorField().space(SIZE)
    params = torch.from_numpy(members(region, 200, corners=True))
    fields = composed(region).field(params, SIZE).reshape(200, -1).numpy()
    for norm in (1, 2):
        largest = np.linalg.norm(fields, ord=norm, axis=1).max()
        assert largest <= region.radius_needed(space, norm) <= 1.1 * largest + 1e-9


def test_a_rotated_patch() -> None:
    """Rotation by θ moves a point at distance r by 2 r sin(θ/2): summed over the patch."""
    space = VectorField().space(SIZE)
    patch = Patch(Region(Rotate(-0.2, 0.2)), rows=(4, 12), cols=(10, 20))
    y, x = np.mgrid[:8, :10]
    distances = np.hypot(x - 4.5, y - 3.5) / 14
    exact = 2 * math.sin(0.1) * math.sqrt((distances**2).sum())
    needed = patch.radius_needed(space)
    assert exact <= needed <= 1.001 * exact
    moved = next(patch.shifts(space)).reshape(-1, 28, 28, 2)
    outside = np.ones(SIZE, dtype=bool)
    outside[4:12, 10:20] = False
    assert not moved[:, outside].any()
    strong = certificate(VectorField(), Gaussian(0.3), 1000)
    assert strong.covers_region(patch)
    assert not strong.covers_region(Region(Scale(0.8, 1.2)))


def test_a_patch_needs_a_vector_field() -> None:
    patch = Patch(Region(Rotate(-0.2, 0.2)), rows=(4, 12), cols=(10, 20))
    with pytest.raises(UnsupportedError, match="vector field only"):
        certificate(Affine(), Gaussian(0.3), 1000).covers_region(patch)
    with pytest.raises(InputError, match=r"rows of the patch is \(4, 40\).*\[0, 28\]"):
        Patch(patch.region, (4, 40), (0, 5)).radius_needed(VectorField().space(SIZE))


def test_one_number_needs_one_block() -> None:
    with pytest.raises(UnsupportedError, match="covers_region"):
        Region(Rotate(0, 1)).radius_needed(Compose(Rotation(), Scaling()).space(SIZE))
    with pytest.raises(InputError, match="norm is 3"):
        Region(Rotate(0, 1)).radius_needed(AFFINE, norm=3)


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("rotation<=10deg", (Rotate(-10 * DEG, 10 * DEG),)),
        ("scale = 80% .. 1.2 ,shear<=2%", (Scale(0.8, 1.2), ShearBy(-0.02, 0.02))),
        ("shift<=4px", (Shift(px=4.0),)),
        ("shift<=0.316, rotate=0.1rad..0.2rad", (Shift(length=0.316), Rotate(0.1, 0.2))),
        ("scale<=20%", (Scale(0.8, 1.2),)),
    ],
)
def test_text(text: str, factors: tuple[object, ...]) -> None:
    assert Region.parse(text).factors == factors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name<=limit"),
        ("rotation", "name<=limit"),
        ("rotatoin<=10deg", "did you mean 'rotation'"),
        ("rotation<=10", "'54deg' or '0.94rad'"),
        ("rotation<=10px", "number with its unit"),
        ("scale=0.8", "low..high"),
        ("scale=1.2..0.8", "low before high"),
        ("scale=-0.2..0.8", "must be positive"),
        ("shift=1px..2px", "limited by its length"),
        ("shift<=-1px", "at least 0"),
        ("shift<=px4", "number with its unit"),
        ("shift<=4pxpx", "number with its unit"),
        (", ".join(["shift<=1px"] * 11), "too many corners"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Region.parse(text).radius_needed(AFFINE)


@pytest.mark.parametrize("text", [None, 5, b"rotation<=10deg"])
def test_what_is_not_text(text: str) -> None:
    with pytest.raises(InputError, match="must be text"):
        Region.parse(text)


def test_bad_factors_and_patches() -> None:
    for bad in ("a", None, math.nan):
        with pytest.raises(InputError):
            Rotate(bad, 1.0)  # type: ignore[arg-type]
        with pytest.raises(InputError):
            Shift(px=bad)  # type: ignore[arg-type]
    region = Region(Rotate(-0.1, 0.1))
    for rows in ((1, 2, 3), 5, (0.5, 2), ("a", "b")):
        with pytest.raises(InputError, match="rows of the patch"):
            Patch(region, rows, (0, 5))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a Region"):
        Patch("rotation<=10deg", (0, 5), (0, 5))  # type: ignore[arg-type]


def test_guarantee_shifts_enclose_each_parameter_in_spite_of_rounding() -> None:
    """A single transformation, to 60 digits: no entry of its enclosure falls short of it.

    80 random patches under one rotation each, and 80 affine maps of a rotation and a zoom.
    """
    generator = np.random.default_rng(3)
    with mpmath.workdps(60):
        for _ in range(80):
            theta, alpha = float(generator.uniform(-3, 3)), float(10 ** generator.uniform(-1, 3))
            cos, sin = mpmath.cos(theta), mpmath.sin(theta)
            region = Region(Rotate(theta, theta), Scale(alpha, alpha))
            largest = np.abs(np.concatenate(list(region.shifts(AFFINE)))).max(axis=0)
            exact = [alpha * cos - 1, alpha * sin, alpha * sin, alpha * cos - 1, 0, 0]
            assert all(abs(e) <= m for e, m in zip(exact, largest.tolist(), strict=True))

            height, width = (int(k) for k in generator.integers(1, 7, size=2))
            space = VectorField().space((7, 9))
            patch = Patch(Region(Rotate(theta, theta)), (0, height), (0, width))
            fields = np.abs(np.concatenate(list(patch.shifts(space)))).max(axis=0)
            for i, j in np.ndindex(height, width):
                x = mpmath.mpf(2 * j + 1 - width) / 7
                y = mpmath.mpf(2 * i + 1 - height) / 7
                moved = x * (cos - 1) - y * sin, x * sin + y * (cos - 1)
                found = fields.reshape(7, 9, 2)[i, j]
                assert all(abs(e) <= m for e, m in zip(moved, found.tolist(), strict=True))
