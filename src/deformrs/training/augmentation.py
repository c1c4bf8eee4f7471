"""Augmentation on the device: random crops, flips and zooms before noise deforms the image."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from deformrs.checks import check_integer, is_real
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.geometry import read, size_of
from deformrs.units import Size, unit_px

RATIOS = (3 / 4, 4 / 3)
"""The least and the greatest aspect ratio of what `zoom` cuts out."""

NUMBERS = 4
"""Random numbers for each image."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes of an image besides the noise that is certified.

    `crop` pads by that many black pixels and crops at random; `flip` mirrors half of the images;
    `zoom` stretches a random part of at least that share of the area. `size` is the size of the
    result, cut from the centre without `crop` and `zoom`; None keeps the size.

    >>> parse_augmentation("crop:4+flip")
    Augmentation(crop=4, flip=True, zoom=None, size=None)
    """

    crop: int | None = None
    flip: bool = False
    zoom: float | None = None
    size: Size | None = None

    def __post_init__(self) -> None:
        if self.crop is not None:
            check_integer("crop", self.crop, least=0)
        if self.zoom is not None and not (is_real(self.zoom) and 0 < self.zoom <= 1):
            raise InputError("zoom", self.zoom, "must lie in (0, 1]", "e.g. 0.25")
        if self.zoom is not None and self.crop is not None:
            raise InputError(
                "the augmentation", "both crop and zoom", "must be one of them", "leave one out"
            )

    @property
    def spec(self) -> str:
        """The text that `parse_augmentation` reads.

        >>> Augmentation(flip=True, size=(224, 224)).spec
        'flip'
        """
        parts = [] if self.crop is None else [f"crop:{self.crop}"]
        parts += ["flip"] if self.flip else []
        parts += [f"zoom:{self.zoom:g}"] if self.zoom is not None else []
        return "+".join(parts) or "none"

    def to_config(self) -> Config:
        """Return its plain values."""
        return asdict(self) | {"size": None if self.size is None else list(self.size)}

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """The random numbers for n images: [n, NUMBERS] in [0, 1)."""
        return torch.rand(n, NUMBERS, generator=generator, device=generator.device)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """images: [n, c, h, w], draws: [n, NUMBERS] -> [n, c, *size]."""
        if self.zoom is not None:
            return self._zoomed(images, draws)
        if self.crop is None:
            images = self.centre(images)
            mirrored = draws[:, 2, None, None, None] < 0.5
            return torch.where(mirrored, images.flip(-1), images) if self.flip else images
        height, width = self.size or size_of(images)
        below, right = images.shape[-2] - height, images.shape[-1] - width
        top, left = (
            (draws[:, place] * (room + 2 * self.crop + 1)).floor().long()
            for place, room in enumerate((below, right))
        )
        padded = torch.nn.functional.pad(images, (self.crop,) * 4)
        return self._cut(padded, top, left, draws[:, 2] < 0.5)

    def centre(self, images: Tensor) -> Tensor:
        """Return the centre of the images in the size of the result, as certification sees them."""
        if self.size is None or self.size == size_of(images):
            return images
        height, width = self.size
        top = round((images.shape[-2] - height) / 2)
        left = round((images.shape[-1] - width) / 2)
        return images[..., top : top + height, left : left + width]

    def _cut(self, padded: Tensor, top: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
        """Cut from that row and column on; exact, pixels are only moved."""
        assert self.crop is not None
        device, edges = padded.device, 2 * self.crop
        height, width = self.size or (padded.shape[-2] - edges, padded.shape[-1] - edges)
        rows = top[:, None] + torch.arange(height, device=device)
        steps = torch.arange(width, device=device)
        if self.flip:
            steps = torch.where(mirrored[:, None], steps.flip(0), steps)
        columns = left[:, None] + steps
        image = torch.arange(len(padded), device=device)[:, None, None]
        # The channels come last where two indices have a slice between them.
        cut = padded[image, :, rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2)

    def _zoomed(self, images: Tensor, draws: Tensor) -> Tensor:
        """Read a part of random area, shape and place at the pixels of the new size."""
        assert self.zoom is not None
        sides = size_of(images)
        size = self.size or sides
        share = self.zoom + (1 - self.zoom) * draws[:, 0]
        low, high = (math.log(ratio) for ratio in RATIOS)
        # One number serves mirroring and shape: its first bit, and the rest.
        half = draws[:, 1] * 2
        mirrored, rest = half < 1, half % 1
        ratio = torch.exp(low + (high - low) * rest)
        area = sides[0] * sides[1] * share
        height = (area / ratio).sqrt().clamp(max=sides[0])
        width = (area * ratio).sqrt().clamp(max=sides[1])
        top = draws[:, 2] * (sides[0] - height)
        left = draws[:, 3] * (sides[1] - width)
        steps_y = (torch.arange(size[0], device=images.device) + 0.5) / size[0]
        steps_x = (torch.arange(size[1], device=images.device) + 0.5) / size[1]
        y = top[:, None] + height[:, None] * steps_y
        x = left[:, None] + width[:, None] * steps_x
        if self.flip:
            x = torch.where(mirrored[:, None], x.flip(1), x)
        unit = unit_px(sides)
        x, y = (x - sides[1] / 2) / unit, (y - sides[0] / 2) / unit
        shape = (len(images), *size)
        points = torch.stack((x[:, None, :].expand(shape), y[:, :, None].expand(shape)), dim=-1)
        return read(images, points, "border")


def parse_augmentation(text: str, size: Size | None = None) -> Augmentation:
    """Parse `none`, `flip`, `crop:4+flip`, `zoom:0.25+flip`; the parts come in any order."""
    crop, flip, zoom = None, False, None
    for part in [] if text == "none" else text.split("+"):
        name, colon, value = part.strip().partition(":")
        try:
            if name == "crop" and colon:
                crop = int(value)
                continue
            if name == "zoom" and colon:
                zoom = float(value)
                continue
        except ValueError:
            raise InputError(
                "the augmentation", repr(part), "must have a number behind its colon", "crop:4"
            ) from None
        if name == "flip" and not colon:
            flip = True
            continue
        raise InputError(
            "the augmentation",
            repr(text),
            "must be auto, none, or of crop:PIXELS, flip and zoom:SHARE",
            "e.g. crop:4+flip",
        )
    return Augmentation(crop, flip, zoom, size)


def fitting_augmentation(data: str, frame: Size, size: Size) -> Augmentation:
    """Return the augmentation for a dataset with images of size `frame`, cut to `size`.

    CIFAR-10 is cropped and flipped, ImageNet zoomed and flipped. Digits are left alone: a mirrored
    digit is another sign. Whether a flip changes the class of other images is unknown: they are
    cropped at random, by an eighth of a side or within their frame.
    """
    if data in ("digits", "mnist"):
        return Augmentation(size=size)
    if data == "cifar10":
        return Augmentation(crop=4, flip=True, size=size)
    if data == "imagenet":
        return Augmentation(flip=True, zoom=0.25, size=size)
    return Augmentation(crop=0 if frame != size else min(size) // 8, size=size)
