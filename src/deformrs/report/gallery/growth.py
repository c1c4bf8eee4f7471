"""Families of deformations side by side, as they grow stronger. Needs no classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from deformrs.checks import check_integer
from deformrs.deformations import Deformation
from deformrs.geometry import Padding, check_images, size_of
from deformrs.report.gallery.deformed import deform, reach_px, setting_label
from deformrs.report.gallery.families import default_families, family_title, growing_params
from deformrs.report.gallery.sheet import Band, Tile, check_figure_path, draw_sheet
from deformrs.report.gallery.shown import Image

CAPTION = (
    "Beneath each image stands its parameter or, where there are several, how far the farthest "
    "pixel is read from its place. Several parameters grow in one random direction."
)


def draw_growth(
    image: Tensor,
    path: Path,
    *,
    deformations: Sequence[Deformation] | None = None,
    columns: int = 6,
    seed: int = 0,
    padding: Padding = "zeros",
) -> None:
    """One row a family, deformations growing from left to right. image: [c, h, w]

    Without `deformations`, an example of every registered family.
    """
    check_figure_path(path)
    check_images("the image", image, rank=3)
    check_integer("columns", columns, least=1)
    families = default_families() if deformations is None else deformations
    bands = [_band(image, family, columns, seed, padding) for family in families]
    draw_sheet(bands, path, caption=CAPTION)


def _band(
    image: Tensor, deformation: Deformation, columns: int, seed: int, padding: Padding
) -> Band:
    space = deformation.space(size_of(image))
    params = growing_params(deformation, space.size, columns, seed)
    tiles = [Tile(Image(image), ("original",))]
    deformed = deform(image, deformation, params, padding)
    for row, (warped, field) in zip(params.numpy(), deformed, strict=True):
        label = setting_label(row, reach_px(field), space)
        tiles.append(Tile(Image(warped), (label,)))
    return Band(family_title(deformation), tuple(tiles))
