"""How many images of a run are certified on a whole region."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from made_runs import ALPHA, Entry, many, stored
from numpy.typing import NDArray

from deformrs import Affine, Counts, Gaussian, Region, Rotation, Uniform
from deformrs.regions import Rotate
from deformrs.report.coverage import covered, region_words
from deformrs.runs import Result, read_run
from deformrs.space import Space


@pytest.mark.parametrize("method", ["clopper_pearson", "bonferroni"])
def test_guarantee_covered_agrees_with_every_single_certificate(
    method: str, tmp_path: Path
) -> None:
    run = stored(tmp_path / "a", many(60), Affine(), Gaussian(0.2), on_disk=True)
    region = Region.parse("rotation<=5deg, scale=0.95..1")
    some = read_run(run.folder, method=method).results
    one_by_one = sum(r.correct and r.certificate.covers_region(region) for r in some)
    assert covered(some, region).count == one_by_one
    assert 0 < one_by_one < len(some)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_that_cannot_be_ordered_are_asked_one_by_one(seed: int) -> None:
    """More on the candidate may come with more on the runner-up: neither bound is the better."""
    generator = np.random.default_rng(seed)
    space, law = Rotation().space((28, 28)), Uniform(1.0)
    some = []
    for index in range(100):
        first = int(generator.integers(350, 900))
        second = int(generator.integers(0, min(first, 1000 - first) + 1))
        counts = Counts((100, 0, 0), (first, second, 1000 - first - second))
        some.append(Result(index, 0, law.certify(counts, space, ALPHA, "bonferroni")))
    region = Region.parse("rotation<=20deg")
    one_by_one = sum(r.correct and r.certificate.covers_region(region) for r in some)
    assert covered(some, region).count == one_by_one
    assert 0 < one_by_one < sum(r.correct for r in some)


class Counted(Region):
    """A region that counts how often it is worked through."""

    asked = 0

    def shifts(self, space: Space) -> Iterator[NDArray[np.float64]]:
        Counted.asked += 1
        yield from super().shifts(space)


def test_a_region_is_worked_through_for_few_of_many_images(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", many(500))
    region = Counted(Rotate(-0.3, 0.3))
    assert covered(run.results, region).count == sum(result.holds(0.3) for result in run.results)
    assert 1 <= Counted.asked <= 12


def test_regions_are_said_as_people_say_them() -> None:
    said = region_words(Region.parse("shear=0%..2%, shift<=0.316, rotation=-5deg..10deg"))
    assert said == (
        "shear from 0 % to 2 %, then shift up to 0.316 half sides, then rotation from -5° to 10°"
    )


def test_a_region_is_asked_where_nothing_is_right(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", [Entry(0, 1, 1000)] * 3)
    assert covered(run.results, Region.parse("rotation<=5deg")).count == 0
    assert covered(run.results, Region.parse("shift<=5px")).count is None
