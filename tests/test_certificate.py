"""Counts, bounds and certificates, and their summaries in everyday units."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import replace

import pytest

from deformrs import (
    Affine,
    Bound,
    Certificate,
    Compose,
    Counts,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Region,
    Rotation,
    Scaling,
    Shear,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.certificate import PairedCounts
from deformrs.errors import InputError, UnsupportedError
from deformrs.statistics import shared_alpha


def certificate(
    deformation: Deformation,
    noise: NoiseLaw,
    hits: int = 950,
    size: tuple[int, int] = (28, 28),
    method: str = "clopper_pearson",
) -> Certificate:
    counts = Counts((10, 90), (1000 - hits, hits))
    return noise.certify(counts, deformation.space(size), 0.001, method)


def test_counts_add_in_any_order() -> None:
    a, b, c = Counts((1, 2), (3, 4)), Counts((5, 0), (0, 7)), Counts((0, 1), (1, 0))
    assert (a + b) + c == c + (b + a) == Counts((6, 3), (4, 11))
    assert (a + b).n0 == 8
    assert (a + b).n == 14
    assert (a + b).candidate == 0
    assert (a + b).hits == 3


def test_the_first_of_equals_is_the_candidate() -> None:
    assert Counts((3, 5, 5), (1, 1, 1)).candidate == 1


@pytest.mark.parametrize(
    ("selection", "estimation"),
    [
        ((1,), (1,)),
        ((1, 2), (1, 2, 3)),
        ((1, -1), (1, 2)),
        ((1, 2), (0.5, 1)),
        ([1, 2], [1, 2]),
        ("ab", "cd"),
    ],
)
def test_impossible_counts(selection: tuple[int, ...], estimation: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        Counts(selection, estimation)


def test_counts_of_other_models_do_not_add() -> None:
    with pytest.raises(InputError, match="of 3 classes.*of 2"):
        _ = Counts((1, 2), (3, 4)) + Counts((1, 2, 3), (4, 5, 6))
    with pytest.raises(TypeError):
        _ = Counts((1, 2), (3, 4)) + 1  # type: ignore[operator]


@pytest.mark.parametrize("counts", [Counts((0, 0), (1, 2)), Counts((1, 2), (0, 0))])
def test_no_certificate_without_samples_in_both_stages(counts: Counts) -> None:
    with pytest.raises(InputError, match="at least 1 in both stages"):
        Uniform(1.0).certify(counts, Rotation().space((28, 28)), 0.001)


def test_impossible_bounds() -> None:
    for lower, upper in ((1.1, 0.0), (0.5, -0.1), (math.nan, 0.5)):
        with pytest.raises(InputError, match=r"must lie in \[0, 1\]"):
            Bound(lower, upper)


def test_equal_bounds_decide_nothing() -> None:
    assert not Bound(0.5, 0.5).decides
    assert not Bound(0.0, 0.0).decides
    assert Bound(0.3, 0.29).decides


@pytest.mark.parametrize(
    ("classes", "disagreements"),
    [
        ((4, 2), (2, 0)),  # a pair that disagrees is of two classes
        ((6, 2, 0), (2, 0, 0)),
        ((2000, 40, 8), (40, 0, 0)),
        ((5, 3, 2), (1, 1, 0, 0)),
        ((5, 3, 2), (3, 1, 0)),  # more than the other two
        ((4, 2), (0, 1)),
    ],
)
def test_counts_that_no_pairs_have_are_refused(
    classes: tuple[int, ...], disagreements: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match="must be possible for pairs of predictions"):
        PairedCounts(classes, disagreements)


def test_counts_of_pairs_are_possible() -> None:
    """All of up to three pairs in three classes, and no others of those sums."""
    for number in (1, 2, 3):
        possible = set()
        for pairs in itertools.product(itertools.product(range(3), repeat=2), repeat=number):
            classes = tuple(sum(pair.count(c) for pair in pairs) for c in range(3))
            differing = tuple(sum(pair.count(c) == 1 for pair in pairs) for c in range(3))
            possible.add((classes, differing))
        for classes in itertools.product(range(2 * number + 1), repeat=3):
            if sum(classes) != 2 * number:
                continue
            for differing in itertools.product(range(number + 1), repeat=3):
                if (classes, differing) in possible:
                    assert PairedCounts(classes, differing).n == 2 * number
                else:
                    with pytest.raises(InputError, match="must be possible"):
                        PairedCounts(classes, differing)


def test_certificates_are_frozen() -> None:
    c = certificate(Rotation(), Uniform(1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.prediction = 3  # type: ignore[misc]


def test_abstention() -> None:
    c = certificate(Rotation(), Uniform(1.0), hits=520)
    assert c.prediction is None
    assert c.radius == 0.0
    assert c.p_lower < 0.5
    assert not c.covers([0.0])
    assert c.summary().startswith("abstains")
    blocks = certificate(Compose(Rotation(), Scaling()), Gaussian(1.0), hits=520)
    assert blocks.radii == (0.0, 0.0)


def test_another_alpha_from_the_same_counts() -> None:
    c = certificate(Rotation(), Uniform(1.0))
    law = Uniform(1.0)
    stricter = law.certify(c.counts, c.space, 1e-6)
    assert c.at(alpha=1e-6) == stricter
    assert c.at(0.001) == c
    with pytest.raises(InputError, match="alpha"):
        c.at(alpha=1.5)
    early = replace(c, method="anytime:1000")
    with pytest.raises(InputError, match=r"alpha is 0.7; it must lie in \(0, 0.5\)"):
        early.at(alpha=0.7)
    assert 0 < stricter.radius < c.radius
    assert law.certify(c.counts, c.space, 0.001) == c


def test_guarantee_covers_only_inside_the_exact_set() -> None:
    """At ξ = (r/2, r/2) the exact set of uniform noise reaches beyond the l1 ball of radius r."""
    c = certificate(Translation(), Uniform(0.5))
    r = c.radius
    assert c.covers([r, 0])
    assert not c.covers([r * (1 + 1e-9), 0])
    assert c.covers([r / 2 * 1.1, r / 2 * 1.1])
    margin = 2 * c.p_lower - 1
    diagonal = 1 - math.sqrt(1 - margin / 2)  # (1 - t)² = 1 - margin/2, ξ = 2λt
    assert c.covers([0.999 * diagonal, 0.999 * diagonal])
    assert not c.covers([1.001 * diagonal, 1.001 * diagonal])


@pytest.mark.parametrize(
    ("deformation", "noise", "words"),
    [
        (Rotation(), Uniform(math.radians(54)), "class 1 for any rotation up to 45.90° ("),
        (Rotation(), Uniform(math.pi), "class 1 for every rotation ("),
        (Translation(), Gaussian(0.4), "any translation up to 8.06 px (l2 norm) ("),
        (Translation(), Uniform(0.4), "any translation up to 4.76 px (l1 norm) ("),
        (Scaling(), Uniform(0.3), "any scaling up to 25.50 % ("),
        (Shear(), Gaussian(0.1), "any shear up to 14.39 % ("),
        (Affine(), Gaussian(0.1), "any affine up to 0.1439 (l2 norm) ("),
        (VectorField(), Gaussian(0.1), "any vector field up to 2.01 px (l2 norm) ("),
        (
            Compose(Rotation(), Translation()),
            Independent(Uniform(math.radians(54)), Gaussian(0.4)),
            "any rotation up to 45.90°, or any translation up to 8.06 px (l2 norm) (",
        ),
    ],
)
def test_summary_in_everyday_units(deformation: Deformation, noise: NoiseLaw, words: str) -> None:
    """950 hits of 1,000 at alpha = 0.001, by 30-digit arithmetic: p_A >= 0.92504678, margin
    p_A - p_B = 0.85009356, quantile 1.43986202; times the scale, in the unit, cut off.
    """
    c = certificate(deformation, noise)
    summary = c.summary()
    assert words in summary
    assert "n = 1,000, alpha = 0.001, p >= 0.9250" in summary


def test_pixels_follow_the_shorter_side() -> None:
    small, wide = (certificate(Translation(), Gaussian(0.4), size=s) for s in ((32, 32), (32, 64)))
    assert small.summary() == wide.summary()
    assert "px" in small.summary()


def test_several_blocks_have_no_single_radius() -> None:
    c = certificate(Compose(Rotation(), Translation()), Gaussian(0.2))
    with pytest.raises(UnsupportedError, match="rotation, translation.*radii"):
        _ = c.radius
    assert c.radii[0] == c.radii[1]
    assert c.covers([c.radii[0], 0, 0])
    assert not c.covers([c.radii[0], c.radii[0], 0])


def test_explicit_runner_up_certifies_below_one_half() -> None:
    """45 % against 5.5 % each of ten others: no majority, and yet a clear winner."""
    counts = Counts((5,) * 10 + (50,), (550,) * 10 + (4500,))
    space = Rotation().space((28, 28))
    plain = Uniform(1.0).certify(counts, space, 0.001)
    explicit = Uniform(1.0).certify(counts, space, 0.001, method="bonferroni")
    assert plain.prediction is None
    assert explicit.prediction == 10
    assert 0.3 < explicit.radius < 0.45 - 0.055


@pytest.mark.parametrize("shift", [[[0.1], [0.2]], [0.1, 0.2], 0.1, "a", ["a"], None, [1j], {}])
def test_a_shift_is_one_number_for_each_parameter(shift: object) -> None:
    c = certificate(Rotation(), Uniform(1.0))
    with pytest.raises(InputError, match="the shift is"):
        c.covers(shift)  # type: ignore[arg-type]


def test_a_shift_without_a_list_is_shown_one_with_units() -> None:
    with pytest.raises(InputError, match=r"the shift is 10; .* e\.g\. \['10deg'\]"):
        certificate(Rotation(), Uniform(1.0)).covers(10)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"the shift is '4px'; .* e\.g\. \['5px', '5px'\]"):
        certificate(Translation(), Gaussian(0.4)).covers("4px")


def test_quantities_are_shifts_and_radii() -> None:
    turn = certificate(Rotation(), Uniform("54deg"))
    assert all(turn.covers(shift) for shift in ("45deg", ["-45deg"], "-0.8rad"))
    assert turn.covers("405deg"), "once around"
    assert not turn.covers("46deg")
    assert turn.covers([math.radians(45)]) == turn.covers("45deg")
    assert turn.radius_in("deg") == pytest.approx(45.905, abs=1e-3)
    assert math.radians(turn.radius_in("deg")) <= turn.radius == turn.radius_in("rad")
    assert certificate(Rotation(), Uniform(math.pi)).radius_in("deg") == 180
    place = certificate(Translation(), Gaussian("5.6px"))
    assert place.covers(["8px", "0px"])
    assert place.covers(["5px", 0.4])
    assert not place.covers(["8px", "2px"])
    assert place.radius_in("px") == pytest.approx(8.063, abs=1e-3)
    assert certificate(Scaling(), Uniform("30%")).radius_in("%") == pytest.approx(25.5, abs=0.01)


def test_quantities_that_do_not_fit() -> None:
    turn, place = certificate(Rotation(), Uniform(1.0)), certificate(Translation(), Gaussian(0.4))
    both = certificate(Compose(Rotation(), Translation()), Gaussian(0.2))
    for c, shift in (
        (turn, "4px"),
        (turn, ["0.1"]),
        (turn, ["1deg", "1deg"]),
        (place, "4px"),
        (place, ["4px"]),
        (place, ["4deg", "4px"]),
        (both, ["1px", "1px", "1px"]),
        (turn, ""),
        (turn, "1e999deg"),
    ):
        with pytest.raises(InputError, match="the shift is"):
            c.covers(shift)
    assert both.covers(["1deg", "1px", 0.0])
    for c, unit in ((turn, "px"), (turn, ""), (place, "deg"), (turn, "degrees")):
        with pytest.raises(InputError, match="the unit is"):
            c.radius_in(unit)
    with pytest.raises(InputError, match="it has none: use radius"):
        certificate(Affine(), Gaussian(0.1)).radius_in("%")
    with pytest.raises(UnsupportedError):
        both.radius_in("px")


def test_prints_on_one_line() -> None:
    c = certificate(Rotation(), Uniform("54deg"))
    assert str(c) == c.summary()
    assert "\n" not in repr(c)
    assert repr(c).startswith("Certificate(prediction=1, radii=(0.80")
    assert len(repr(c)) < 180


def test_a_region_may_be_given_as_text() -> None:
    c = certificate(Rotation(), Uniform("54deg"))
    reach = math.degrees(c.radius)
    assert c.covers_region(f"rotation<={0.99 * reach}deg")
    assert not c.covers_region(f"rotation<={1.01 * reach}deg")
    with pytest.raises(InputError, match=r"must be a Region.*Region.parse"):
        c.covers_region(10.0)  # type: ignore[arg-type]


def test_alpha_is_shown_as_it_is() -> None:
    c = certificate(Rotation(), Uniform(1.0))
    assert "alpha = 0.00123456449," in replace(c, alpha=0.00123456449).summary()
    assert "alpha = 5e-05," in replace(c, alpha=shared_alpha(0.001, 20)).summary()
    assert "alpha = 0.0012345679," in replace(c, alpha=0.00123456789012).summary()


def test_equal_certificates_are_equal_and_different_ones_differ() -> None:
    c = certificate(Rotation(), Uniform(1.0))
    assert c == certificate(Rotation(), Uniform(1.0))
    assert c != replace(c, alpha=0.01)
    assert c != certificate(Rotation(), Uniform(1.0), hits=951)


def test_an_abstaining_certificate_still_refuses_impossible_queries() -> None:
    unsure = Uniform(0.5).certify(Counts((5, 5), (50, 50)), Rotation().space((28, 28)), 0.001)
    assert unsure.prediction is None
    assert not unsure.covers([0.0])
    assert not unsure.covers_region(Region.parse("rotation<=1deg"))
    with pytest.raises(InputError, match="must have 1 parameter"):
        unsure.covers([0.1, 0.2])
    with pytest.raises(UnsupportedError):
        unsure.covers_region(Region.parse("scale=0.9..1.1"))
