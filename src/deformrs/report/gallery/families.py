"""Families of deformations: their default noise, how they grow, and their vector fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from deformrs.checks import check_integer, check_seed
from deformrs.deformations import Compose, Deformation, VectorField
from deformrs.errors import InputError
from deformrs.geometry import Padding, check_images, size_of
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.report.gallery.tiles import (
    FieldTile,
    ImageTile,
    TileRow,
    check_figure_path,
    deform,
    draw_sheet,
    reach_px,
    shift_lines,
)
from deformrs.report.groups import family_words
from deformrs.space import Block, Space
from deformrs.units import Size, parse_quantity


@dataclass(frozen=True)
class Defaults:
    """The noise of a family, and the strongest deformation drawn without a classifier.

    `strongest` is the root mean square over the parameters. Both are quantities with their unit.
    """

    law: type[Uniform] | type[Gaussian]
    scale: str
    strongest: str


DEFAULTS = {
    "rotation": Defaults(Uniform, "30deg", "60deg"),
    "translation": Defaults(Gaussian, "0.1", "0.3"),
    "scaling": Defaults(Uniform, "30%", "40%"),
    "shear": Defaults(Uniform, "30%", "60%"),
    "affine": Defaults(Gaussian, "0.06", "0.15"),
    "dct": Defaults(Gaussian, "0.06", "0.12"),
    "vector_field": Defaults(Gaussian, "0.5px", "0.04"),
}
"""Noise under which classifiers of digits and photographs mostly keep their prediction, and
deformations under which people do."""

OTHER_NOISE, OTHER_STRONGEST = Gaussian(0.1), 0.2
"""For families that are not in the table, in the unit of their parameters."""

SMOOTH, KNOTS = 0.15, 4
"""The smooth vector field drawn: its root mean square, and its free points along a side."""

GROWTH_CAPTION = (
    "Beneath each image: its parameter or, for several, the largest distance that a pixel moves. "
    "Several parameters grow in one random direction."
)
FIELDS_CAPTION = (
    "Each deformed image is followed by its vector field. An arrow points from a pixel to where "
    "that pixel is read, so content moves against the arrows. Colour shows their length, up to "
    "the longest of the row; they are not drawn to the scale of the image."
)


def default_noise(space: Space) -> NoiseLaw:
    """Return the default noise of a family, one law per block for a composition.

    >>> from deformrs import Compose, Shear, Translation
    >>> default_noise(Compose(Shear(), Translation()).space((28, 28)))
    Independent(Uniform(scale=0.3), Gaussian(scale=0.1))
    """
    laws = [_block_noise(block, space.size) for block in space.blocks]
    return laws[0] if len(laws) == 1 else Independent(*laws)


def default_families() -> list[Deformation]:
    """Return the first example of every registered family, user-defined ones included.

    Families with defaults come first, then compositions, then all others by name.
    """
    order = [*DEFAULTS, Compose.name]
    names = [name for name in order if name in Deformation.registry]
    names += sorted(set(Deformation.registry) - set(order))
    return [_first_example(name) for name in names]


def family_title(deformation: Deformation) -> str:
    """Return the name of a family and its settings, as in the headings of a report.

    >>> from deformrs import Compose, DCT, Rotation, VectorField
    >>> family_title(DCT(3))
    'DCT (k = 3, basis = dct)'
    >>> family_title(Compose(Rotation(), VectorField()))
    'rotation, then vector field'
    """
    return family_words(deformation.to_config())


def growing_params(deformation: Deformation, size: Size, count: int, seed: int = 0) -> Tensor:
    """Return parameters of growing strength, the last row the strongest: [count, d].

    A single parameter is positive, several go in one random direction.
    """
    steps = np.arange(1, count + 1) / count
    return torch.from_numpy(steps[:, None] * _strongest_params(deformation, size, 1, seed))


def varied_params(deformation: Deformation, size: Size, count: int, seed: int = 0) -> Tensor:
    """Return parameters that differ widely, the first two rows the strongest: [count, d].

    A single parameter alternates in sign, several go in random directions.
    """
    pairs = np.arange(count) // 2
    strengths = 1 - pairs / (pairs[-1] + 1)
    signs = np.where(np.arange(count) % 2, -1.0, 1.0)
    params = _strongest_params(deformation, size, count, seed)
    return torch.from_numpy((signs * strengths)[:, None] * params)


def draw_growth(
    image: Tensor,
    path: Path,
    *,
    deformations: Sequence[Deformation] | None = None,
    columns: int = 6,
    seed: int = 0,
    padding: Padding = "zeros",
) -> None:
    """Draw a row per family, deformations growing from left to right. image: [c, h, w]

    Without `deformations`, an example of every registered family. Needs no classifier.
    """
    check_figure_path(path)
    check_images("the image", image, rank=3)
    check_integer("columns", columns, least=1)
    rows = []
    for family in default_families() if deformations is None else deformations:
        params = growing_params(family, size_of(image), columns, seed)
        rows.append(_family_row(image, family, params, family_title(family), padding))
    draw_sheet(rows, path, caption=GROWTH_CAPTION)


def draw_fields(
    image: Tensor,
    path: Path,
    *,
    deformations: Sequence[Deformation] | None = None,
    count: int = 2,
    seed: int = 0,
    padding: Padding = "zeros",
) -> None:
    """Draw `count` deformed images and their vector fields for each family. image: [c, h, w]

    The first row shows Gaussian random displacements of every pixel. Without `deformations`, an
    example of every registered family follows; a free vector field is then drawn smooth.
    """
    check_figure_path(path)
    check_images("the image", image, rank=3)
    check_integer("the number of deformations in a row", count, least=1)
    size, free = size_of(image), VectorField()
    title = "Gaussian random deformations (each pixel on its own)"
    drawn: list[tuple[str, Deformation, Tensor]] = [
        (title, free, varied_params(free, size, count, seed))
    ]
    for family in default_families() if deformations is None else deformations:
        title, params = family_title(family), varied_params(family, size, count, seed)
        if family == free:
            title, params = f"{title} (a smooth one)", _smooth_params(size, count, seed)
        drawn.append((title, family, params))
    rows = [
        _family_row(image, family, params, title, padding, fields=True)
        for title, family, params in drawn
    ]
    draw_sheet(rows, path, caption=FIELDS_CAPTION)


def _family_row(
    image: Tensor,
    deformation: Deformation,
    params: Tensor,
    title: str,
    padding: Padding,
    *,
    fields: bool = False,
) -> TileRow:
    """Return the image and its deformations, each followed by its field if `fields` is set."""
    space = deformation.space(size_of(image))
    tiles: list[ImageTile | FieldTile] = [ImageTile(image, ("original",))]
    deformed = deform(image, deformation, params, padding)
    for row, (warped, field_px) in zip(params.numpy(), deformed, strict=True):
        lines = shift_lines(row, reach_px(field_px), space, round_down=False)
        tiles.append(ImageTile(warped, lines))
        if fields:
            tiles.append(FieldTile(field_px))
    return TileRow(tiles, title)


def _strongest_params(
    deformation: Deformation, size: Size, count: int, seed: int
) -> NDArray[np.float64]:
    """Return parameters of the greatest strength drawn, in each block: [count, d]."""
    check_seed("seed", seed)
    space = deformation.space(size)
    generator = np.random.default_rng(seed)
    params = np.ones((count, space.dim))
    for block, part in zip(space.blocks, space.slices, strict=True):
        if block.dim > 1:
            draws = generator.standard_normal((count, block.dim))
            params[:, part] = draws / np.sqrt(np.mean(draws**2, axis=1, keepdims=True))
        params[:, part] *= _block_strongest(block, size)
    return params


def _smooth_params(size: Size, count: int, seed: int) -> Tensor:
    """Return fields of a few random vectors, smoothly interpolated: [count, 2hw]."""
    draws = np.random.default_rng(seed).standard_normal((count, 2, KNOTS, KNOTS))
    fields = interpolate(torch.from_numpy(draws), size=size, mode="bicubic", align_corners=True)
    fields *= SMOOTH / fields.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    return fields.permute(0, 2, 3, 1).reshape(count, -1)


def _block_noise(block: Block, size: Size) -> Uniform | Gaussian:
    defaults = DEFAULTS.get(block.family)
    if defaults is None:
        return OTHER_NOISE
    return defaults.law(parse_quantity(defaults.scale, block.unit, size))


def _block_strongest(block: Block, size: Size) -> float:
    defaults = DEFAULTS.get(block.family)
    if defaults is None:
        return OTHER_STRONGEST
    return parse_quantity(defaults.strongest, block.unit, size)


def _first_example(name: str) -> Deformation:
    family = Deformation.registry[name]
    try:
        examples: Sequence[Deformation] = family.examples()  # type: ignore[attr-defined]
        return examples[0]
    except (TypeError, IndexError) as error:
        raise InputError(
            f"the family {name!r}",
            f"without an example ({error})",
            "must give one to be drawn",
            "override examples(), or say which deformations to draw",
        ) from error
