"""The preparation of images as a model expects them: resizing, cropping, channels. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from deformrs.checks import check_choice, check_integer, check_size
from deformrs.config import Config, Configurable
from deformrs.errors import InputError
from deformrs.limits import MAX_PIXELS
from deformrs.runs.records import image_digest

Pixels = NDArray[np.float32]
"""One image: [c, h, w] in [0, 1]."""

Number = TypeVar("Number", np.uint8, np.float32)
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]

# What undoes each EXIF orientation; 1 is upright.
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_WHITE_16 = 65535
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # the weights of ITU-R 601, as in Pillow


@dataclass(frozen=True)
class Preparation(Configurable):
    """Resizing and centre cropping, as a model expects before its normalisation.

    `resize` is the length of the shorter side, or the (height, width) to stretch the image to.
    `crop` is the (height, width) of the centre to keep. `channels` is 1 (grey) or 3 (colour);
    None keeps the channels as stored. An image of more than `max_pixels` is refused, as stored or
    when resized; a run does not store that limit.

    >>> Preparation(resize=256, crop=(224, 224), channels=3).words
    'shorter side to 256 px (bilinear), centre 224 x 224, colour'
    """

    registry: ClassVar[dict[str, type]] = {}
    name = "preparation"
    resize: int | tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    interpolation: Interpolation = "bilinear"
    channels: int | None = None
    max_pixels: int = field(default=MAX_PIXELS, compare=False)

    def __post_init__(self) -> None:
        for name in ("resize", "crop"):  # lists, if read from a configuration
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.resize, tuple):
            check_size(self.resize)
        elif self.resize is not None:
            check_integer("resize", self.resize, least=1)
        if self.crop is not None:
            check_size(self.crop)
        check_choice("interpolation", self.interpolation, get_args(Interpolation))
        check_integer("max_pixels", self.max_pixels, least=1)
        if isinstance(self.channels, bool) or self.channels not in (None, 1, 3):
            raise InputError("channels", self.channels, "must be 1 or 3", "1 is grey, 3 is colour")

    @property
    def words(self) -> str:
        """The preparation in words, for messages."""
        parts = []
        if isinstance(self.resize, tuple):
            parts.append(f"to {self.resize[0]} x {self.resize[1]} px ({self.interpolation})")
        elif self.resize is not None:
            parts.append(f"shorter side to {self.resize} px ({self.interpolation})")
        if self.crop is not None:
            parts.append(f"centre {self.crop[0]} x {self.crop[1]}")
        if self.channels is not None:
            parts.append("grey" if self.channels == 1 else "colour")
        return ", ".join(parts) or "as stored"

    def to_config(self) -> Config:
        config = super().to_config()
        del config["name"]  # there is only one kind
        del config["max_pixels"]  # nobody else's run decides that
        return config

    @classmethod
    def from_config(cls, config: Config) -> Preparation:
        named = config | {"name": cls.name} if isinstance(config, dict) else config
        if isinstance(named, dict) and "max_pixels" in named:
            raise InputError(
                "a field of preparation",
                "max_pixels",
                "must not be stored: whoever reads the images sets it",
                "remove it",
            )
        return super().from_config(named)

    def prepare(self, image: Image.Image) -> Pixels:
        """Return the pixels of an image as the model expects them, turned upright by its EXIF data.

        Palettes, transparency and 16 bits are converted to 8-bit grey or RGB before resizing;
        transparent pixels show the colour stored there.
        """
        upright = _eight_bits(_upright(image))
        grey = self.channels == 1 or (self.channels is None and upright.mode in ("1", "L", "LA"))
        converted = _convert(upright, "L" if grey else "RGB")
        array = self._crop(np.asarray(self._resize(converted)))
        planes = array[None] if grey else array.transpose(2, 0, 1)
        pixels: Pixels = np.empty(planes.shape, np.float32)
        np.divide(planes, np.float32(255), out=pixels)
        return pixels

    def prepare_pixels(self, pixels: Pixels) -> Pixels:
        """Prepare an image that is already [c, h, w] in [0, 1], channel by channel."""
        if self.channels == 1 and len(pixels) == 3:
            pixels = np.tensordot(_LUMA, pixels, axes=1)[None]
        elif self.channels == 3 and len(pixels) == 1:
            pixels = np.repeat(pixels, 3, axis=0)
        elif self.channels is not None and len(pixels) != self.channels:
            raise InputError(
                "the image", f"of {len(pixels)} channels", "must be grey or colour", "convert it"
            )
        if self.resize is None and self.crop is None:
            return np.ascontiguousarray(pixels)
        layers = [np.asarray(self._resize(Image.fromarray(layer)), np.float32) for layer in pixels]
        return np.clip(np.stack([self._crop(layer) for layer in layers]), 0, 1)

    def _resize(self, image: Image.Image) -> Image.Image:
        if self.resize is None:
            return image
        width, height = image.size
        if isinstance(self.resize, tuple):
            height, width = self.resize
        elif width <= height:
            width, height = self.resize, max(1, height * self.resize // width)
        else:
            width, height = max(1, width * self.resize // height), self.resize
        if (width, height) == image.size:
            return image
        if width * height > self.max_pixels:
            raise InputError(
                "the image",
                f"{image.height} x {image.width} px, so {height} x {width} when resized",
                f"must have at most {self.max_pixels:,} pixels",
                "crop it, or leave it out; or pass --max-pixels N (in Python "
                "Preparation(max_pixels=N))",
            )
        return image.resize((width, height), Image.Resampling[self.interpolation.upper()])

    def _crop(self, array: NDArray[Number]) -> NDArray[Number]:
        """Return the centre of an image: [h, w] or [h, w, c]."""
        if self.crop is None:
            return array
        height, width = self.crop
        own_height, own_width = array.shape[:2]
        if width > own_width or height > own_height:
            raise InputError(
                "the image",
                f"{own_height} x {own_width} px after resizing",
                f"must not be smaller than the centre to keep, {height} x {width}",
                "resize the shorter side to at least that",
            )
        left, top = round((own_width - width) / 2), round((own_height - height) / 2)
        return array[top : top + height, left : left + width]


def pixels_digest(pixels: Pixels) -> str:
    """Return the digest of an image, as a run stores it with the certificate."""
    array = np.ascontiguousarray(pixels)
    return image_digest(array.shape, str(array.dtype), array.tobytes())


def _upright(image: Image.Image) -> Image.Image:
    """Undo the EXIF orientation.

    `ImageOps.exif_transpose` also rewrites the EXIF data, which fails for some cameras' files.
    """
    image.load()  # some formats apply the orientation themselves
    method = _TRANSPOSITIONS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    return image if method is None else image.transpose(method)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey to 8 bits; Pillow's own conversion would clip it to 255."""
    if image.mode.startswith("I"):
        values = np.asarray(image, np.int64)
        if values.min() < 0 or values.max() > _WHITE_16:
            raise InputError(
                "the image",
                f"of values from {values.min()} to {values.max()}",
                f"must be 8 or 16 bits, 0 to {_WHITE_16}",
                "save it as PNG",
            )
        return Image.fromarray(np.round(values * (255 / _WHITE_16)).astype(np.uint8))
    if image.mode == "F":
        raise InputError(
            "the image", "of floating-point pixels", "must be 8 or 16 bits", "save it as PNG"
        )
    return image


def _convert(image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """Convert to grey or RGB, dropping palette and transparency."""
    if image.mode in ("P", "PA"):
        # A transparent palette cannot become grey or colour in one step.
        image = image.convert("RGBA")
    try:
        return image.convert(mode)
    except ValueError:
        raise InputError(
            "the image", f"in {image.mode} colours", "must be grey or RGB", "save it as PNG"
        ) from None
