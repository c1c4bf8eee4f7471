"""Tables, curves and galleries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deformrs import (
    Compose,
    Counts,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Rotation,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.errors import InputError
from deformrs.report.gallery import Exhibit, certified_shifts, draw_gallery
from deformrs.runs import Result


def result(
    index: int,
    label: int,
    hits: int,
    deformation: Deformation = Rotation(),  # noqa: B008 (immutable)
    law: NoiseLaw = Uniform(1.0),  # noqa: B008
) -> Result:
    counts = Counts((0, 100), (1000 - hits, hits))
    return Result(index, label, law.certify(counts, deformation.space((28, 28)), 0.001))


RESULTS = [result(0, 1, 1000), result(1, 1, 800), result(2, 0, 1000), result(3, 1, 510)]


@pytest.mark.parametrize(
    ("deformation", "law"),
    [
        (Rotation(), Uniform(1.0)),
        (Translation(), Gaussian((0.2, 0.4))),
        (VectorField(), Gaussian(0.1)),
        (Compose(Rotation(), Translation()), Independent(Uniform(1.0), Gaussian(0.2))),
    ],
)
def test_guarantee_gallery_shows_certified_shifts_only(
    deformation: Deformation, law: NoiseLaw, tmp_path: Path
) -> None:
    shown = result(0, 1, 900, deformation, law).certificate
    shifts = certified_shifts(shown, 9)
    assert shifts.shape == (9, shown.space.dim)
    assert all(shown.covers(shift) for shift in shifts)
    assert np.abs(shifts).max() > 0
    image = torch.rand(3, 28, 28, generator=torch.Generator())
    draw_gallery([Exhibit(image, shown)] * 2, deformation, tmp_path / "g.png", columns=4)
    with Image.open(tmp_path / "g.png") as warped:
        assert warped.width > warped.height


def test_the_gallery_reads_beyond_the_edge_as_it_is_told(tmp_path: Path) -> None:
    shown = result(0, 1, 900, Translation(), Gaussian(0.5)).certificate
    image = torch.ones(1, 28, 28)
    for padding in ("zeros", "border"):
        path = tmp_path / f"{padding}.png"
        draw_gallery([Exhibit(image, shown)], Translation(), path, padding=padding)
    assert (tmp_path / "zeros.png").read_bytes() != (tmp_path / "border.png").read_bytes()


def test_a_gallery_of_nothing_or_of_another_image_is_refused(tmp_path: Path) -> None:
    shown = result(0, 1, 900).certificate
    with pytest.raises(InputError, match="exhibits is 0"):
        draw_gallery([], Rotation(), tmp_path / "g.png")
    with pytest.raises(InputError, match=r"of size \(20, 20\)"):
        draw_gallery([Exhibit(torch.zeros(1, 20, 20), shown)], Rotation(), tmp_path / "g.png")


def test_an_abstaining_certificate_has_no_gallery() -> None:
    with pytest.raises(InputError, match="abstaining"):
        certified_shifts(RESULTS[3].certificate, 4)
