"""What a Hugging Face image processor does, read from its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deformrs.errors import InputError, UnsupportedError
from deformrs.preparation import Interpolation, Preparation

# Those that do what their configuration says and nothing else; the rest have ways of their own.
_SQUARE = {"ViT", "DeiT", "Beit", "Siglip"}  # a bare number is the side of a square
_EDGE = {"CLIP", "Bit", "ConvNext", "MobileNetV1", "MobileNetV2"}  # ... or the shorter side

_RESAMPLE: dict[int, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
_ODDITIES = ("do_pad", "do_flip_channel_order", "rescale_offset")


@dataclass(frozen=True)
class Wanted:
    """The preparation and normalisation of pictures in [0, 1]."""

    preparation: Preparation
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def read_processor(name: str, config: dict[str, Any] | None, channels: int) -> Wanted:
    """The words of this package for an image processor's; None asks for no more than channels."""
    if config is None:
        return Wanted(Preparation(channels=channels))
    kind = str(config.get("image_processor_type") or config.get("feature_extractor_type"))
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        kind = kind.removesuffix(ending)
    odd = [key for key in _ODDITIES if config.get(key)]
    if kind not in _SQUARE | _EDGE or odd:
        raise UnsupportedError(
            f"the image processor of hf:{name}",
            f"{kind!r}" + (f" with {odd[0]}" if odd else ""),
            "must be one of " + ", ".join(sorted(_SQUARE | _EDGE)) + " for its ways to be known",
            "give the preparation, mean and std yourself",
        )
    try:
        preparation = _preparation(config, kind, channels)
        mean, std = _normalisation(config)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the image processor of hf:{name}",
            f"not understood ({error!r})",
            "must say its size, crop, mean and std",
            "give the preparation, mean and std yourself",
        ) from None
    return Wanted(preparation, mean, std)


def _preparation(config: dict[str, Any], kind: str, channels: int) -> Preparation:
    resize: int | tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    if config.get("do_resize", True):
        resize = _size(config["size"], square=kind in _SQUARE)
        if kind == "ConvNext" and isinstance(resize, int):
            # Small pictures are cut out of larger ones, large ones are stretched to a square.
            side = resize
            if side < 384:
                resize, crop = int(side / config["crop_pct"]), (side, side)
            else:
                resize = (side, side)
    if config.get("do_center_crop", False):
        cut = _size(config["crop_size"], square=True)
        crop = cut if isinstance(cut, tuple) else (cut, cut)
    return Preparation(
        resize=resize,
        crop=crop,
        interpolation=_RESAMPLE[config.get("resample", 2)],
        channels=channels,
    )


def _size(size: Any, square: bool) -> int | tuple[int, int]:
    if isinstance(size, int):
        return (size, size) if square else size
    if isinstance(size, list):
        height, width = size
        return int(height), int(width)
    if set(size) == {"shortest_edge"}:
        return int(size["shortest_edge"])
    if set(size) == {"height", "width"}:
        return int(size["height"]), int(size["width"])
    raise ValueError(f"size {size}")


def _normalisation(config: dict[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(255 f x - m) / s is (x - m / 255f) / (s / 255f) for pictures x in [0, 1]."""
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    mean, std = [0.0], [1.0]
    if config.get("do_normalize", True):
        mean, std = config["image_mean"], config["image_std"]
    scale = 255 * factor
    if abs(scale - 1) < 1e-9:  # 1/255 as text is not quite 1/255
        scale = 1.0
    return tuple(float(m) / scale for m in mean), tuple(float(s) / scale for s in std)
