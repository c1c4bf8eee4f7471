"""The committed results say what their certificates say."""

from __future__ import annotations

import math
import re

import pytest

from conftest import ROOT
from deformrs import Region
from deformrs.rounding import percent_down
from deformrs.runs import Result, load_run

IMAGENET = ROOT / "results" / "imagenet"
ASKED = {"rotation": math.radians(10), "scaling": 0.15, "translation": 5 / 112, "affine": 0.0651}


def row(results: list[Result], held: int) -> str:
    return f"| {percent_down(held, len(results))} % ({held} of {len(results):,}) |"


@pytest.mark.parametrize("name", ASKED)
def test_the_table_of_imagenet_is_what_was_certified(name: str) -> None:
    results = load_run(IMAGENET / name)
    held = sum(result.holds(ASKED[name]) for result in results)
    assert row(results, held) in (IMAGENET / "README.md").read_text()


def test_every_angle_of_imagenet() -> None:
    results = load_run(IMAGENET / "circle")
    everywhere = sum(result.holds(math.pi) for result in results)
    text = (IMAGENET / "README.md").read_text()
    assert f"| every angle {row(results, everywhere)}" in text
    right = sum(result.plain == result.label for result in results)
    share = f"{percent_down(right, len(results))} % ({right:,})"
    assert re.sub(r"\s+", " ", text).count(share) == 1


def test_the_affine_radius_covers_the_region() -> None:
    region = Region.parse("rotation<=2deg, shear=0..2%")
    results = load_run(IMAGENET / "affine")
    held = sum(r.correct and r.certificate.covers_region(region) for r in results)
    assert held == sum(result.holds(0.0651) for result in results)
