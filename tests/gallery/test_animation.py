"""An image that is turned: its frames, and the arc of certified angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor
from torch import Tensor

from deformrs import Counts, Rotation, Translation, Uniform
from deformrs.errors import InputError, UnsupportedError
from deformrs.report.gallery import Exhibit, draw_turning
from deformrs.report.gallery.animation import FRAMES

GREEN = np.array(ImageColor.getrgb("#1a7f37"))
PIXELS = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(0))


def exhibit(hits: int) -> Exhibit:
    counts = Counts((0, 100), (1000 - hits, hits))
    return Exhibit(PIXELS, Uniform(1.0).certify(counts, Rotation().space((12, 12)), 0.001))


def frames(path: Path) -> list[np.ndarray]:
    found = []
    with Image.open(path) as animation:
        for number in range(animation.n_frames):  # type: ignore[attr-defined]
            animation.seek(number)
            found.append(np.asarray(animation.convert("RGB")).astype(int))
    return found


def green_angles(frame: np.ndarray) -> np.ndarray:
    """Return at which angles from the top the ring is green, in degrees."""
    rows, columns = np.nonzero(np.abs(frame - GREEN).max(axis=2) < 40)
    x, y = columns - (24 + 240 + 24 + 120), rows - (24 + 120)
    on_ring = np.hypot(x, y) > 95
    angles: np.ndarray = np.degrees(np.arctan2(x, -y))[on_ring & (rows < 264)]
    return angles


@pytest.mark.parametrize("kind", ["gif", "webp"])
def test_guarantee_draw_turning_shows_no_angle_as_certified_that_is_not(
    kind: str, tmp_path: Path
) -> None:
    shown, path = exhibit(960), tmp_path / f"turning.{kind}"
    draw_turning(shown, Rotation(), path)
    (frame, *_) = found = frames(path)
    assert len(found) == FRAMES
    certified = math.degrees(shown.certificate.radius)
    angles = np.abs(green_angles(frame))
    assert certified - 3 < angles.max() < certified + 1, "a pixel of the ring is half a degree"


def test_what_the_model_alone_predicts_is_shown(tmp_path: Path) -> None:
    def answers(images: Sequence[Tensor]) -> list[int]:
        assert len(images) == FRAMES
        assert torch.equal(images[0], PIXELS)
        return [1] * FRAMES

    for name, given in (("with", answers), ("without", None)):
        draw_turning(exhibit(960), Rotation(), tmp_path / f"{name}.gif", answers=given)
    beneath = slice(280, 320), slice(24, 264)
    assert (frames(tmp_path / "with.gif")[0][beneath] < 128).any()
    assert not (frames(tmp_path / "without.gif")[0][beneath] < 128).any()


def test_an_image_that_abstains_has_no_arc(tmp_path: Path) -> None:
    draw_turning(exhibit(500), Rotation(), tmp_path / "turning.gif")
    assert not len(green_angles(frames(tmp_path / "turning.gif")[0]))


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in .gif or .webp"):
        draw_turning(exhibit(960), Rotation(), tmp_path / "turning.png")
    space = Translation().space((12, 12))
    shift = Exhibit(PIXELS, Uniform(1.0).certify(Counts((0, 100), (40, 960)), space, 0.001))
    with pytest.raises(UnsupportedError, match=r"must be Rotation\(\) to be animated"):
        draw_turning(shift, Translation(), tmp_path / "turning.gif")
