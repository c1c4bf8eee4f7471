"""Resizing, cropping, orientation, depth and colour, against their definitions."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from deformrs.data.preparation import Interpolation, Preparation
from deformrs.errors import InputError

Floats = NDArray[np.float64]


def noise(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def layered(array: NDArray[np.generic]) -> Floats:
    """[h, w] or [h, w, c] of bytes as [c, h, w] in [0, 1]."""
    values = array.astype(np.float64) / 255
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def triangle(x: float) -> float:
    return max(0.0, 1 - abs(x))


def cubic(x: float) -> float:
    """Keys' kernel with a = -1/2."""
    x = abs(x)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def lanczos(x: float) -> float:
    return float(np.sinc(x) * np.sinc(x / 3)) if abs(x) < 3 else 0.0


KERNELS: dict[str, tuple[Callable[[float], float], int]] = {
    "bilinear": (triangle, 1),
    "bicubic": (cubic, 2),
    "lanczos": (lanczos, 3),
}


def resampling(old: int, new: int, interpolation: str) -> Floats:
    """The matrix [new, old] that resizes a line of pixels; it widens to smooth what shrinks."""
    scale = old / new
    matrix = np.zeros((new, old))
    for i in range(new):
        middle = (i + 0.5) * scale
        if interpolation == "nearest":
            matrix[i, int(middle)] = 1
            continue
        kernel, support = KERNELS[interpolation]
        reach = max(scale, 1.0)
        for j in range(old):
            # Pixels count whose centre lies within the reach.
            if abs(j + 0.5 - middle) <= support * reach:
                matrix[i, j] = kernel((j + 0.5 - middle) / reach)
        matrix[i] /= matrix[i].sum()
    return matrix


def resized(image: Floats, size: tuple[int, int], interpolation: str) -> Floats:
    rows = resampling(image.shape[1], size[0], interpolation)
    columns = resampling(image.shape[2], size[1], interpolation)
    result: Floats = np.einsum("ih,chw,jw->cij", rows, image, columns)
    return result


@pytest.mark.parametrize("interpolation", get_args(Interpolation))
@pytest.mark.parametrize("size", [(9, 20), (31, 17), (45, 64)])
def test_resizing_by_definition(interpolation: Interpolation, size: tuple[int, int]) -> None:
    image = 64 + noise(31, 40) // 2  # so that no kernel leaves the range
    expected = resized(layered(image), size, interpolation)
    preparation = Preparation(resize=size, interpolation=interpolation)
    result = preparation.prepare(Image.fromarray(image))
    assert result.dtype == np.float32
    assert np.abs(result - expected).max() < 1.6 / 255  # rounded to 8 bits along each axis
    exact = preparation.prepare_pixels(layered(image).astype(np.float32))
    assert np.abs(exact - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("stored", "shorter", "expected"),
    [
        ((333, 500), 256, (256, 384)),  # 384.4
        ((500, 333), 256, (384, 256)),
        ((375, 500), 256, (256, 341)),  # 341.3
        ((227, 227), 256, (256, 256)),
        ((100, 299), 50, (50, 149)),  # 149.5 is cut, not rounded
        ((10, 10), 10, (10, 10)),
    ],
)
def test_the_longer_side_is_rounded_down(
    stored: tuple[int, int], shorter: int, expected: tuple[int, int]
) -> None:
    preparation = Preparation(resize=shorter)
    assert preparation.prepare(Image.fromarray(noise(*stored))).shape == (3, *expected)
    assert preparation.prepare_pixels(np.zeros((1, *stored), np.float32)).shape == (1, *expected)


@pytest.mark.parametrize(
    ("side", "crop", "first"),
    [(10, 4, 3), (11, 4, 4), (13, 4, 4), (10, 5, 2), (10, 7, 2), (10, 10, 0), (11, 10, 0)],
)
def test_the_crop_starts_at_the_half_rounded_to_even(side: int, crop: int, first: int) -> None:
    # As torchvision's CenterCrop: half of 7 is 3.5, so 4; half of 9 is 4.5, so 4.
    image = noise(side, side + 2)
    result = Preparation(crop=(crop, side + 2)).prepare(Image.fromarray(image))
    assert np.allclose(result, layered(image)[:, first : first + crop])
    turned = Preparation(crop=(side + 2, crop)).prepare_pixels(
        layered(image).transpose(0, 2, 1).astype(np.float32)
    )
    assert np.allclose(turned, layered(image).transpose(0, 2, 1)[:, :, first : first + crop])


def test_resizing_comes_before_cropping() -> None:
    image = noise(30, 45)
    result = Preparation(resize=20, crop=(16, 16)).prepare(Image.fromarray(image))
    whole = resized(layered(image), (20, 30), "bilinear")
    assert np.abs(result - whole[:, 2:18, 7:23]).max() < 1.6 / 255


def test_a_crop_larger_than_the_image_is_refused() -> None:
    with pytest.raises(InputError, match="20 x 30 px after resizing.*24 x 24"):
        Preparation(resize=20, crop=(24, 24)).prepare(Image.fromarray(noise(30, 45)))


def test_an_image_that_resizing_would_make_huge_is_refused() -> None:
    with pytest.raises(InputError, match="1 x 60000 px, so 256 x 15360000 when resized"):
        Preparation(resize=256, crop=(224, 224)).prepare(Image.new("L", (60_000, 1)))


def test_overshoot_is_clipped() -> None:
    edge = np.zeros((1, 8, 8), np.float32)
    edge[:, :, 4:] = 1
    for interpolation in ("bicubic", "lanczos"):
        result = Preparation(resize=(15, 15), interpolation=interpolation).prepare_pixels(edge)
        assert (result.min(), result.max()) == (0, 1)


@pytest.mark.parametrize(
    "preparation",
    [
        Preparation(),
        Preparation(resize=256, crop=(224, 192), interpolation="bicubic", channels=3),
        Preparation(resize=(32, 48), channels=1),
    ],
)
def test_the_configuration_round_trips(preparation: Preparation) -> None:
    written = json.dumps(preparation.to_config())
    assert Preparation.from_config(json.loads(written)) == preparation


def test_words() -> None:
    assert Preparation().words == "as stored"
    stretched = Preparation(resize=(32, 48), interpolation="lanczos", channels=1)
    assert stretched.words == "to 32 x 48 px (lanczos), grey"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"resize": 0}, "resize is 0"),
        ({"resize": 2.5}, "resize is 2.5"),
        ({"resize": math.nan}, "resize is nan"),
        ({"resize": (3,)}, "the size is"),
        ({"crop": 224}, "the size is 224"),
        ({"crop": (0, 4)}, "the height is 0"),
        ({"interpolation": "cubic"}, "interpolation is 'cubic'"),
        ({"channels": 2}, "channels is 2"),
        ({"channels": True}, "channels is True"),
    ],
)
def test_bad_options(options: dict[str, object], name: str) -> None:
    with pytest.raises(InputError, match=name):
        Preparation(**options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=name):
        Preparation.from_config(options)  # type: ignore[arg-type]


def test_bad_configurations() -> None:
    with pytest.raises(InputError, match="must be a mapping"):
        Preparation.from_config([])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'colour'; it must be one of resize"):
        Preparation.from_config({"colour": 1})


# The upright image of a stored one, for each value of the EXIF orientation.
UPRIGHT: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),  # a quarter clockwise
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_exif_orientation_is_undone(orientation: int, kind: str) -> None:
    image, file = noise(5, 8), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(image).save(file, kind, exif=exif)
    result = Preparation().prepare(Image.open(file))
    assert np.allclose(result, layered(UPRIGHT[orientation](image)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 32768], [65535, 128, 129]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"x.{suffix}")
    result = Preparation().prepare(Image.open(tmp_path / f"x.{suffix}"))
    # 32768 / 257 is 127.5..., 128 / 257 just below one half, 129 / 257 just above.
    assert (result * 255).round(3).tolist() == [[[0, 1, 128], [255, 0, 1]]]
    colour = Preparation(channels=3).prepare(Image.open(tmp_path / f"x.{suffix}"))
    assert np.array_equal(colour, np.repeat(result, 3, axis=0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([[0, 70_000]], np.int32), "of values from 0 to 70000; it must be 8 or 16 bits"),
        (np.array([[-1, 5]], np.int32), "of values from -1 to 5"),
        (np.array([[0.5, 1.0]], np.float32), "of floating-point pixels"),
    ],
)
def test_values_of_unknown_range_are_refused(values: NDArray[np.generic], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preparation().prepare(Image.fromarray(values))


def test_grey_and_colour() -> None:
    image = noise(6, 7)
    grey = Preparation(channels=1).prepare(Image.fromarray(image))
    by_hand = 0.299 * image[..., 0] + 0.587 * image[..., 1] + 0.114 * image[..., 2]
    assert np.abs(grey[0] * 255 - by_hand).max() < 0.51
    exact = Preparation(channels=1).prepare_pixels(layered(image).astype(np.float32))
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
