"""The least robust images of a run, small enough to be carried in the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from deformrs.data.preparation import Pixels
from deformrs.report.groups import Member
from deformrs.report.people import everywhere, noun, reach, shown_down
from deformrs.rounding import format_down
from deformrs.runs import Result, StoredRun

ImagesOf = Callable[[StoredRun, Result], Pixels | None]
"""Hands the image of a result, [c, h, w] in [0, 1], or None where it cannot be read."""

EACH = 6
_SIDE = 112


@dataclass(frozen=True)
class Card:
    """An image and what is known of it. `image` is a PNG as a data URI, or None."""

    source: str
    label: str
    answer: str
    reach: str
    probability: str
    image: str | None
    small: bool

    @property
    def name(self) -> str:
        """The last part of where it comes from."""
        return self.source.rstrip("/").rpartition("/")[2] or self.source


@dataclass(frozen=True)
class Cards:
    """Right ones of the smallest radius, and the worst of the others."""

    barely: tuple[Card, ...]
    failed: tuple[Card, ...]

    @property
    def unread(self) -> str:
        """What is to be said of images that could not be read."""
        every = self.barely + self.failed
        missing = sum(card.image is None for card in every)
        if not missing:
            return ""
        some = "The" if missing == len(every) else f"{missing} of the {len(every)}"
        return f"{some} images could not be read from where the run found them."

    @property
    def any_read(self) -> bool:
        """Is there an image to be shown?"""
        return any(card.image is not None for card in self.barely + self.failed)


def cards_of(member: Member, images: ImagesOf | None) -> Cards:
    """At most twelve images: six that hold least far, six wrong or abstained on."""
    right = [result for result in member.results if result.correct]
    others = [result for result in member.results if not result.correct]
    # Wrong answers before abstentions, the surest of each first.
    others.sort(key=lambda result: (result.certificate.prediction is None, -_margin(result)))
    right.sort(key=_margin)
    return Cards(
        tuple(_card(member, result, images) for result in right[:EACH]),
        tuple(_card(member, result, images) for result in others[:EACH]),
    )


def thumbnail(pixels: Pixels) -> str:
    """An image [c, h, w] in [0, 1] as a PNG of at most 112 pixels a side, in a data URI."""
    shown = pixels if len(pixels) in (1, 3) else pixels.mean(axis=0, keepdims=True)
    bytes_ = np.clip(np.rint(255 * shown), 0, 255).astype(np.uint8)
    image = Image.fromarray(bytes_[0] if len(bytes_) == 1 else bytes_.transpose(1, 2, 0))
    if max(image.size) > _SIDE:
        image.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _margin(result: Result) -> float:
    """All radii of a run grow with it."""
    return result.certificate.bound.lower - result.certificate.bound.upper


def _card(member: Member, result: Result, images: ImagesOf | None) -> Card:
    certificate = result.certificate
    pixels = None if images is None else images(member.run, result)
    prediction = certificate.prediction
    return Card(
        source=result.source or f"image {result.index}",
        label=member.class_name(result.label),
        answer="abstains" if prediction is None else member.class_name(prediction),
        reach="–" if prediction is None else _reach(result),
        probability=format_down(certificate.p_lower, 4),
        image=None if pixels is None else thumbnail(pixels),
        small=pixels is not None and max(pixels.shape[1:]) < _SIDE,
    )


def _reach(result: Result) -> str:
    space, radii = result.certificate.space, result.certificate.radii
    parts = [
        "every angle"
        if everywhere(block, radius)
        else shown_down(reach(block, radius, space.size), block.unit)
        for block, radius in zip(space.blocks, radii, strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    return ", ".join(
        f"{noun(block.family)} {part}" for block, part in zip(space.blocks, parts, strict=True)
    )
