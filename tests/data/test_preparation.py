"""The preparation of images, against what resizing and cutting mean, written out once more."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
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
    found: Floats = np.einsum("ih,chw,jw->cij", rows, image, columns)
    return found


@pytest.mark.parametrize("interpolation", get_args(Interpolation))
@pytest.mark.parametrize("size", [(9, 20), (31, 17), (45, 64)])
def test_resizing_is_what_it_says(interpolation: Interpolation, size: tuple[int, int]) -> None:
    image = 64 + noise(31, 40) // 2  # so that no kernel leaves the range
    expected = resized(layered(image), size, interpolation)
    preparation = Preparation(resize=size, interpolation=interpolation)
    found = preparation.prepare(Image.fromarray(image))
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 1.6 / 255  # rounded to 8 bits along each axis
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
def test_the_centre_begins_at_the_half_rounded_to_even(side: int, crop: int, first: int) -> None:
    # As torchvision's CenterCrop: half of 7 is 3.5, so 4; half of 9 is 4.5, so 4.
    image = noise(side, side + 2)
    found = Preparation(crop=(crop, side + 2)).prepare(Image.fromarray(image))
    assert np.allclose(found, layered(image)[:, first : first + crop])
    turned = Preparation(crop=(side + 2, crop)).prepare_pixels(
        layered(image).transpose(0, 2, 1).astype(np.float32)
    )
    assert np.allclose(turned, layered(image).transpose(0, 2, 1)[:, :, first : first + crop])


def test_resized_then_cut() -> None:
    image = noise(30, 45)
    found = Preparation(resize=20, crop=(16, 16)).prepare(Image.fromarray(image))
    whole = resized(layered(image), (20, 30), "bilinear")
    assert np.abs(found - whole[:, 2:18, 7:23]).max() < 1.6 / 255


def test_a_centre_larger_than_the_image_is_refused() -> None:
    with pytest.raises(InputError, match="20 x 30 px after resizing.*24 x 24"):
        Preparation(resize=20, crop=(24, 24)).prepare(Image.fromarray(noise(30, 45)))


def test_a_thread_that_would_become_huge_is_refused() -> None:
    with pytest.raises(InputError, match="1 x 60000 px, so 256 x 15360000 when resized"):
        Preparation(resize=256, crop=(224, 224)).prepare(Image.new("L", (60_000, 1)))


def test_overshoot_stays_within_the_range() -> None:
    edge = np.zeros((1, 8, 8), np.float32)
    edge[:, :, 4:] = 1
    for interpolation in ("bicubic", "lanczos"):
        found = Preparation(resize=(15, 15), interpolation=interpolation).prepare_pixels(edge)
        assert (found.min(), found.max()) == (0, 1)


@pytest.mark.parametrize(
    "preparation",
    [
        Preparation(),
        Preparation(resize=256, crop=(224, 192), interpolation="bicubic", channels=3),
        Preparation(resize=(32, 48), channels=1),
    ],
)
def test_a_configuration_that_was_written_and_read(preparation: Preparation) -> None:
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
