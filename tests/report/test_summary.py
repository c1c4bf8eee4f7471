"""Counts over the results of a run, at radii and on whole regions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from deformrs import Affine, Counts, Gaussian, Region, Rotation, Uniform
from deformrs.errors import InputError
from deformrs.regions import Rotate, Scale
from deformrs.report.captions import region_words
from deformrs.report.radii import Radius
from deformrs.report.summary import (
    average_radius,
    count_certified,
    count_region,
    interval,
    summarise,
    summarise_classes,
)
from deformrs.runs import Result, read_run
from deformrs.space import Space
from made_runs import ALPHA, Entry, many, results, stored

ANGLE = Rotation().space((28, 28)).blocks[0]


@pytest.mark.parametrize("method", ["clopper_pearson", "bonferroni"])
def test_guarantee_count_region_agrees_with_every_single_certificate(
    method: str, tmp_path: Path
) -> None:
    run = stored(tmp_path / "a", many(60), Affine(), Gaussian(0.2), on_disk=True)
    region = Region.parse("rotation<=5deg, scale=0.95..1")
    some = read_run(run.folder, method=method).results
    one_by_one = sum(r.correct and r.certificate.covers_region(region) for r in some)
    assert count_region(some, region).count == one_by_one
    assert 0 < one_by_one < len(some)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_that_cannot_be_ordered_are_evaluated_one_by_one(seed: int) -> None:
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
    assert count_region(some, region).count == one_by_one
    assert 0 < one_by_one < sum(r.correct for r in some)


class Counted(Region):
    """A region that counts how often it is worked through."""

    asked = 0

    def shifts(self, space: Space) -> Iterator[NDArray[np.float64]]:
        Counted.asked += 1
        yield from super().shifts(space)


def test_a_region_is_enclosed_for_few_of_many_images(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", many(500))
    region = Counted(Rotate(-0.3, 0.3))
    assert count_region(run.results, region).count == sum(
        result.holds(0.3) for result in run.results
    )
    assert 1 <= Counted.asked <= 12


def test_a_region_in_words() -> None:
    said = region_words(Region.parse("shear=0%..2%, shift<=0.316, rotation=-5deg..10deg"))
    assert said == (
        "shear from 0 % to 2 %, then shift up to 0.316 half sides, then rotation from -5° to 10°"
    )


@pytest.mark.parametrize("text", ["zoom=0.95..1.05", "zoom=0.7..1.3", "scale=0.9..1.1"])
def test_a_region_in_words_is_not_larger_than_it_is(text: str) -> None:
    region = Region.parse(text)
    (factor,) = region.factors
    assert isinstance(factor, Scale)
    low, high = map(float, re.findall(r"from (\S+) to (\S+) ", region_words(region))[0])
    assert factor.low * (1 - 1e-14) <= low < high <= factor.high * (1 + 1e-14)


def test_a_region_where_nothing_is_correct(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", [Entry(0, 1, 1000)] * 3)
    assert count_region(run.results, Region.parse("rotation<=5deg")).count == 0
    assert count_region(run.results, Region.parse("shift<=5px")).count is None


def four() -> list[Result]:
    """Radii: 2 p_A - 1 = 0.9862 (correct), 0.52 (correct), 0.9862 (wrong), abstains."""
    images = [Entry(1, 1, 1000), Entry(1, 1, 800), Entry(0, 1, 1000), Entry(1, 1, 510)]
    return results(images, Rotation(), Uniform(1.0), 2)


def test_certified_accuracy_counts_only_correct_and_certified_predictions() -> None:
    assert [count_certified(four(), radius) for radius in (0.0, 0.5, 0.6, 0.99)] == [2, 2, 1, 0]


def test_average_radius_counts_wrong_and_abstaining_as_zero() -> None:
    radii = [result.certificate.radius for result in four()[:2]]
    assert average_radius(four()) == pytest.approx(sum(radii) / 4)
    assert average_radius(four()) <= sum(radii) / 4


def test_no_results_no_average() -> None:
    with pytest.raises(InputError, match="at least one"):
        average_radius([])


def test_a_summary_adds_up_over_classes(tmp_path: Path) -> None:
    run = stored(tmp_path, many(90))
    radii = (Radius("10deg", ANGLE), Radius("50deg", ANGLE))
    whole, parts = summarise(run.results, radii), summarise_classes(run.results, radii)
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


@pytest.mark.parametrize(("count", "total"), [(0, 20), (20, 20), (7, 12), (991, 1000)])
def test_intervals_are_exact_and_rounded_outwards(count: int, total: int) -> None:
    """Either end leaves 2.5 % beyond it, by the binomial distribution of scipy."""
    low, high = (float(text) / 100 for text in interval(count, total))
    assert low <= count / total <= high
    for end, tail, inside in ((low, binom.sf, count - 1), (high, binom.cdf, count)):
        if 0 < end < 1:
            assert tail(inside, total, end) <= 0.025
            nearer = end + (0.002 if end == low else -0.002)
            assert tail(inside, total, nearer) > 0.025
