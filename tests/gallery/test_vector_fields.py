"""Deformed images beside their vector fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from exhibits import photograph, words
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from deformrs import (
    DCT,
    Compose,
    Deformation,
    Rotation,
    Scaling,
    Translation,
)
from deformrs.errors import InputError
from deformrs.geometry import pixel_grid
from deformrs.report.gallery.deformed import deform, shift_label
from deformrs.report.gallery.families import (
    default_families,
    family_title,
    varied_params,
)
from deformrs.report.gallery.fields import FieldRow, draw_fields, field_rows
from deformrs.report.gallery.shown import arrows_of
from deformrs.units import Size
from images import places, ramp

SIZES = [(28, 28), (20, 50), (224, 224)]


@pytest.mark.parametrize("size", SIZES)
def test_fields_beside_images(size: Size, tmp_path: Path) -> None:
    rows = field_rows(size)
    image = photograph(1, *size)
    draw_fields(image, rows, tmp_path / "f.svg")
    lines = words(tmp_path / "f.svg")
    assert lines[0] == rows[0].title == "Gaussian random deformations (each pixel on its own)"
    titles = [row.title.removesuffix(" (a smooth one)") for row in rows]
    assert titles[1:] == [family_title(family) for family in default_families()]
    assert len([line for line in lines if line.startswith("0 to ")]) == 2 * len(rows)
    assert "points from a pixel to the place where that pixel is read" in " ".join(lines)


@pytest.mark.parametrize("deformation", [Rotation(), DCT(), Compose(Rotation(), Translation())])
def test_arrows_point_to_where_pixels_are_read(deformation: Deformation) -> None:
    """A ramp's brightness says where each pixel was read."""
    image = ramp(16)
    params = varied_params(deformation, (16, 16), 1) / 4
    ((warped, field),) = deform(image, deformation, params, "border")
    here = pixel_grid((16, 16), "cpu", torch.float64)
    read = places(warped[None])[0].permute(1, 2, 0)
    inside = read.abs().amax(dim=-1) < 0.9
    assert inside.sum() > 100
    torch.testing.assert_close(
        ((read - here) * 8)[inside].double(), field[inside].double(), atol=1e-3, rtol=0
    )
    axes = Figure().add_subplot()
    arrows_of(field[None])[0].draw(axes)
    (quiver,) = (child for child in axes.collections if isinstance(child, Quiver))
    column, row = np.asarray(quiver.XY).astype(int).T
    drawn_arrows = np.stack([quiver.U, quiver.V], axis=-1)
    np.testing.assert_allclose(drawn_arrows, field.numpy()[row, column])
    assert quiver.angles == quiver.scale_units == "xy"
    assert axes.yaxis_inverted()


def test_a_field_at_rest_can_be_drawn(tmp_path: Path) -> None:
    rows = [FieldRow(Rotation(), torch.zeros(1, 1), "at rest")]
    draw_fields(photograph(), rows, tmp_path / "f.svg")
    assert "0 to 0.00 px" in words(tmp_path / "f.svg")
    with pytest.raises(InputError, match="at least one"):
        FieldRow(Rotation(), torch.zeros(0, 1), "nothing")


def test_guarantee_shift_label_never_says_more_than_is_true() -> None:
    generator = np.random.default_rng(0)
    space, plane = Scaling().space((28, 28)), Translation().space((28, 28))
    for value in generator.uniform(-1, 1, 200):
        shown = shift_label(np.array([value]), 0.0, space)
        assert shown.startswith("−" if value < 0 else "+")
        assert 0 <= 100 * abs(value) - float(shown[1:].removesuffix(" %")) < 0.1
        reach = 20 * abs(value)
        moved = shift_label(np.array([value, value]), reach, plane).split()[1]
        assert 0 <= reach - float(moved) < 0.1
