"""Deformed images beside the vector fields that deform them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from deformrs.checks import check_integer, check_seed
from deformrs.deformations import Deformation, VectorField
from deformrs.errors import InputError
from deformrs.geometry import Padding, size_of
from deformrs.report.gallery.deformed import deform, pixels_down, reach_px, setting_label
from deformrs.report.gallery.families import default_families, family_title, varied_params
from deformrs.report.gallery.sheet import Band, Tile, check_figure_path, draw_sheet
from deformrs.report.gallery.shown import Image, arrows_of
from deformrs.units import Size

SMOOTH, KNOTS = 0.15, 4
"""The smooth vector field shown: its root mean square, and its free points along a side."""

CAPTION = (
    "Each deformed image stands beside its vector field. An arrow points from a pixel to the "
    "place where that pixel is read, so content moves against the arrows. Colour is their length "
    "in pixels, to the longest of the row; they are not drawn to the scale of the image."
)


@dataclass(frozen=True)
class FieldRow:
    """Some deformations of one family. params: [n, d]"""

    deformation: Deformation
    params: Tensor
    title: str

    def __post_init__(self) -> None:
        if self.params.ndim != 2 or len(self.params) == 0:
            raise InputError(
                "params",
                f"of shape {tuple(self.params.shape)}",
                "must be rows of parameters, at least one",
                "torch.tensor([[0.1]])",
            )


def field_rows(
    size: Size,
    *,
    deformations: Sequence[Deformation] | None = None,
    count: int = 2,
    seed: int = 0,
) -> list[FieldRow]:
    """Gaussian random deformations first, then a row for each family.

    Without `deformations`, an example of every registered family. A free vector field is shown
    smooth in its own row: the first row shows it at random.
    """
    check_integer("the number of deformations in a row", count, least=1)
    check_seed("seed", seed)
    free = VectorField()
    title = "Gaussian random deformations (each pixel on its own)"
    rows = [FieldRow(free, varied_params(free, size, count, seed), title)]
    for family in default_families() if deformations is None else deformations:
        if family == free:
            params = _smooth_params(size, count, seed)
            rows.append(FieldRow(family, params, f"{family_title(family)} (a smooth one)"))
        else:
            params = varied_params(family, size, count, seed)
            rows.append(FieldRow(family, params, family_title(family)))
    return rows


def draw_fields(
    image: Tensor, rows: Sequence[FieldRow], path: Path, *, padding: Padding = "zeros"
) -> None:
    """A row each: the image, then every deformed image beside its field. image: [c, h, w]"""
    check_figure_path(path)
    draw_sheet([_band(image, row, padding) for row in rows], path, caption=CAPTION)


def _band(image: Tensor, row: FieldRow, padding: Padding) -> Band:
    images, fields = zip(*deform(image, row.deformation, row.params, padding), strict=True)
    space = row.deformation.space(size_of(image))
    tiles = [Tile(Image(image), ("original",))]
    for params, warped, arrows in zip(
        row.params, images, arrows_of(torch.stack(fields)), strict=True
    ):
        reach = reach_px(arrows.field_px)
        label = setting_label(params.double().cpu().numpy(), reach, space)
        scale = f"0 to {pixels_down(arrows.longest_px)}"
        tiles += [Tile(Image(warped), (label,)), Tile(arrows, (scale,))]
    return Band(row.title, tuple(tiles))


def _smooth_params(size: Size, count: int, seed: int) -> Tensor:
    """Random vectors at a few points, smoothly joined: [count, 2hw]."""
    draws = np.random.default_rng(seed).standard_normal((count, 2, KNOTS, KNOTS))
    fields = interpolate(torch.from_numpy(draws), size=size, mode="bicubic", align_corners=True)
    fields *= SMOOTH / fields.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    return fields.permute(0, 2, 3, 1).reshape(count, -1)
