"""Every family in one figure: growing, beside its vector fields, and certified."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from exhibits import QUICK, colours, drawn, photograph, smooth, smooth_coin, spot, words
from torch import Tensor

from deformrs import (
    DCT,
    Bound,
    Compose,
    Deformation,
    Gaussian,
    Independent,
    Rotation,
    Scaling,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.cli.gallery import Subject, exhibit_families
from deformrs.errors import InputError
from deformrs.report.gallery.families import (
    HABITS,
    default_families,
    growing_params,
    suggested_noise,
    varied_params,
)
from deformrs.report.gallery.fields import draw_fields, field_rows
from deformrs.report.gallery.growth import draw_growth
from deformrs.report.gallery.samples import draw_rows
from deformrs.units import Size

TITLES = [
    "rotation",
    "translation",
    "scaling",
    "shear",
    "affine",
    "dct (k = 2, basis = dct)",
    "vector field",
    "rotation, then scaling, then translation",
    "lens",
]
SIZES = [(28, 28), (20, 50), (224, 224)]


@pytest.fixture(autouse=True)
def known_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Families that other tests bring in while they run are not looked at."""
    monkeypatch.setattr(Deformation, "registry", KNOWN)


@dataclass(frozen=True)
class Needy(Deformation):
    """A family that cannot be made without arguments, and gives no example."""

    amount: float

    def dim(self, size: Size) -> int:
        return 1

    def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
        return params[:, :, None, None] * self.amount * points


KNOWN = dict(Deformation.registry)


@pytest.fixture
def needy() -> Iterator[None]:
    Needy.name = "needy"
    Deformation.registry["needy"] = Needy
    yield
    del Deformation.registry["needy"]


def test_every_registered_family_comes_once_the_users_own_last() -> None:
    found = [family.name for family in default_families()]
    assert found[:8] == [*HABITS, "compose"]
    assert sorted(found) == sorted(Deformation.registry)
    assert found[-1] == "lens"


@pytest.mark.usefixtures("needy")
def test_a_family_without_examples_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'needy' is without an example .*override examples"):
        default_families()
    draw_growth(photograph(), tmp_path / "g.png", deformations=[Needy(2.0)], columns=2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("deformation", default_families(), ids=repr)
def test_suggested_noise_suits_every_family(deformation: Deformation, size: Size) -> None:
    space = deformation.space(size)
    radii = suggested_noise(space).radii(Bound(0.9, 0.1), space)
    assert len(radii) == len(space.blocks)
    assert min(radii) > 0


def test_suggested_noise_is_that_of_the_table() -> None:
    size = (28, 28)
    assert suggested_noise(Rotation().space(size)) == Uniform(math.radians(30))
    assert suggested_noise(VectorField().space(size)) == Gaussian(0.5 / 14)
    lens = Deformation.registry["lens"]()
    assert suggested_noise(lens.space(size)) == Gaussian(0.1)
    assert suggested_noise(Compose(Scaling(), lens).space(size)) == Independent(
        Uniform(0.3), Gaussian(0.1)
    )


@pytest.mark.parametrize("deformation", default_families(), ids=repr)
def test_strength_grows_evenly(deformation: Deformation) -> None:
    params = growing_params(deformation, (28, 28), 4, seed=2)
    assert params.shape == (4, deformation.dim((28, 28)))
    torch.testing.assert_close(params, params[-1] * torch.tensor([[1], [2], [3], [4]]) / 4)
    assert torch.equal(params, growing_params(deformation, (28, 28), 4, seed=2))
    if deformation.dim((28, 28)) > 1 and deformation.name != "compose":
        assert not torch.equal(params, growing_params(deformation, (28, 28), 4, seed=3))
    varied = varied_params(deformation, (28, 28), 4, seed=2)
    assert len({tuple(row) for row in varied.tolist()}) == 4


def test_the_table_is_in_the_units_of_the_families() -> None:
    assert growing_params(Rotation(), (28, 28), 2).tolist() == [
        [pytest.approx(math.radians(30))],
        [pytest.approx(math.radians(60))],
    ]
    assert varied_params(Scaling(), (28, 28), 3).tolist() == [[0.4], [-0.4], [pytest.approx(0.2)]]
    free = growing_params(VectorField(), (28, 28), 1)
    assert free.square().mean().sqrt().item() == pytest.approx(0.04)


@pytest.mark.parametrize("size", SIZES)
def test_growth_without_a_classifier(size: Size, tmp_path: Path) -> None:
    image = photograph(3, *size)
    draw_growth(image, tmp_path / "g.svg", columns=3)
    lines = words(tmp_path / "g.svg")
    assert [line for line in lines if line in TITLES] == TITLES
    assert [line for line in lines if line.endswith("°")] == ["+20°", "+40°", "+60°"]
    assert lines.count("original") == len(TITLES)
    assert len([line for line in lines if line.startswith("moves ")]) == 5 * 3


def test_galleries_of_all_families_are_not_blank(tmp_path: Path) -> None:
    image = photograph(3, 20, 50)
    draw_growth(image, tmp_path / "g.png", columns=2)
    draw_fields(image, field_rows((20, 50), count=1), tmp_path / "f.png")
    for name in ("g.png", "f.png"):
        height, width, _ = drawn(tmp_path / name).shape
        assert height > width > 400
        assert colours(tmp_path / name) > 500


def test_certified_grid_of_every_family(tmp_path: Path) -> None:
    rows = exhibit_families(smooth, Subject(spot(), index=2), QUICK)
    assert [row.title for row in rows] == TITLES
    for row, family in zip(rows, default_families(), strict=True):
        certificate = row.exhibit.certificate
        noise = suggested_noise(family.space((24, 32)))
        assert certificate == smooth(family, noise).certify(spot(), 200, 20, index=2)
        assert len(row.samples) == 4
        assert all(certificate.covers(sample.shift) for sample in row.samples)
    draw_rows(rows, tmp_path / "grid.svg", names=["left", "right"])
    lines = words(tmp_path / "grid.svg")
    assert lines.count("✓ right") == 5 * len(TITLES)
    draw_rows(rows, tmp_path / "grid.png")
    draw_rows(rows, tmp_path / "again.png")
    assert (tmp_path / "grid.png").read_bytes() == (tmp_path / "again.png").read_bytes()


def test_a_grid_of_abstentions_says_so(tmp_path: Path) -> None:
    rows = exhibit_families(
        smooth_coin, Subject(photograph()), QUICK, deformations=[Rotation(), DCT()]
    )
    assert [row.exhibit.certificate.prediction for row in rows] == [None, None]
    draw_rows(rows, tmp_path / "grid.svg")
    assert words(tmp_path / "grid.svg").count("abstains: no class is certain enough") == 2


def test_a_grid_takes_other_noise_and_reports_progress() -> None:
    seen: list[tuple[int, int]] = []
    rows = exhibit_families(
        smooth,
        Subject(spot()),
        QUICK,
        deformations=[Rotation(), Translation()],
        noise=lambda space: Gaussian(0.02),
        report=lambda done, total: seen.append((done, total)),
    )
    assert {row.exhibit.certificate.law for row in rows} == {Gaussian(0.02)}
    assert seen[-1] == (2 * (220 + 5 * 40),) * 2
    with pytest.raises(InputError, match="cannot hold for every family"):
        exhibit_families(smooth, Subject(spot(), certificate=rows[0].exhibit.certificate), QUICK)
    with pytest.raises(InputError, match="the number of deformations is 0"):
        exhibit_families(smooth, Subject(spot()), QUICK, deformations=[])


def test_bad_paths_and_images_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must end in"):
        draw_growth(photograph(), tmp_path / "g.bmp")
    with pytest.raises(InputError, match="must end in"):
        draw_fields(photograph(), field_rows((24, 32)), tmp_path / "g.bmp")
    with pytest.raises(InputError, match="must lie in"):
        draw_growth(2 + photograph(), tmp_path / "g.png")
    with pytest.raises(InputError, match="columns is 0"):
        draw_growth(photograph(), tmp_path / "g.png", columns=0)
    with pytest.raises(InputError, match="seed is -1"):
        draw_growth(photograph(), tmp_path / "g.png", seed=-1)
    assert list(tmp_path.iterdir()) == []
