"""Tiles, their labels, and the sheet that they are drawn on."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from exhibits import colours, drawn, photograph, words
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from deformrs import DCT, Compose, Deformation, Rotation, Scaling, Translation
from deformrs.errors import InputError
from deformrs.geometry import pixel_grid
from deformrs.report.gallery.families import varied_params
from deformrs.report.gallery.tiles import (
    DPI,
    FieldTile,
    ImageTile,
    TileRow,
    check_figure_path,
    class_label,
    deform,
    draw_arrows,
    draw_sheet,
    lay_out,
    shift_label,
    shift_lines,
    shorten,
    wrap,
)
from images import places, ramp

LONG = "American Staffordshire terrier, Staffordshire terrier, American pit bull terrier"
SIZES = [(28, 28), (224, 100), (40, 300), (1, 1)]


def image_tile(height: int, width: int, lines: int = 2) -> ImageTile:
    return ImageTile(photograph(3, height, width), (LONG,) * lines, "#1a7f37")


def field_tile(height: int, width: int) -> FieldTile:
    return FieldTile(torch.full((height, width, 2), 1.5), ("arrows",))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [1, 5])
def test_guarantee_lay_out_overlaps_nothing(size: tuple[int, int], columns: int) -> None:
    """Measured as the renderer draws it, to a pixel."""
    rows = [
        TileRow([image_tile(*size)] * columns, "a title, " * 30, LONG * 3),
        TileRow([image_tile(*size), *[field_tile(*size)] * (columns - 1)], text="W" * 400),
        TileRow([image_tile(50, 80, lines=1)], "another size"),
    ]
    figure = lay_out(rows, caption=LONG * 5)
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    boxes = [text.get_window_extent() for text in texts]
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


def test_every_format_is_drawn(tmp_path: Path) -> None:
    rows = [TileRow([image_tile(28, 40), field_tile(28, 40)], "$x^2$ is no formula")]
    for name, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = tmp_path / f"sheet.{name}"
        draw_sheet(rows, path)
        assert path.read_bytes().startswith(start)
        assert [other.name for other in tmp_path.iterdir()] == [path.name], "written as a whole"
        if name == "png":
            assert min(drawn(path).shape[:2]) > 100
            assert colours(path) > 10
        if name == "svg":
            assert "$x^2$ is no formula" in words(path)
        path.unlink()


@pytest.mark.parametrize("channels", [1, 2, 7])
def test_images_without_three_channels_are_drawn_as_their_mean(
    channels: int, tmp_path: Path
) -> None:
    path = tmp_path / "sheet.png"
    image = torch.linspace(0.4, 0.6, channels) if channels > 1 else torch.tensor([0.5])
    draw_sheet([TileRow([ImageTile(image[:, None, None].expand(-1, 28, 28))])], path)
    grey = np.abs(drawn(path).astype(int) - 127.5) < 1
    assert grey.all(axis=-1).sum() > 10_000


def test_three_channels_are_colour(tmp_path: Path) -> None:
    red = torch.zeros(3, 28, 28)
    red[0] = 1 + 1e-6  # interpolation may exceed one by a bit
    draw_sheet([TileRow([ImageTile(red)])], tmp_path / "red.png")
    assert (drawn(tmp_path / "red.png") == (255, 0, 0)).all(axis=-1).sum() > 10_000


def test_pixels_are_crisp(tmp_path: Path) -> None:
    """No colours between those of the pixels."""
    checkers = (torch.arange(64)[:, None] + torch.arange(64)) % 2
    draw_sheet([TileRow([ImageTile(checkers[None].float())])], tmp_path / "c.png")
    inside = drawn(tmp_path / "c.png")[60:160, 60:160]
    assert set(np.unique(inside)) == {0, 255}


@pytest.mark.parametrize("name", ["gallery", "gallery.gif", "gallery.PNGG", ".png"])
def test_other_formats_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg, \.pdf"):
        check_figure_path(tmp_path / name)


def test_a_folder_that_cannot_be_written_to_and_a_figure_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="must exist"):
        check_figure_path(tmp_path / "missing" / "g.png")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(InputError, match="must be writable"):
        check_figure_path(tmp_path / "g.png")
    with pytest.raises(InputError, match="of 2000 rows and 1 columns"):
        lay_out([TileRow([image_tile(28, 28)])] * 2000)
    with pytest.raises(InputError, match="the number of rows is 0"):
        lay_out([])


@pytest.mark.parametrize("deformation", [Rotation(), DCT(), Compose(Rotation(), Translation())])
def test_arrows_point_to_where_pixels_are_read(deformation: Deformation) -> None:
    """A ramp's brightness tells where each pixel was read."""
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
    quiver = draw_arrows(axes, field, [field])
    assert isinstance(quiver, Quiver)
    column, row = np.asarray(quiver.XY).astype(int).T
    vectors = np.stack([quiver.U, quiver.V], axis=-1)
    np.testing.assert_allclose(vectors, field.numpy()[row, column])
    assert quiver.angles == quiver.scale_units == "xy"
    assert axes.yaxis_inverted()


def test_a_field_at_rest_can_be_drawn(tmp_path: Path) -> None:
    draw_sheet([TileRow([FieldTile(torch.zeros(28, 28, 2))])], tmp_path / "f.png")
    assert colours(tmp_path / "f.png") > 10


def test_guarantee_shift_label_never_says_more_than_is_true() -> None:
    generator = np.random.default_rng(0)
    space, plane = Scaling().space((28, 28)), Translation().space((28, 28))
    for value in generator.uniform(-1, 1, 200):
        label = shift_label(np.array([value]), 0.0, space)
        assert label.startswith("−" if value < 0 else "+")
        assert 0 <= 100 * abs(value) - float(label[1:].removesuffix(" %")) < 0.1
        reach = 20 * abs(value)
        moved = shift_label(np.array([value, value]), reach, plane).split()[1]
        assert 0 <= reach - float(moved) < 0.1


def test_guarantee_shift_lines_say_a_size_that_is_certified() -> None:
    space = Scaling().space((28, 28))
    for value in np.random.default_rng(0).uniform(-0.9, 3, 200):
        line = shift_lines(np.array([value]), 0.0, space)[1]
        shown, true = float(line.removeprefix("shown at ").removesuffix(" %")), 100 / (1 + value)
        assert min(true, 100) <= shown <= max(true, 100)
        assert abs(shown - true) < 0.1
    assert len(shift_lines(np.array([-1.5]), 0.0, space)) == 1, "a mirror image has no size"
    assert len(shift_lines(np.array([0.5]), 0.0, Rotation().space((28, 28)))) == 1


@pytest.mark.parametrize("room", [0.3, 1.4, 20.0])
@pytest.mark.parametrize("text", [LONG, "W" * 100, "tench", ",,, ,", "$x^2$ 50 % \\frac"])
def test_text_that_does_not_fit_is_cut(text: str, room: float) -> None:
    short = shorten(text, room, 7)
    assert short == text or short.endswith("…")
    assert text.startswith(short.removesuffix("…"))
    drawn_text = Figure(dpi=DPI).text(0, 0, short, fontsize=7, parse_math=False)
    assert drawn_text.get_window_extent().width <= room * DPI + 1


@pytest.mark.parametrize("room", [1.0, 3.0])
def test_wrapped_text_loses_no_word(room: float) -> None:
    text = "class 3 for any rotation up to 27.29°, or any scaling up to 9.10 %"
    assert " ".join(wrap(text, room, 8)) == text
    assert wrap("  ", room, 8) == []


def test_letters_that_the_font_lacks_are_marked() -> None:
    assert shorten("犬 dog\n\x07\udc80", 9, 8) == "? dog ??"
    assert wrap("犬 dog", 9, 8) == ["? dog"]


def test_classes_without_a_name_that_can_be_drawn_go_by_number() -> None:
    names = ["tench", "犬", " ", "great\n grey  owl", "naïve café"]
    labels = [class_label(index, names) for index in range(6)]
    assert labels == ["tench", "class 1", "class 2", "great grey owl", "naïve café", "class 5"]
    assert class_label(0, None) == "class 0"
