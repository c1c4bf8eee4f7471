"""Tables, curves and galleries."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from deformrs import (
    Compose,
    Counts,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Rotation,
    Scaling,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.errors import InputError
from deformrs.report.curves import draw_curve, save_figure
from deformrs.report.gallery import Exhibit, certified_shifts, draw_gallery
from deformrs.report.summary import accuracy_rows, average_radius, markdown
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


def test_certified_accuracy_counts_only_right_and_certain_answers() -> None:
    """Radii: 2 p_A - 1 = 0.9862 (right), 0.52 (right), 0.9862 (wrong), abstains."""
    rows = accuracy_rows(RESULTS, {"0": 0.0, "a": 0.5, "b": 0.6, "c": 0.99})
    assert [row.certified for row in rows] == [2, 2, 1, 0]
    assert [row.percent for row in rows] == ["50.0", "50.0", "25.0", "0.0"]


def test_average_radius_counts_wrong_and_abstaining_as_zero() -> None:
    radii = [RESULTS[0].certificate.radius, RESULTS[1].certificate.radius]
    assert average_radius(RESULTS) == pytest.approx(sum(radii) / 4)
    assert average_radius(RESULTS) <= sum(radii) / 4


def test_table_says_how_it_was_made() -> None:
    table = markdown(RESULTS, {"10°": math.radians(10)})
    assert "| 10° | 50.0 % |" in table
    assert "Abstained on 1 of 4" in table
    assert "uniform noise of scale 57.3°" in table
    assert "n0 = 100, n = 1,000, alpha = 0.001 per image" in table


def test_no_results_no_table() -> None:
    for make in (average_radius, lambda r: accuracy_rows(r, {}), lambda r: markdown(r, {})):
        with pytest.raises(InputError, match="at least one"):
            make([])


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


def test_guarantee_save_figure_leaves_whole_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.png"
    draw_curve(RESULTS, path)
    before = path.read_bytes()

    def pull_the_disk(figure: Figure, file: Path, **options: object) -> None:
        file.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(Figure, "savefig", pull_the_disk)
    with pytest.raises(OSError, match="no space left"):
        save_figure(Figure(), path)
    assert path.read_bytes() == before


def test_an_abstaining_certificate_has_no_gallery() -> None:
    with pytest.raises(InputError, match="abstaining"):
        certified_shifts(RESULTS[3].certificate, 4)


@pytest.mark.parametrize("law", [Uniform(1.0), Gaussian(0.2)])
def test_curve_is_drawn(law: NoiseLaw, tmp_path: Path) -> None:
    draw_curve([result(0, 1, 900, Scaling(), law)], tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        assert len(image.convert("RGB").getcolors(10**6) or []) > 10
