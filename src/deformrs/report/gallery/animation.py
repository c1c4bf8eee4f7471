"""An image that is turned, beside the arc of angles inside which its label is certified."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from deformrs.errors import InputError, UnsupportedError
from deformrs.geometry import Padding
from deformrs.report.gallery.exhibits import Exhibit
from deformrs.report.gallery.tiles import class_label, deform
from deformrs.rounding import format_alpha
from deformrs.runs.files import replacement

if TYPE_CHECKING:
    from deformrs.deformations import Deformation

ANIMATIONS = ("gif", "webp")
"""Formats of animations, by the ends of their names."""

FRAMES, MILLISECONDS = 72, 80
_SIDE, _GAP, _RING = 240, 24, 16
_GREEN, _RED, _INK, _SOFT = "#1a7f37", "#cf222e", "#1f2328", "#d0d7de"

Answers = Callable[[Sequence[Tensor]], Sequence[int]]
"""Returns what a model predicts for images, [c, h, w]."""


def check_animation_path(path: Path) -> None:
    """Raise unless an animation can be written there."""
    if path.suffix.removeprefix(".") not in ANIMATIONS:
        raise InputError("the animation's path", path, "must end in .gif or .webp", "turning.webp")


def draw_turning(
    exhibit: Exhibit,
    deformation: Deformation,
    path: Path,
    *,
    answers: Answers | None = None,
    names: Sequence[str] | None = None,
    padding: Padding = "zeros",
) -> None:
    """Write an animation of an image that is turned once around, as GIF or WebP.

    Beside it are the certified angles, in green, and the current one. With `answers`, what the
    model alone predicts stands beneath the image.

    Guarantee: no angle is drawn as certified that the certificate does not cover.
    """
    check_animation_path(path)
    exhibit.check_deformation(deformation)
    certificate = exhibit.certificate
    if [block.family for block in certificate.space.blocks] != ["rotation"]:
        raise UnsupportedError(
            "the deformation",
            repr(deformation),
            "must be Rotation() to be animated",
            "draw others by --kind certified",
        )
    angles = torch.linspace(0, 2 * math.pi, FRAMES + 1, dtype=torch.float64)[:-1, None]
    turned = [image for image, _ in deform(exhibit.image, deformation, angles, padding)]
    predictions = [None] * FRAMES if answers is None else answers(turned)
    frames = []
    for angle, image, prediction in zip(angles[:, 0].tolist(), turned, predictions, strict=True):
        covered = certificate.covers([math.remainder(angle, 2 * math.pi)])
        frames.append(_frame(exhibit, image, angle, covered, prediction, names))
    with replacement(path) as file:
        frames[0].save(
            file,
            format=path.suffix.removeprefix("."),
            save_all=True,
            append_images=frames[1:],
            duration=MILLISECONDS,
            loop=0,
        )


def _frame(
    exhibit: Exhibit,
    image: Tensor,
    angle: float,
    covered: bool,
    prediction: int | None,
    names: Sequence[str] | None,
) -> Image.Image:
    certificate, centre = exhibit.certificate, _GAP + _SIDE + _GAP + _SIDE // 2
    frame = Image.new("RGB", (2 * _SIDE + 3 * _GAP, _SIDE + 4 * _GAP), "white")
    frame.paste(_pixels(image), (_GAP, _GAP))
    draw = ImageDraw.Draw(frame)
    ring = (centre - _SIDE // 2, _GAP, centre + _SIDE // 2, _GAP + _SIDE)
    draw.arc(ring, 0, 360, _SOFT, _RING)
    if certificate.prediction is not None:
        # Whole degrees, rounded down: the drawing rounds ends to pixels.
        degrees = math.floor(math.degrees(certificate.radius))
        draw.arc(ring, -90 - degrees, -90 + degrees, _GREEN, _RING)
    x, y = -math.sin(angle), -math.cos(angle)  # as the content turns
    middle, length = (centre, _GAP + _SIDE // 2), _SIDE // 2 - _RING
    draw.line((*middle, middle[0] + length * x, middle[1] + length * y), _INK, 4)
    if prediction is not None:
        right = prediction == certificate.prediction
        text = f"model alone: {class_label(prediction, names)}"
        _write(draw, (_GAP, _SIDE + 1.4 * _GAP), text, _INK if right else _RED)
    claim = "abstains"
    if certificate.prediction is not None:
        label = class_label(certificate.prediction, names)
        claim = f"certified: {label}" if covered else "not certified here"
    _write(draw, (_SIDE + 2 * _GAP, _SIDE + 1.4 * _GAP), claim, _GREEN if covered else _INK)
    confidence = f"confidence 1 - alpha, alpha = {format_alpha(certificate.alpha)}"
    _write(draw, (_SIDE + 2 * _GAP, _SIDE + 2.5 * _GAP), confidence, "#57606a", 13)
    return frame


def _pixels(image: Tensor) -> Image.Image:
    """Return an image as large as the frame has room, its pixels to be seen if they are few."""
    channels = image if len(image) == 3 else image.mean(dim=0, keepdim=True).expand(3, -1, -1)
    bytes_ = (255 * channels.clamp(0, 1)).round().byte().permute(1, 2, 0).numpy()
    few = max(bytes_.shape[:2]) < _SIDE // 2
    how = Image.Resampling.NEAREST if few else Image.Resampling.LANCZOS
    return Image.fromarray(bytes_).resize((_SIDE, _SIDE), how)


def _write(
    draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, colour: str, points: int = 17
) -> None:
    font = ImageFont.truetype(findfont(FontProperties()), points)
    draw.text(place, text, colour, font)
