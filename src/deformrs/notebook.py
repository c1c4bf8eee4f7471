"""A certificate as HTML: the image and its certified set, for notebooks. Needs no torch."""

from __future__ import annotations

import base64
import html
import io
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deformrs.space import Block

if TYPE_CHECKING:
    from deformrs.certificate import Certificate

Pixels = NDArray[np.uint8]

_HALF, _ARC, _BAR = 58.0, 86.0, 92.0
"""Half the longer side of the image, the radius of an arc and the height of a bar, in a drawing
that reaches from -100 to 100."""
_SET = 'fill="none" stroke="#2a9d55" stroke-width="5"'
_FRAME = 'fill="none" stroke="#999" stroke-width="1.5"'


def to_html(certificate: Certificate) -> str:
    """Return the certificate as HTML: one drawing for each block of parameters, and its summary.

    Guarantee: what is drawn lies inside the certified set, up to the width of the line.
    """
    drawings = [
        _drawing(certificate, index, block) for index, block in enumerate(certificate.space.blocks)
    ]
    if certificate.prediction is None and certificate.preview is not None:
        drawings = [_svg("", certificate)]
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:12px;align-items:center;'
        f'font-family:sans-serif;font-size:13px">{"".join(drawings)}'
        f"<div>{html.escape(certificate.claim)}<br>"
        f'<span style="opacity:.7">{html.escape(certificate.odds)}</span></div></div>'
    )


def _drawing(certificate: Certificate, index: int, block: Block) -> str:
    radius = certificate.radii[index]
    match block.family:
        case _ if certificate.prediction is None:
            return ""
        case "rotation":
            return _svg(_arc(math.pi if block.is_whole(radius) else radius), certificate)
        case "translation":
            unit = _extent(certificate)[2]
            return _svg(_ball(radius * unit, certificate.law.norm(index)), certificate)
        case "scaling":
            # The magnification 1/α on an axis from a quarter to four times.
            ends = (-math.log2(1 + radius), -math.log2(1 - radius) if radius < 1 else math.inf)
            return _svg(_range(ends[0] / 2, ends[1] / 2, ("25 %", "100 %", "400 %")), certificate)
        case "shear":
            return _svg(_range(-radius, radius, ("-100 %", "0", "100 %")), certificate)
    return "" if index else _svg("", certificate)


def _svg(drawn: str, certificate: Certificate) -> str:
    """Return a drawing around the image; nothing if there is neither."""
    if not drawn and certificate.preview is None:
        return ""
    width, height, _ = _extent(certificate)
    box = f'x="{-width:.2f}" y="{-height:.2f}" width="{2 * width:.2f}" height="{2 * height:.2f}"'
    picture = f"<rect {box} {_FRAME}/>"
    if certificate.preview is not None:
        picture = f'<image {box} href="{_png(certificate.preview)}" image-rendering="pixelated"/>'
    label = html.escape(certificate.claim)
    return (
        '<svg width="150" height="150" viewBox="-100 -100 200 200" role="img" '
        f'aria-label="{label}">{picture}{drawn}</svg>'
    )


def _extent(certificate: Certificate) -> tuple[float, float, float]:
    """Return half the width and height of the image as drawn, and half its shorter side."""
    height, width = certificate.space.size
    scale = _HALF / max(height, width)
    return width * scale, height * scale, min(height, width) * scale


def _arc(radius: float) -> str:
    """Return the angles up to a radius each way, about the top of a circle."""
    circle = f'<circle r="{_ARC}" {_FRAME}/>'
    if radius >= math.pi:
        return f'{circle}<circle r="{_ARC}" {_SET}/>'
    x, y = _ARC * math.sin(radius), -_ARC * math.cos(radius)
    large = int(radius > math.pi / 2)
    arc = f"M{-x:.4f} {y:.4f}A{_ARC} {_ARC} 0 {large} 1 {x:.4f} {y:.4f}"
    return f'{circle}<path d="{arc}" {_SET}/>'


def _ball(radius: float, norm: int) -> str:
    """Return the shifts of the image's centre up to a radius: a disc, or a diamond in l1."""
    r = math.floor(1000 * min(radius, 1000.0)) / 1000
    if norm == 1:
        return f'<polygon points="{-r},0 0,{r} {r},0 0,{-r}" {_SET}/>'
    return f'<circle r="{r}" {_SET}/>'


def _range(low: float, high: float, ticks: tuple[str, str, str]) -> str:
    """Return a range on an axis from -1 to 1 below the image."""
    left, right = (90 * min(1.0, max(-1.0, end)) for end in (low, high))
    axis = f'<path d="M-90 {_BAR}H90M0 {_BAR - 5}V{_BAR + 5}" {_FRAME}/>'
    labels = "".join(
        f'<text x="{x}" y="{_BAR - 10}" font-size="11" fill="#888" text-anchor="{anchor}">{tick}'
        "</text>"
        for x, anchor, tick in zip((-90, 0, 90), ("start", "middle", "end"), ticks, strict=True)
    )
    return f'{axis}{labels}<path d="M{left:.4f} {_BAR}H{right:.4f}" {_SET}/>'


def _png(pixels: Pixels) -> str:
    """Return an image, [h, w, 1 or 3], as the address of a PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
