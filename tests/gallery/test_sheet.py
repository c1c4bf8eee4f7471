"""The sheet that all galleries are printed on."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from exhibits import colours, drawn, photograph
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

from deformrs.errors import InputError
from deformrs.report.gallery.sheet import DPI, Band, Tile, check_figure_path, draw_sheet, lay_out
from deformrs.report.gallery.shown import Image, arrows_of

LONG = "American Staffordshire terrier, Staffordshire terrier, American pit bull terrier"
SIZES = [(28, 28), (224, 224), (224, 100), (40, 300), (1, 1)]


def tile(height: int, width: int, lines: int = 2) -> Tile:
    return Tile(Image(photograph(3, height, width)), (LONG,) * lines, "#1a7f37")


def field(height: int, width: int) -> Tile:
    arrows = arrows_of(torch.full((1, height, width, 2), 1.5))[0]
    return Tile(arrows, ("0 to 1.5 px",))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [1, 5])
def test_guarantee_lay_out_overlaps_nothing(size: tuple[int, int], columns: int) -> None:
    """Measured as the renderer draws it, to a pixel."""
    bands = [
        Band("a title, " * 30, (tile(*size),) * columns, words=LONG * 3),
        Band("", (tile(*size), *[field(*size)] * (columns - 1)), words="W" * 400),
        Band("only one", (tile(*size),), note="abstains: no class is certain enough " * 20),
        Band("another size", (tile(50, 80, lines=1),)),
    ]
    figure = lay_out(bands, caption=LONG * 5)
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    boxes = [text.get_window_extent() for text in figure.texts]
    boxes += [axes.get_window_extent() for axes in figure.axes]
    assert len(boxes) > 4 * columns
    wide, high = canvas.get_width_height()
    for box in boxes:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= wide + 1
        assert box.y1 <= high + 1
    for one, other in itertools.combinations(boxes, 2):
        shared = Bbox.intersection(one, other)
        assert shared is None or min(shared.width, shared.height) <= 1


@pytest.mark.parametrize("size", SIZES)
def test_every_format_is_drawn(size: tuple[int, int], tmp_path: Path) -> None:
    bands = [Band("a", (tile(*size), field(*size)))]
    for name, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = tmp_path / f"sheet.{name}"
        draw_sheet(bands, path)
        assert path.read_bytes().startswith(start)
    assert min(drawn(tmp_path / "sheet.png").shape[:2]) > 100
    assert colours(tmp_path / "sheet.png") > 10


@pytest.mark.parametrize("channels", [1, 2, 3, 7])
def test_any_number_of_channels_is_shown(channels: int, tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    draw_sheet([Band("", (Tile(Image(torch.full((channels, 28, 28), 0.5))),))], path)
    grey = np.abs(drawn(path).astype(int) - 127.5) < 1
    assert grey.all(axis=-1).sum() > 10_000


def test_three_channels_are_colour(tmp_path: Path) -> None:
    red = torch.zeros(3, 28, 28)
    red[0] = 1 + 1e-6  # interpolation may pass one by a bit
    draw_sheet([Band("", (Tile(Image(red)),))], tmp_path / "red.png")
    assert (drawn(tmp_path / "red.png") == (255, 0, 0)).all(axis=-1).sum() > 10_000


@pytest.mark.parametrize("name", ["gallery", "gallery.gif", "gallery.PNGG", ".png"])
def test_other_formats_are_refused_before_anything_is_drawn(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg, \.pdf"):
        check_figure_path(tmp_path / name)


def test_a_missing_folder_and_a_sheet_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must exist"):
        check_figure_path(tmp_path / "missing" / "g.png")
    with pytest.raises(InputError, match="of 2000 rows and 1 columns"):
        lay_out([Band("", (tile(28, 28),))] * 2000)
    with pytest.raises(InputError, match="the number of rows is 0"):
        lay_out([])
