"""Images of every orientation, depth and colour, prepared."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import InputError


def noise(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def layered(array: NDArray[np.uint8]) -> Pixels:
    """[h, w, c] of bytes as [c, h, w] in [0, 1]."""
    return array.transpose(2, 0, 1).astype(np.float32) / np.float32(255)


# How an image that was stored is to be seen, for each value of EXIF's orientation.
SEEN: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),  # a quarter clockwise
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize("orientation", SEEN)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_images_are_turned_as_the_camera_was_held(orientation: int, kind: str) -> None:
    image, file = noise(5, 8), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(image).save(file, kind, exif=exif)
    found = Preparation().prepare(Image.open(file))
    assert np.array_equal(found, layered(SEEN[orientation](image)))


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 32768], [65535, 128, 129]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"x.{suffix}")
    found = Preparation().prepare(Image.open(tmp_path / f"x.{suffix}"))
    # 32768 / 257 is 127.5..., 128 / 257 just below one half, 129 / 257 just above.
    assert (found * 255).round(3).tolist() == [[[0, 1, 128], [255, 0, 1]]]
    colour = Preparation(channels=3).prepare(Image.open(tmp_path / f"x.{suffix}"))
    assert np.array_equal(colour, np.repeat(found, 3, axis=0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([[0, 70_000]], np.int32), "of values from 0 to 70000; it must be 8 or 16 bits"),
        (np.array([[-1, 5]], np.int32), "of values from -1 to 5"),
        (np.array([[0.5, 1.0]], np.float32), "of floating-point pixels"),
    ],
)
def test_values_without_a_known_white_are_refused(
    values: NDArray[np.generic], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Preparation().prepare(Image.fromarray(values))


def test_grey_and_colour() -> None:
    image = noise(6, 7)
    grey = Preparation(channels=1).prepare(Image.fromarray(image))
    by_hand = 0.299 * image[..., 0] + 0.587 * image[..., 1] + 0.114 * image[..., 2]
    assert np.abs(grey[0] * 255 - by_hand).max() < 0.51
    exact = Preparation(channels=1).prepare_pixels(layered(image))
    assert exact.shape == (1, 6, 7)
    assert np.abs(exact[0] * 255 - by_hand).max() < 1e-3
    assert exact.max() <= 1
    white = Preparation(channels=1).prepare_pixels(np.ones((3, 2, 2), np.float32))
    assert white.max() <= 1
    colour = Preparation(channels=3).prepare_pixels(exact)
    assert np.array_equal(colour, np.repeat(exact, 3, axis=0))
    stored = Preparation().prepare(Image.fromarray(image[..., 0]))
    assert stored.shape == (1, 6, 7)
    with pytest.raises(InputError, match="of 2 channels"):
        Preparation(channels=3).prepare_pixels(np.zeros((2, 4, 4), np.float32))
    assert Preparation().prepare_pixels(np.zeros((2, 4, 4), np.float32)).shape == (2, 4, 4)
