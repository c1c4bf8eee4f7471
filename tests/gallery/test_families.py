"""Every family in one figure: growing, with its vector fields, and certified."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from exhibits import colours, photograph, sampled, smooth, spot, words
from torch import Tensor

from deformrs import (
    Bound,
    Compose,
    Deformation,
    Gaussian,
    Independent,
    Rotation,
    Scaling,
    Uniform,
    VectorField,
)
from deformrs.errors import InputError
from deformrs.report.gallery import (
    default_families,
    default_noise,
    draw_fields,
    draw_growth,
    draw_samples,
)
from deformrs.report.gallery.families import DEFAULTS, growing_params, varied_params
from deformrs.units import Size

TITLES = [
    "rotation",
    "translation",
    "scaling",
    "shear",
    "affine",
    "DCT (k = 2, basis = dct)",
    "vector field",
    "rotation, then scaling, then translation",
    "lens",
]
SIZES = [(28, 28), (20, 50), (224, 224)]


@pytest.fixture(autouse=True)
def known_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out families that other tests define while they run."""
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
    names = [family.name for family in default_families()]
    assert names[:8] == [*DEFAULTS, "compose"]
    assert sorted(names) == sorted(Deformation.registry)
    assert names[-1] == "lens"


@pytest.mark.usefixtures("needy")
def test_a_family_without_examples_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'needy' is without an example .*override examples"):
        default_families()
    draw_growth(photograph(), tmp_path / "g.png", deformations=[Needy(2.0)], columns=2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("deformation", default_families(), ids=repr)
def test_default_noise_suits_every_family(deformation: Deformation, size: Size) -> None:
    space = deformation.space(size)
    radii = default_noise(space).radii(Bound(0.9, 0.1), space)
    assert len(radii) == len(space.blocks)
    assert min(radii) > 0


def test_default_noise_is_that_of_the_table() -> None:
    size = (28, 28)
    assert default_noise(Rotation().space(size)) == Uniform(math.radians(30))
    assert default_noise(VectorField().space(size)) == Gaussian(0.5 / 14)
    lens = Deformation.registry["lens"]()
    assert default_noise(lens.space(size)) == Gaussian(0.1)
    assert default_noise(Compose(Scaling(), lens).space(size)) == Independent(
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


def test_growth_without_a_classifier(tmp_path: Path) -> None:
    draw_growth(photograph(3, 20, 50), tmp_path / "g.svg", columns=3)
    lines = words(tmp_path / "g.svg")
    assert [line for line in lines if line in TITLES] == TITLES
    assert [line for line in lines if line.endswith("°")] == ["+20°", "+40°", "+60°"]
    assert lines.count("original") == len(TITLES)
    assert len([line for line in lines if line.startswith("moves ")]) == 5 * 3


def test_fields_after_images(tmp_path: Path) -> None:
    draw_fields(photograph(1), tmp_path / "f.svg")
    lines = words(tmp_path / "f.svg")
    assert "Gaussian random deformations (each pixel on its own)" in lines
    titles = [line.removesuffix(" (a smooth one)") for line in lines]
    assert [title for title in titles if title in TITLES] == TITLES
    assert len([line for line in lines if re.fullmatch(r"[\d.]+ px", line)]) == len(TITLES) + 1
    assert "points from a pixel to where that pixel is read" in " ".join(lines)


def test_galleries_of_families_are_not_blank(tmp_path: Path) -> None:
    image, some = photograph(3, 64, 60), [Rotation(), VectorField()]
    draw_growth(image, tmp_path / "g.png", deformations=some, columns=2)
    draw_fields(image, tmp_path / "f.png", deformations=some, count=1)
    for name in ("g.png", "f.png"):
        assert colours(tmp_path / name) > 500


def test_certified_samples_of_every_family(tmp_path: Path) -> None:
    rows = [
        sampled(smooth(family, default_noise(family.space((24, 32)))), spot())
        for family in default_families()
    ]
    for row in rows:
        assert len(row.samples) == 4
        assert all(row.exhibit.certificate.covers(sample.shift) for sample in row.samples)
    draw_samples(rows, tmp_path / "g.svg", names=["left", "right"])
    assert words(tmp_path / "g.svg").count("✓ right") == 5 * len(TITLES)


def test_bad_paths_and_images_are_refused_first(tmp_path: Path) -> None:
    for draw in (draw_growth, draw_fields):
        with pytest.raises(InputError, match="must end in"):
            draw(photograph(), tmp_path / "g.bmp")
        with pytest.raises(InputError, match="must lie in"):
            draw(2 + photograph(), tmp_path / "g.png")
        with pytest.raises(InputError, match="seed is -1"):
            draw(photograph(), tmp_path / "g.png", seed=-1)
    with pytest.raises(InputError, match="columns is 0"):
        draw_growth(photograph(), tmp_path / "g.png", columns=0)
    with pytest.raises(InputError, match="in a row is 0"):
        draw_fields(photograph(), tmp_path / "g.png", count=0)
    assert list(tmp_path.iterdir()) == []
