"""Augmentation moves pixels as it says, and fits the data."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from deformrs.errors import InputError
from deformrs.training.augmentation import (
    NUMBERS,
    Augmentation,
    fitting_augmentation,
    parse_augmentation,
)
from deformrs.units import Size


def some(size: Size = (7, 9), n: int = 64) -> tuple[torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, 3, *size, generator=generator), generator


def test_nothing_is_done_where_nothing_is_asked() -> None:
    images, generator = some()
    augmentation = Augmentation()
    assert augmentation.apply(images, augmentation.draw(64, generator)) is images


@pytest.mark.parametrize("size", [None, (5, 6)])
def test_cuts_and_mirrors_are_exact(size: Size | None) -> None:
    images, generator = some()
    augmentation = Augmentation(crop=2, flip=True, size=size)
    draws = augmentation.draw(64, generator)
    found = augmentation.apply(images, draws)
    height, width = size or (7, 9)
    mirrored = 0
    padded = pad(images, (2,) * 4)
    for image, numbers, result in zip(padded, draws.tolist(), found, strict=True):
        top = int(numbers[0] * (7 - height + 5))
        left = int(numbers[1] * (9 - width + 5))
        cut = image[:, top : top + height, left : left + width]
        mirrored += numbers[2] < 0.5
        assert torch.equal(result, cut.flip(-1) if numbers[2] < 0.5 else cut)
    assert 16 < mirrored < 48  # of 64; outside with probability 2e-5


def test_every_place_is_reached_and_none_beyond() -> None:
    augmentation = Augmentation(crop=1)
    ends = torch.tensor([[0.0] * NUMBERS, [1 - 2**-24] * NUMBERS])
    image = torch.arange(1.0, 10.0).view(1, 1, 3, 3).expand(2, 1, 3, 3)
    first, last = augmentation.apply(image, ends)
    assert first[0].tolist() == [[0, 0, 0], [0, 1, 2], [0, 4, 5]]
    assert last[0].tolist() == [[5, 6, 0], [8, 9, 0], [0, 0, 0]]


def test_zoom_of_everything_is_the_image() -> None:
    images, _ = some((8, 8))
    # The middle of the shapes is a square, and a second half is not mirrored.
    draws = torch.full((64, NUMBERS), 0.75)
    found = Augmentation(zoom=1.0, flip=True).apply(images, draws)
    assert torch.allclose(found, images, atol=1e-6)
    mirrored = Augmentation(zoom=1.0, flip=True).apply(images, torch.full((64, NUMBERS), 0.25))
    assert torch.allclose(mirrored, images.flip(-1), atol=1e-6)


def test_zoom_stays_inside_and_shows_at_least_its_share() -> None:
    # On ramps the value that is read tells where: x / width and y / height.
    ramp_x = ((torch.arange(20) + 0.5) / 20).expand(16, 20)
    ramp_y = ((torch.arange(16) + 0.5) / 16)[:, None].expand(16, 20)
    images = torch.stack((ramp_x, ramp_y)).expand(500, 2, 16, 20)
    augmentation = Augmentation(zoom=0.25, flip=True, size=(8, 8))
    generator = torch.Generator().manual_seed(0)
    found = augmentation.apply(images, augmentation.draw(500, generator))
    assert found.shape == (500, 2, 8, 8)
    wide = (found[:, 0, 0, -1] - found[:, 0, 0, 0]).abs() * 8 / 7
    high = (found[:, 1, -1, 0] - found[:, 1, 0, 0]).abs() * 8 / 7
    shares = wide * high
    assert shares.min() > 0.2  # clamped at the border by at most half a pixel
    assert shares.max() <= 1.001
    assert shares.max() > 0.85
    mirrored = (found[:, 0, 0, -1] < found[:, 0, 0, 0]).sum()
    assert 180 < mirrored < 320  # of 500; outside with probability 1e-9


def test_the_centre_is_what_preparation_keeps() -> None:
    images, _ = some((8, 10))
    assert torch.equal(Augmentation(size=(4, 4)).centre(images), images[..., 2:6, 3:7])
    assert torch.equal(Augmentation().centre(images), images)


def test_without_a_crop_it_is_the_middle() -> None:
    images, generator = some((8, 10))
    still = Augmentation(size=(4, 4))
    assert torch.equal(still.apply(images, still.draw(64, generator)), still.centre(images))
    flipped = Augmentation(size=(4, 4), flip=True)
    draws = flipped.draw(64, generator)
    found = flipped.apply(images, draws)
    for image, numbers, result in zip(still.centre(images), draws, found, strict=True):
        assert torch.equal(result, image.flip(-1) if numbers[2] < 0.5 else image)


@pytest.mark.parametrize(
    "text", ["none", "flip", "crop:4+flip", "crop:2", "crop:0", "flip+zoom:0.25"]
)
def test_texts_round_trip(text: str) -> None:
    assert parse_augmentation(text).spec == text


@pytest.mark.parametrize("text", ["crop", "crop:x", "crop:-1", "turn", "zoom:2", "crop:1+zoom:0.5"])
def test_bad_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_augmentation(text)


def test_augmentation_fits_the_data() -> None:
    small: Size = (28, 28)
    assert fitting_augmentation("mnist", small, small).spec == "none"
    assert fitting_augmentation("digits", small, small).spec == "none"
    assert fitting_augmentation("cifar10", (32, 32), (32, 32)).spec == "crop:4+flip"
    assert fitting_augmentation("imagenet", (256, 256), (224, 224)).spec == "flip+zoom:0.25"
    assert fitting_augmentation("letters", (64, 64), (64, 64)).spec == "crop:8"
    framed = fitting_augmentation("photos", (256, 256), (224, 224))
    assert (framed.spec, framed.size) == ("crop:0", (224, 224))
