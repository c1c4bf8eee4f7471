"""A printed sheet of images: bands of tiles, each with words above and beneath.

Every place is computed in inches beforehand, so nothing overlaps and equal input gives equal files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deformrs.checks import check_integer
from deformrs.errors import InputError
from deformrs.report.curves import save_figure
from deformrs.report.gallery.lettering import line_in, shorten, wrap, write
from deformrs.report.gallery.shown import Shown, draw_scale
from deformrs.units import Size

FORMATS = ("png", "svg", "pdf")
DPI = 160
LARGEST_PX = 2**16 - 1
"""What the PNG renderer can do along a side."""

TITLE, HEADING, LABEL = 9.5, 8.0, 7.0
"""Letter sizes in points."""
MARGIN, GAP, BAND_GAP, SCALE = 0.15, 0.08, 0.16, 0.07
"""Inches: around the sheet, between tiles, between bands, the height of a colour scale."""
NARROWEST, LEAST_SHEET = 0.95, 3.6
"""Inches: the least width of a tile, for the words beneath it, and of a sheet."""


@dataclass(frozen=True)
class Tile:
    """What is shown, lines of words beneath it, and their colour and the frame's."""

    shown: Shown
    lines: tuple[str, ...] = ()
    colour: str | None = None


@dataclass(frozen=True)
class Band:
    """A row of tiles under a heading. `note` stands beside them, where tiles are missing."""

    title: str
    tiles: tuple[Tile, ...]
    words: str = ""
    note: str = ""


def check_figure_path(path: Path) -> None:
    """Raise unless a figure can be written there, before hours are spent on what it shows."""
    if path.suffix.removeprefix(".") not in FORMATS:
        raise InputError(
            "the figure's path",
            path,
            "must end in " + ", ".join(f".{name}" for name in FORMATS),
            f"e.g. {path.stem or 'gallery'}.png",
        )
    if not path.parent.is_dir():
        raise InputError("the figure's folder", path.parent, "must exist", "create it")


def draw_sheet(bands: Sequence[Band], path: Path, *, caption: str = "") -> None:
    """Write the bands one below another, and the caption under them, as PNG, SVG or PDF."""
    check_figure_path(path)
    save_figure(lay_out(bands, caption), path, dpi=DPI)


def lay_out(bands: Sequence[Band], caption: str = "") -> Figure:
    """Guarantee: no two texts or images of the sheet overlap, and none leaves it."""
    check_integer("the number of rows", len(bands), least=1)
    widest = max(_box(tile.shown.size)[0] for band in bands for tile in band.tiles)
    tile_in = max(widest, NARROWEST)
    columns = max(len(band.tiles) for band in bands)
    room = max(columns * (tile_in + GAP) - GAP, LEAST_SHEET - 2 * MARGIN)
    small = wrap(caption, room, LABEL)
    height = 2 * MARGIN + sum(_height(band, room, tile_in) for band in bands) - BAND_GAP
    height += (BAND_GAP + len(small) * line_in(LABEL)) if small else 0.0
    if max(room + 2 * MARGIN, height) * DPI > LARGEST_PX:
        raise InputError(
            "the figure",
            f"of {len(bands)} rows and {columns} columns",
            f"must fit into {LARGEST_PX:,} pixels a side",
            "draw fewer at a time",
        )
    figure = Figure(figsize=(room + 2 * MARGIN, height))
    top = height - MARGIN
    for band in bands:
        _draw_band(figure, band, top, tile_in, room)
        top -= _height(band, room, tile_in)
    _write_lines(figure, small, top, LABEL, colour="#444444")
    return figure


def _box(size: Size) -> tuple[float, float]:
    """Width and height in inches of an image of that size: small ones are drawn smaller."""
    side = float(np.interp(max(size), (32, 224), (1.0, 1.4)))
    return side * size[1] / max(size), side * size[0] / max(size)


def _height(band: Band, room: float, tile_in: float) -> float:
    lines = max(len(tile.lines) for tile in band.tiles)
    tiles = _image_height(band) + lines * line_in(LABEL)
    note = GAP + len(_note(band, room, tile_in)) * line_in(HEADING)
    return _above(band, room) + max(tiles, note) + BAND_GAP


def _note(band: Band, room: float, tile_in: float) -> list[str]:
    """Beside the tiles, so a band with a note must not fill its row."""
    return wrap(band.note, room - len(band.tiles) * (tile_in + GAP) - GAP, HEADING)


def _above(band: Band, room: float) -> float:
    title = line_in(TITLE) if band.title else 0.0
    return title + len(wrap(band.words, room, HEADING)) * line_in(HEADING) + GAP / 2


def _image_height(band: Band) -> float:
    """Of the highest image, with its colour scale and the space before the words."""
    scale = SCALE + GAP / 2 if any(tile.shown.has_scale for tile in band.tiles) else 0.0
    return max(_box(tile.shown.size)[1] for tile in band.tiles) + scale + GAP / 2


def _draw_band(figure: Figure, band: Band, top: float, tile_in: float, room: float) -> None:
    if band.title:
        title = shorten(band.title, room, TITLE, bold=True)
        write(figure, (MARGIN, top), title, TITLE, bold=True)
    below_title = top - (line_in(TITLE) if band.title else 0.0)
    _write_lines(figure, wrap(band.words, room, HEADING), below_title, HEADING)
    top -= _above(band, room)
    for number, tile in enumerate(band.tiles):
        middle = MARGIN + number * (tile_in + GAP) + tile_in / 2
        wide, high = _box(tile.shown.size)
        axes = _axes(figure, middle - wide / 2, top - high, wide, high)
        tile.shown.draw(axes)
        axes.spines[:].set(
            color=tile.colour or "#bbbbbb", linewidth=1.6 if tile.colour is not None else 0.5
        )
        if tile.shown.has_scale:
            bottom = top - high - GAP / 2 - SCALE
            draw_scale(_axes(figure, middle - wide / 2, bottom, wide, SCALE))
        line_top = top - _image_height(band)
        for line in tile.lines:
            text = shorten(line, tile_in, LABEL)
            colour = tile.colour or "black"
            write(figure, (middle, line_top), text, LABEL, centred=True, colour=colour)
            line_top -= line_in(LABEL)
    left = MARGIN + len(band.tiles) * (tile_in + GAP) + GAP
    note = _note(band, room, tile_in)
    _write_lines(figure, note, top - GAP, HEADING, left=left, colour="#666666")


def _write_lines(
    figure: Figure,
    lines: Sequence[str],
    top: float,
    points: float,
    *,
    left: float = MARGIN,
    colour: str = "black",
) -> None:
    for number, line in enumerate(lines):
        write(figure, (left, top - number * line_in(points)), line, points, colour=colour)


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    wide, high = figure.get_size_inches()
    axes = figure.add_axes((left / wide, bottom / high, width / wide, height / high))
    axes.set(xticks=[], yticks=[])
    return axes
