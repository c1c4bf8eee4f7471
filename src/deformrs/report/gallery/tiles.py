"""Tiles (images and vector fields with text beneath) and the sheet that they are drawn on."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.quiver import Quiver
from matplotlib.textpath import text_to_path
from numpy.typing import NDArray
from torch import Tensor

from deformrs.checks import check_integer
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.geometry import Padding, check_images, size_of
from deformrs.report.curves import save_figure
from deformrs.report.figures import NotebookFigure
from deformrs.rounding import format_down, format_up
from deformrs.space import Space
from deformrs.units import Size, unit_px

FORMATS = ("png", "svg", "pdf")
DPI = 160
LARGEST_PX = 2**16 - 1
"""The longest side that matplotlib's PNG renderer can draw."""

TITLE, TEXT, LABEL = 9.5, 8.0, 7.0
"""Font sizes in points."""
LINE_HEIGHT = 1.35
"""Relative to the font size."""
MARGIN, GAP, ROW_GAP, SCALE, NARROWEST = 0.15, 0.08, 0.16, 0.6, 3.6
"""Inches: around the sheet, between tiles, between rows, for a colour scale, the least width."""

ARROWS = 13
"""Arrows along the longer side of a field."""
ARROW_COLOURS = LinearSegmentedColormap.from_list("lengths", ["#f2b04b", "#c63b63", "#2b1055"])
"""None of them pale: short arrows must be visible on white."""


@dataclass(frozen=True)
class ImageTile:
    """An image, [c, h, w], and lines of text beneath it.

    Three channels are drawn in colour, any other number as their mean. `colour` is that of the
    text and of the frame.
    """

    image: Tensor
    lines: tuple[str, ...] = ()
    colour: str | None = None

    @property
    def size(self) -> Size:
        return size_of(self.image)


@dataclass(frozen=True)
class FieldTile:
    """A vector field in pixels, [h, w, 2], drawn as arrows, and lines of text beneath it."""

    field_px: Tensor
    lines: tuple[str, ...] = ()
    colour: None = None

    @property
    def size(self) -> Size:
        return self.field_px.shape[0], self.field_px.shape[1]


Tile = ImageTile | FieldTile


@dataclass(frozen=True)
class TileRow:
    """A row of tiles below a title in bold and a line of text. Its fields share one scale."""

    tiles: Sequence[Tile]
    title: str = ""
    text: str = ""


def deform(
    image: Tensor, deformation: Deformation, params: Tensor, padding: Padding
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each deformed image, [c, h, w], and its field in pixels, [h, w, 2], on the CPU.

    params: [n, d]. One at a time, to save memory: large images are deformed in double precision.
    """
    check_images("the image", image, rank=3)
    image, params, size = image.detach().cpu(), params.detach().cpu(), size_of(image)
    for row in params:
        warped = deformation.apply(image, row[None], padding)[0]
        yield warped, deformation.field(row[None], size)[0] * unit_px(size)


def reach_px(field_px: Tensor) -> float:
    """Return the largest distance, in pixels, between a pixel and where it is read: [h, w, 2]."""
    return float(torch.linalg.vector_norm(field_px.double(), dim=-1).max())


def shift_label(
    shift: NDArray[np.float64], reach: float, space: Space, *, round_down: bool = True
) -> str:
    """Return a single parameter in its unit; for several, how far pixels move.

    Without `round_down`, a parameter that was chosen rather than certified is shown to four digits.

    >>> from deformrs import Affine, Rotation
    >>> shift_label(np.array([-0.5]), 7.0, Rotation().space((28, 28)))
    '−28.6°'
    >>> shift_label(np.array([np.pi / 6]), 7.0, Rotation().space((28, 28)), round_down=False)
    '+30°'
    >>> shift_label(np.full(6, 0.1), 3.19, Affine().space((28, 28)))
    'moves 3.1 px'

    Guarantee: a label rounded down never exceeds the true value, so it cannot exceed the radius.
    """
    if space.dim > 1:
        return f"moves {format_down(reach, 1 if reach >= 1 else 2)} px"
    unit, value = space.blocks[0].unit, float(shift[0])
    magnitude = (
        unit.show_down(abs(value), space.size, decimals=1)
        if round_down
        else unit.show(abs(value), space.size)
    )
    return ("" if value == 0 else "−" if value < 0 else "+") + magnitude


def shift_lines(
    shift: NDArray[np.float64], reach: float, space: Space, *, round_down: bool = True
) -> tuple[str, ...]:
    """Return `shift_label` as lines beneath a tile; of a scaling also the size of the content.

    Guarantee: the size is no further from 100 % than the true one.

    >>> from deformrs import Scaling
    >>> shift_lines(np.array([0.2]), 2.8, Scaling().space((28, 28)))
    ('+20.0 %', 'shown at 83.4 %')
    """
    label = shift_label(shift, reach, space, round_down=round_down)
    if space.dim > 1 or space.blocks[0].family != "scaling":
        return (label,)
    # Content is magnified by 1/α. Rounded towards 100 %, so that it claims no more than is shown.
    alpha = 1 + Fraction(float(shift[0]))
    if alpha <= 0:
        return (label,)
    rounded = format_down if alpha < 1 else format_up
    return (label, f"shown at {rounded(100 / alpha, 1)} %")


def class_label(index: int, names: Sequence[str] | None) -> str:
    """Return the name of a class, or its number if it has no name that the font can show.

    >>> class_label(1, ["tench", "goldfish"]), class_label(2, ["tench", "goldfish"])
    ('goldfish', 'class 2')
    """
    name = " ".join(names[index].split()) if names is not None and index < len(names) else ""
    return name if name and name == printable(name) else f"class {index}"


def printable(text: str) -> str:
    """Return the text on one line, with a question mark for each letter that the font lacks."""
    font = get_font(findfont(FontProperties()))
    text = " ".join(text.split())
    return "".join(letter if font.get_char_index(ord(letter)) else "?" for letter in text)


@lru_cache(maxsize=2**12)
def shorten(text: str, room_in: float, points: float, bold: bool = False) -> str:
    """Return the text, cut off with an ellipsis if it is wider than that many inches.

    >>> shorten("great grey owl", room_in=0.5, points=7)
    'great g…'
    """
    text = kept = printable(text)
    while kept:
        short = text if kept == text else kept.rstrip(" ,") + "…"
        if _width_in(short, points, bold) <= room_in:
            return short
        kept = kept[:-1]
    return ""


def wrap(text: str, room_in: float, points: float) -> list[str]:
    """Return the text in lines of at most that many inches."""
    text = printable(text)
    letters = int(0.93 * room_in / _width_in(text, points) * len(text)) if text else 1
    return [shorten(line, room_in, points) for line in textwrap.wrap(text, max(letters, 1))]


def _width_in(text: str, points: float, bold: bool = False) -> float:
    font = FontProperties(size=points, weight="bold" if bold else "normal")
    width: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return 1.05 * width / 72  # renderers widen letters by a few per cent to fit pixels


def check_figure_path(path: Path) -> None:
    """Raise unless a figure can be written there; to be called before the sampling."""
    if path.suffix.removeprefix(".") not in FORMATS:
        raise InputError(
            "the figure's path",
            path,
            "must end in " + ", ".join(f".{name}" for name in FORMATS),
            f"e.g. {path.stem or 'gallery'}.png",
        )
    if not path.parent.is_dir():
        raise InputError("the figure's folder", path.parent, "must exist", "create it")
    if not os.access(path.parent, os.W_OK):
        raise InputError("the figure's folder", path.parent, "must be writable", "name another")


def draw_sheet(rows: Sequence[TileRow], path: Path, *, caption: str = "") -> None:
    """Write the rows one below the other, and the caption below them, as PNG, SVG or PDF."""
    check_figure_path(path)
    save_figure(lay_out(rows, caption), path, dpi=DPI)


def lay_out(rows: Sequence[TileRow], caption: str = "") -> Figure:
    """Return the figure of a sheet.

    Guarantee: no two texts or images overlap, and none leaves the figure.
    """
    check_integer("the number of rows", len(rows), least=1)
    tiles = [tile for row in rows for tile in row.tiles]
    columns = max(len(row.tiles) for row in rows)
    side = float(np.interp(max(max(tile.size) for tile in tiles), (32, 224), (1.0, 1.4)))
    scale = SCALE if any(isinstance(tile, FieldTile) for tile in tiles) else 0.0
    room = max(columns * (side + GAP) - GAP + scale, NARROWEST - 2 * MARGIN)
    below = wrap(caption, room, LABEL)
    texts = [wrap(row.text, room, TEXT) for row in rows]
    heights = [_row_height(row, text, side) for row, text in zip(rows, texts, strict=True)]
    width = room + 2 * MARGIN
    height = sum(heights) + len(below) * _line_height(LABEL) + 2 * MARGIN
    if max(width, height) * DPI > LARGEST_PX:
        raise InputError(
            "the figure",
            f"of {len(rows)} rows and {columns} columns",
            f"must fit into {LARGEST_PX:,} pixels a side",
            "draw fewer at a time",
        )
    with matplotlib.rc_context({"text.parse_math": False}):  # names may contain dollar signs
        figure = NotebookFigure(figsize=(width, height))
        top = height - MARGIN
        for row, text, own in zip(rows, texts, heights, strict=True):
            _draw_row(figure, row, text, top, side)
            top -= own
        _write(figure, below, top, LABEL, color="#444444")
    return figure


def _line_height(points: float) -> float:
    return LINE_HEIGHT * points / 72


def _tile_height(row: TileRow, side: float) -> float:
    return max(side * tile.size[0] / max(tile.size) for tile in row.tiles)


def _row_height(row: TileRow, text: Sequence[str], side: float) -> float:
    heading = _line_height(TITLE) * bool(row.title) + _line_height(TEXT) * len(text) + GAP / 2
    labels = _line_height(LABEL) * max(len(tile.lines) for tile in row.tiles)
    return heading + _tile_height(row, side) + labels + ROW_GAP


def _draw_row(figure: Figure, row: TileRow, text: Sequence[str], top: float, side: float) -> None:
    """Draw a row whose upper edge is `top` inches above the lower edge of the figure."""
    width, height = figure.get_size_inches()
    if row.title:
        title = shorten(row.title, width - 2 * MARGIN, TITLE, bold=True)
        top = _write(figure, [title], top, TITLE, weight="bold")
    top = _write(figure, text, top, TEXT) - GAP / 2
    high = _tile_height(row, side)
    fields = [tile.field_px for tile in row.tiles if isinstance(tile, FieldTile)]
    arrows = None
    for column, tile in enumerate(row.tiles):
        left = MARGIN + column * (side + GAP)
        axes = figure.add_axes((left / width, (top - high) / height, side / width, high / height))
        if isinstance(tile, ImageTile):
            draw_image(axes, tile.image)
        else:
            arrows = draw_arrows(axes, tile.field_px, fields)
        axes.set(xticks=[], yticks=[], anchor="N")
        colour, line = ("#bbbbbb", 0.5) if tile.colour is None else (tile.colour, 1.6)
        axes.spines[:].set(color=colour, linewidth=line)
        label = "\n".join(shorten(line, side, LABEL) for line in tile.lines)
        axes.set_xlabel(label, fontsize=LABEL, color=tile.colour or "black", labelpad=2.5)
    if arrows is not None:
        longest = arrows.norm.vmax
        scale = figure.colorbar(arrows, cax=axes.inset_axes((1.05, 0, 0.05, 1)), ticks=[0, longest])
        scale.ax.set_yticklabels(["0", f"{longest:.3g} px"], fontsize=LABEL)
        scale.ax.tick_params(length=0)


def _write(
    figure: Figure,
    lines: Sequence[str],
    top: float,
    points: float,
    *,
    color: str = "black",
    weight: str = "normal",
) -> float:
    """Write lines at the left margin from `top` inches downwards; return where the last ends."""
    for line in lines:
        figure.text(
            MARGIN,
            top,
            line,
            transform=figure.dpi_scale_trans,
            fontsize=points,
            va="top",
            color=color,
            fontweight=weight,
        )
        top -= _line_height(points)
    return top


def draw_image(axes: Axes, image: Tensor) -> None:
    """Draw an image, [c, h, w] in [0, 1]."""
    pixels = image.detach().cpu().float()
    if len(pixels) != 3:
        pixels = pixels.mean(dim=0, keepdim=True)
    pixels = pixels.clamp(0, 1)  # interpolation may exceed 1 by one bit
    crisp = max(size_of(image)) <= 224  # larger images are scaled down
    axes.imshow(
        pixels.permute(1, 2, 0).numpy(),
        cmap="gray",
        vmin=0,
        vmax=1,
        interpolation="nearest" if crisp else "antialiased",
    )


def draw_arrows(axes: Axes, field_px: Tensor, fields: Sequence[Tensor]) -> Quiver:
    """Draw a field, [h, w, 2], as arrows from each pixel to where it is read, to a common scale.

    Colours run from 0 to the longest vector of all `fields`. A vector of usual length reaches a
    little beyond the next arrow: at true length arrows would be too short to see or overlap.
    """
    height, width = field_px.shape[:2]
    step = max(1, round(max(height, width) / ARROWS))
    rows = np.arange((height - 1) % step // 2, height, step)
    columns = np.arange((width - 1) % step // 2, width, step)
    vectors = field_px.detach().cpu().double().numpy()[np.ix_(rows, columns)]
    lengths = np.linalg.norm(torch.stack(list(fields)).detach().cpu().double().numpy(), axis=-1)
    usual = float(np.quantile(lengths, 0.9)) or 1.0
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    return axes.quiver(
        *np.meshgrid(columns, rows),
        *np.moveaxis(vectors, -1, 0),
        np.linalg.norm(vectors, axis=-1),
        cmap=ARROW_COLOURS,
        clim=(0, float(lengths.max()) or 1.0),
        angles="xy",
        scale_units="xy",
        scale=usual / (1.4 * step),
        width=0.012,
        headwidth=3.6,
        headlength=4,
        headaxislength=3.6,
    )
