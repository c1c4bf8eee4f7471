"""The numbers of the paper: as printed, in the right units, the impossible ones marked."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import pytest
from scipy.special import ndtri

from paper.numbers import COLUMNS, NUMBERS, SIZES, Number, paper_table

Row = dict[str, str]
# A hundred thousand hits of as many: Gaussian noise certifies no further than this many sigma.
FURTHEST = float(ndtri(0.001 ** (1 / 100_000)))


def read() -> list[Row]:
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows_by_scale() -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in read():
        if row["table"] == "ablation":
            found[row["dataset"], row["deformation"], row["noise"], row["scale"]].append(row)
    return found


def limit(key: tuple[str, ...]) -> float:
    """The radius that no certificate of that noise reaches, in the unit of the table."""
    dataset, deformation, noise, scale = key
    if noise == "uniform":
        return float(scale)
    pixels = SIZES[dataset][0] / 2 if deformation in ("translation", "vector_field") else 1
    return float(scale) * FURTHEST * pixels


def possible_averages(
    key: tuple[str, ...], points: list[tuple[float, float]]
) -> tuple[float, float]:
    """Between which bounds the average radius lies: certified accuracy falls between its points."""
    furthest = limit(key)
    low = sum((r - s) * a for (r, a), (s, _) in zip(points, [(0.0, 0.0), *points], strict=False))
    ends = [min(r, furthest) for r, _ in points] + [furthest]
    starts = [(0.0, 100.0), *points]
    high = sum(
        max(0.0, end - min(r, furthest)) * a for end, (r, a) in zip(ends, starts, strict=True)
    )
    return low / 100, high / 100


def test_exactly_the_impossible_numbers_of_the_ablations_are_marked() -> None:
    """Beyond the noise, rising with the radius, or an average that the row does not allow."""
    doubtful, marked = set(), set()
    for key, rows in rows_by_scale().items():
        points = sorted(
            (float(r["radius"]), float(r["certified_accuracy"])) for r in rows if r["radius"]
        )
        (average,) = (float(r["average_radius"]) for r in rows if r["average_radius"])
        if any(a > 0 and r >= limit(key) for r, a in points):
            doubtful.add((key, "accuracy"))
        assert all(b <= a for (_, a), (_, b) in pairwise(points)), key
        low, high = possible_averages(key, points)
        if not low - 0.006 <= average <= high + 0.006:
            doubtful.add((key, "average"))
        marked |= {(key, "accuracy" if r["radius"] else "average") for r in rows if r["misprint"]}
    failed = ("cifar10", "rotation", "uniform", "180")  # possible, but no result: see the reason
    assert marked == doubtful | {(failed, "accuracy"), (failed, "average")}
    assert len(doubtful) == 4


def test_the_headline_figures_that_contradict_the_ablations_are_marked() -> None:
    marked = {
        (
            row["dataset"],
            row["deformation"],
            row["radius"],
            row["method"],
            row["certified_accuracy"],
        )
        for row in read()
        if row["table"] == "headline" and row["misprint"]
    }
    assert marked == {
        ("mnist", "translation", "5", "DeformRS", "99.20"),
        ("imagenet", "translation", "5", "DeformRS", "48.20"),
        ("cifar10", "rotation", "10", "BAL", "87.80"),
    }


def at(dataset: str, deformation: str, radius: str) -> Number:
    paper = paper_table(dataset, {"name": deformation, "k": 2, "basis": "cosine"})
    assert paper is not None
    best = paper.best(Fraction(radius))
    assert best is not None
    return best


@pytest.mark.parametrize(
    ("dataset", "deformation", "radius", "shown"),
    [
        ("mnist", "rotation", "30", "96.85 %"),
        ("cifar10", "scaling", "20", "90.53 %"),  # the ablation; the main table has 90.30
        ("imagenet", "rotation", "10", "39.00 %"),  # 39.40 stands in an impossible row
        ("imagenet", "scaling", "15", "42.80 %"),
        ("imagenet", "translation", "5", "48.20 % †"),  # there is no other
        ("imagenet", "translation", "4", "47.60 %"),
        ("imagenet", "affine", "0.0651", "43.60 %"),
        ("cifar10", "affine", "0.503", "50.41 %"),
        ("cifar10", "rotation", "150", "71.95 %"),
        ("mnist", "dct", "0.1", "97.58 %"),
        ("cifar10", "vector_field", "1", "75.83 %"),
    ],
)
def test_the_best_over_scales(dataset: str, deformation: str, radius: str, shown: str) -> None:
    """Read off the tables of the paper."""
    assert at(dataset, deformation, radius).label == shown


def test_scales_are_in_our_units() -> None:
    """54 degrees; 30 per cent; sigma 0.04 of half a side, whose radii are in pixels."""

    def at_scale(deformation: str, dataset: str, scale: float) -> list[Number]:
        table = paper_table(dataset, {"name": deformation})
        assert table is not None
        return [n for n in table.numbers if n.scale is not None and math.isclose(n.scale, scale)]

    row = at_scale("rotation", "mnist", math.radians(54))
    assert [n.label for n in row if n.radius == 45] == ["95.14 %"]
    assert [n.average for n in row if n.average] == [Fraction("52.14")]
    row = at_scale("scaling", "imagenet", 0.3)
    assert [n.label for n in row if n.radius == 20] == ["40.00 %"]
    assert [n.average for n in row if n.average] == [13], "per cent, like the radius"
    row = at_scale("translation", "imagenet", 0.04)
    assert [n.label for n in row if n.radius == 16] == ["27.80 %"]


def test_the_file_has_these_columns() -> None:
    assert NUMBERS.read_text(encoding="utf-8").splitlines()[0] == ",".join(COLUMNS)


def test_what_the_paper_does_not_have() -> None:
    assert paper_table("imagenet", {"name": "vector_field"}) is None
    assert paper_table("digits", {"name": "rotation"}) is None
    assert paper_table(None, {"name": "rotation"}) is None
    assert paper_table("mnist", {"name": "dct", "k": 2, "basis": "dct"}) is None, "another basis"
    assert paper_table("mnist", {"name": "dct", "k": 3, "basis": "cosine"}) is None
