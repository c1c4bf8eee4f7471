"""The paper's compositions by two routes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from paper_runs import both_routes, compare, composed_law, run, table_rows

from deformrs import (
    Affine,
    Compose,
    Deformation,
    Gaussian,
    Independent,
    Region,
    Rotation,
    Scaling,
    Shear,
    Translation,
    Uniform,
)
from deformrs.config import Config, ConfigValue
from deformrs.regions import Shift
from made_runs import many, stored
from paper.runs import COMPOSITIONS

SHEARED, MOVED = COMPOSITIONS
SPACE = Affine().space((28, 28))


def test_the_regions_are_the_papers() -> None:
    """0.0651 and 0.503, as it prints them, in each order."""
    assert SHEARED.orders == (SHEARED.text,), "the image is turned, then sheared"
    assert f"{Region.parse(SHEARED.text).radius_needed(SPACE):.4f}" == "0.0651"
    needed = [Region.parse(text).radius_needed(SPACE) for text in MOVED.orders]
    assert [f"{value:.3f}" for value in needed] == ["0.503"] * 3
    other = Region.parse("rotation<=10deg, scale=0.8..1.2, shift<=0.3162277661")
    assert other.radius_needed(SPACE) > 0.54, "the zoom enlarges a shift that comes after it"


def test_no_shift_is_cut_off() -> None:
    for text in MOVED.orders:
        (shift,) = (factor for factor in Region.parse(text).factors if isinstance(factor, Shift))
        assert shift.length is not None
        assert Fraction(shift.length) ** 2 >= Fraction(1, 10)
        assert shift.length < math.sqrt(0.1) * (1 + 1e-9)


def test_both_routes_and_the_better_one(tmp_path: Path) -> None:
    found, page = compare(both_routes(tmp_path))
    affine = found["cifar10", f"{MOVED.name}, affine", MOVED.text]
    chain = found["cifar10", f"{MOVED.name}, composed", MOVED.text]
    assert (affine["ours"], affine["difference"], affine["scale"]) == ("75.00", "24.59", "0.3")
    assert (chain["ours"], chain["difference"]) == ("87.50", "37.09")
    assert chain["scale"] == repr(composed_law(0.8))
    assert found["cifar10", MOVED.name, MOVED.text] == chain | {"deformation": MOVED.name}
    assert chain["paper"] == "50.41"
    sheared = found["cifar10", SHEARED.name, SHEARED.text]
    assert (sheared["ours"], sheared["difference"]) == ("75.00", "-16.28")
    assert ("cifar10", f"{SHEARED.name}, composed", SHEARED.text) not in found
    assert "1 of 2 compositions" in page
    assert "- CIFAR-10, rotation+shear: −16.28 points" in page
    table = table_rows(page, "CIFAR-10: compositions")
    assert [row[1].split(" ")[0] for row in table] == ["affine", "affine", "composed"]
    assert table[0][5] == "BAL 54.20 %"
    assert table[2][3:5] == ["87.50 % (35/40)", "+37.09"]
    assert "chain.svg" not in page, "it has no single radius"


@pytest.mark.parametrize(
    ("parts", "valid"),
    [
        ((Translation(), Scaling(), Rotation()), True),
        ((Rotation(), Translation(), Scaling()), True),
        ((Rotation(), Scaling(), Translation()), False),
        ((Scaling(), Translation(), Rotation()), False),
        ((Rotation(), Scaling()), False),
    ],
)
def test_only_orders_of_the_same_maps_are_compared(
    parts: tuple[Deformation, ...], valid: bool, tmp_path: Path
) -> None:
    laws: dict[str, Uniform | Gaussian] = {
        "translation": Gaussian(0.8),
        "rotation": Uniform(math.pi),
        "scaling": Uniform(0.9),
    }
    law = Independent(*(laws[part.name] for part in parts))
    chain = run(tmp_path / "chain", 35, Compose(*parts), law, "mnist")
    found, page = compare([chain])
    assert bool(found) == valid
    assert ("Not compared: mnist/chain: the paper has no composition of these" in page) != valid
    if valid:
        assert found["mnist", MOVED.name, MOVED.text]["ours"] == "87.50"


def test_a_composition_that_no_run_was_sampled_for_is_marked(tmp_path: Path) -> None:
    made = run(tmp_path / "affine", 5, Affine(), Gaussian(0.3), "cifar10")

    def page(radii: list[ConfigValue], regions: list[ConfigValue]) -> str:
        stopping: Config = {"radii": radii, "regions": regions, "tolerance": None}
        stopped = replace(made, config=made.config | {"stopping": stopping})
        return compare([stopped])[1]

    listed = f"- CIFAR-10, {MOVED.name}: −37.91 points"
    assert f"{listed} (requested of no run)\n" in page(["0.1"], [SHEARED.text])
    assert f"{listed}\n" in page([], [MOVED.text.replace(" ", "")])
    plain = compare([made])[1]
    assert f"{listed}\n" in plain


def test_the_orders_have_the_same_maps() -> None:
    """p -> alpha R p + t: a shift that comes after the turn is a turned one of the same length."""
    angle, zoom, shift = torch.tensor([0.15]), torch.tensor([-0.2]), torch.tensor([0.25, -0.1])
    cos, sin = math.cos(0.15), math.sin(0.15)
    turned = torch.tensor([[cos, -sin], [sin, cos]]) @ shift
    parts = {
        "shift": (Translation(), turned),
        "rotation": (Rotation(), angle),
        "scale": (Scaling(), zoom),
    }
    fields = []
    for text in MOVED.orders:
        names = [word.replace("=", "<").partition("<")[0] for word in text.split(", ")]
        chosen = parts | ({"shift": (Translation(), shift)} if names[0] == "rotation" else {})
        params = torch.cat([chosen[name][1] for name in names])[None]
        fields.append(Compose(*(chosen[name][0] for name in names)).field(params, (28, 20)))
    assert float(fields[0].abs().max()) > 0.1
    for field in fields[1:]:
        assert torch.allclose(field, fields[0], atol=1e-5)


@pytest.mark.parametrize("turned_first", [True, False])
def test_a_shear_comes_after_the_turn(turned_first: bool, tmp_path: Path) -> None:
    """The paper's map is R(theta) times the shear, and no other is what the text says."""
    parts = (Rotation(), Shear()) if turned_first else (Shear(), Rotation())
    law = Independent(*(Uniform(1.0) for _ in parts))
    chain = run(tmp_path / "sheared", 38, Compose(*parts), law, "cifar10")
    fuller = both_routes(tmp_path)[1]
    found, page = compare([chain, fuller])
    key = ("cifar10", f"{SHEARED.name}, composed", SHEARED.text)
    said = "the paper has no composition of these families in this order"
    assert (key in found) == turned_first
    assert (f"Not compared: cifar10/sheared: {said}." in page) != turned_first
    if turned_first:
        assert found[key]["ours"] == "95.00"


def test_guarantee_count_has_only_images_that_are_covered(tmp_path: Path) -> None:
    one = stored(tmp_path / "a", many(60), Affine(), Gaussian(0.3), data="mnist")
    region = Region.parse(MOVED.text)
    truth = sum(r.correct and r.certificate.covers_region(region) for r in one.results)
    assert MOVED.count(one.results).count == truth
    assert 0 < truth < 60


def test_a_composition_is_chosen_among_runs_of_as_many_images(tmp_path: Path) -> None:
    few = run(tmp_path / "few", 10, Affine(), Gaussian(0.3), "cifar10", total=10)
    row = compare([few, *both_routes(tmp_path)])[0]["cifar10", f"{MOVED.name}, affine", MOVED.text]
    assert (row["ours"], row["images"]) == ("75.00", "40")
