"""Which runs are compared, and at which radii."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from deformrs import (
    DCT,
    Affine,
    Compose,
    Gaussian,
    Independent,
    Region,
    Rotation,
    Scaling,
    Translation,
    Uniform,
)
from deformrs.errors import InputError
from deformrs.report.groups import choose_radii, default_radii, make_groups, slugs
from deformrs.runs import StoredRun
from made_runs import Entry, decided, many, stored

COMPOSED = (Compose(Rotation(), Scaling()), Independent(Uniform(1.0), Uniform(0.3)))


def shown(runs: list[StoredRun], *texts: str) -> list[list[str]]:
    return [[radius.label for radius in radii] for radii in choose_radii(make_groups(runs), texts)]


def test_runs_of_one_deformation_and_data_set_are_compared(tmp_path: Path) -> None:
    groups = make_groups(
        [
            stored(tmp_path / "a"),
            stored(tmp_path / "b", law=Uniform(0.5)),
            stored(tmp_path / "c", data="others"),
            stored(tmp_path / "d", deformation=Scaling()),
            stored(tmp_path / "e", deformation=DCT(2), law=Gaussian(0.1)),
            stored(tmp_path / "f", deformation=DCT(2, "cosine"), law=Gaussian(0.1)),
            stored(tmp_path / "g", None, *COMPOSED),
            stored(tmp_path / "h", data=None),
        ]
    )
    assert [[member.name for member in group.members] for group in groups] == [
        *(["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g"], ["h"])
    ]
    assert groups[0].title == "Rotation on photos"
    assert groups[5].title == "Rotation, then scaling on photos"
    assert groups[6].title == "Rotation"
    assert slugs(groups)[:2] == ["photos-rotation", "others-rotation"]
    assert len(set(slugs(groups))) == 7


def test_radii_of_different_norms_are_not_compared(tmp_path: Path) -> None:
    """An l1 ball is smaller than the l2 ball of the same radius."""
    runs = [
        stored(tmp_path / "a", deformation=Translation(), law=Gaussian(0.2), data="mnist"),
        stored(tmp_path / "b", deformation=Translation(), law=Uniform(0.2), data="mnist"),
    ]
    groups = make_groups(runs)
    assert [group.title for group in groups] == [
        "Translation on MNIST",
        "Translation (l1 norm) on MNIST",
    ]
    assert len(set(slugs(groups))) == 2


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    runs = [stored(tmp_path / "x" / "a"), stored(tmp_path / "y" / "a"), stored(tmp_path / "b")]
    (group,) = make_groups(runs)
    assert [member.name for member in group.members] == ["x/a", "y/a", "b"]
    with pytest.raises(InputError, match="twice"):
        make_groups([runs[0], stored(tmp_path / "y" / ".." / "x" / "a")])


def test_the_best_epoch_is_called_by_its_training_too(tmp_path: Path) -> None:
    runs = [stored(tmp_path / "p2"), stored(tmp_path / "p2" / "best"), stored(tmp_path / "p3")]
    (group,) = make_groups(runs)
    assert [member.name for member in group.members] == ["p2", "p2/best", "p3"]


def test_names_of_files_that_are_the_same_get_numbers(tmp_path: Path) -> None:
    runs = [
        stored(tmp_path / k, data=data) for k, data in (("1", "a b"), ("2", "a-b"), ("3", "a_b"))
    ]
    assert slugs(make_groups(runs)) == [
        "a-b-rotation",
        "a-b-rotation-again-1",
        "a-b-rotation-again-2",
    ]


def test_no_runs_and_empty_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a run's folder"):
        make_groups([])
    with pytest.raises(InputError, match=r"the run in .*b is empty; it must have at least one"):
        make_groups([stored(tmp_path / "a"), stored(tmp_path / "b", [])])


def test_radii_are_used_where_their_unit_fits(tmp_path: Path) -> None:
    runs = [
        stored(tmp_path / "a"),
        stored(tmp_path / "b", deformation=Translation(), law=Gaussian(0.2)),
        stored(tmp_path / "c", deformation=Scaling()),
        stored(tmp_path / "d", deformation=Affine(), law=Gaussian(0.1)),
        stored(tmp_path / "e", None, *COMPOSED),
    ]
    texts = ("30deg", "10deg", "10.0 deg", "5px", "20%", "0.065", "0.2rad")
    assert shown(runs, *texts) == [
        ["10°", "0.2 rad", "30°"],
        ["0.065", "5 px"],
        ["0.065", "20 %"],
        ["0.065"],
        [],
    ]


@pytest.mark.parametrize("text", ["5px", "ten", "-3deg", "10", "1e999deg", "", "nan deg"])
def test_a_radius_that_fits_no_run_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the radius is .*e\.g\. 10deg \(rotation\)"):
        shown([stored(tmp_path)], "10deg", text)


def test_a_composition_takes_no_radius(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a composition a region"):
        shown([stored(tmp_path, None, *COMPOSED)], "10deg")


def test_radii_are_chosen_where_none_is_given(tmp_path: Path) -> None:
    """Round numbers up to the largest radius, which is 0.986 * 1 rad = 56.5 degrees."""
    assert shown([stored(tmp_path / "a")]) == [["0°", "10°", "20°", "30°", "40°", "50°"]]
    turn = stored(tmp_path / "d", law=Uniform(math.pi))
    assert shown([turn]) == [["0°", "45°", "90°", "135°", "180°"]]
    small = stored(tmp_path / "b", deformation=Affine(), law=Gaussian(0.01))
    assert shown([small]) == [["0", "0.005", "0.01", "0.015", "0.02"]]
    assert shown([stored(tmp_path / "c", None, *COMPOSED)]) == [[]]


def test_runs_of_very_different_reach_are_compared_where_both_hold(tmp_path: Path) -> None:
    short = stored(tmp_path / "a", law=Uniform(math.radians(30)))
    (labels,) = shown([short, stored(tmp_path / "b", law=Uniform(math.pi))])
    assert {"0°", "10°", "20°", "90°", "180°"} <= set(labels)


def test_a_radius_is_decided_only_if_it_was_requested(tmp_path: Path) -> None:
    """Even one that the noise cannot certify, of which 0 % are certain."""
    run = decided(stored(tmp_path / "a"), radii=["10deg", "70deg"], regions=["rotation<=20deg"])
    (group,) = make_groups([run])
    member = group.members[0]
    texts = ("10deg", "20deg", "30deg", "70deg", "90deg")
    (radii,) = choose_radii([group], texts)
    assert [member.decides(radius) for radius in radii] == [True, True, False, True, False]
    assert member.decides(Region.parse("rotation<=10deg"))
    assert not member.decides(Region.parse("rotation<=15deg"))
    assert not member.decides(Region.parse("rotation<=90deg"))


def test_where_nothing_is_certified_there_is_only_zero(tmp_path: Path) -> None:
    (group,) = make_groups([stored(tmp_path, [Entry(0, 0, 500)] * 3)])
    assert [radius.label for radius in default_radii(group)] == ["0°"]
    (group,) = make_groups([stored(tmp_path, many(3))])
    assert len(default_radii(group)) == 6
