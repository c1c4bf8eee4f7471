"""Deformations and noise as people type them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from deformrs import (
    DCT,
    Affine,
    Compose,
    Deformation,
    Gaussian,
    Independent,
    Rotation,
    Scaling,
    Translation,
    Uniform,
)
from deformrs.errors import InputError
from deformrs.specs import parse_deformation, parse_noise

LENS = """
from dataclasses import dataclass
import torch
from deformrs import Deformation

@dataclass(frozen=True)
class Swirl(Deformation):
    name = "swirl"
    strength: float = 1.0

    def dim(self, size):
        return 1

    def displacement(self, params, points, size):
        return params[:, :, None, None] * torch.zeros_like(points)

weak = Swirl(0.5)
broken = 3
"""


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("rotation", Rotation()),
        (" rotation + scaling ", Compose(Rotation(), Scaling())),
        ("dct", DCT()),
        ("dct:3", DCT(3)),
        ("dct:3,cosine", DCT(3, basis="cosine")),
        ("dct:basis=cosine", DCT(2, basis="cosine")),
        ("dct:k=4, basis=dct+rotation", Compose(DCT(4), Rotation())),
    ],
)
def test_deformations_as_typed(text: str, made: Deformation) -> None:
    assert parse_deformation(text) == made


@pytest.mark.parametrize("family", sorted(set(Deformation.registry) - {"compose"}))
def test_every_family_goes_by_its_name(family: str) -> None:
    assert type(parse_deformation(family)) is Deformation.registry[family]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rotatoin", "did you mean 'rotation'"),
        ("", "must be one of affine"),
        ("zoom", "did you mean 'scaling'"),
        ("compose", "join several with"),
        ("rotation,scaling", "join several with"),
        ("rotation+", "must be one of"),
        ("rotation:3", "one more than its 0 field"),
        ("dct:3,4,5", "one more than its 2 field"),
        ("dct:kk=3", "must be one of k, basis"),
        ("dct:0", "k of DCT is 0"),
        ("nowhere.py:Lens", "nowhere.py is missing"),
    ],
)
def test_wrong_deformations_are_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_deformation(text)


def test_a_family_of_ones_own_comes_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deformation, "registry", dict(Deformation.registry))
    file = tmp_path / "lens.py"
    file.write_text(LENS)
    assert repr(parse_deformation(f"{file}:Swirl")) == "Swirl(strength=1.0)"
    assert repr(parse_deformation(f"{file}:weak")) == "Swirl(strength=0.5)"
    assert repr(parse_deformation(f"rotation+{file}:weak")).startswith("Compose(Rotation(), Swirl")
    with pytest.raises(InputError, match="did you mean 'Swirl'"):
        parse_deformation(f"{file}:Swirll")
    with pytest.raises(InputError, match="broken in .*lens.py is 3; it must be a Deformation"):
        parse_deformation(f"{file}:broken")
    file.write_text("1/0")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        parse_deformation(f"{file}:Swirl")


def test_noise_as_typed() -> None:
    turn = Rotation().space((28, 28))
    assert parse_noise("uniform:180deg", turn) == Uniform(math.pi)
    assert parse_noise("gaussian:0.5rad", turn) == Gaussian(0.5)
    shift = parse_deformation("translation").space((20, 40))
    assert parse_noise("gaussian:5px", shift) == Gaussian(0.5)
    assert parse_noise("gaussian:5px,2px", shift) == Gaussian((0.5, 0.2))
    assert parse_noise("gaussian:0.04", shift) == Gaussian(0.04)
    both = parse_deformation("rotation+scaling").space((28, 28))
    assert parse_noise("uniform:1rad + uniform:20%", both) == Independent(
        Uniform(1.0), Uniform(0.2)
    )


def test_the_noise_of_a_composition_is_shown_with_its_units() -> None:
    both = parse_deformation("rotation+scaling").space((28, 28))
    with pytest.raises(InputError, match=r"rotation, scaling: .* uniform:10deg\+uniform:20%"):
        parse_noise("uniform:30deg", both)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("unifrom:30deg", "did you mean 'uniform'"),
        ("normal:30deg", "did you mean 'gaussian'"),
        ("uniform", "must have a scale: e.g. uniform:10deg"),
        ("uniform:", "must have a scale"),
        ("uniform:30", "must be a number with its unit"),
        ("uniform:30px", "must be a number with its unit"),
        ("uniform:181deg", r"is 181deg \(181°\); it must be at most π \(180°\)"),
        ("uniform:-3deg", "must be positive"),
        ("uniform:3deg,4deg", "must be one number or one for each of 1"),
        ("uniform:3deg+uniform:3deg", "must be one law for rotation: e.g. uniform:10deg"),
    ],
)
def test_wrong_noise_is_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_noise(text, Rotation().space((28, 28)))


@pytest.mark.parametrize(
    ("family", "text", "words"),
    [
        (Scaling(), "uniform:30", "is 30 (3,000 %); it must be at most 1 (100 %)"),
        (Scaling(), "uniform:30", "write uniform:30%"),
        (Translation(), "gaussian:4", "is 4 (20 px)"),
        (Translation(), "gaussian:1px,4", "write gaussian:4px"),
        (Rotation(), "gaussian:20rad", "it must be at most π (180°): e.g. gaussian:10deg"),
        (Affine(), "gaussian:20", "it must be at most 2"),
    ],
)
def test_scales_in_another_unit_are_refused(family: Deformation, text: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        parse_noise(text, family.space((10, 12)))
