"""One image under several deformations: what is seen, and how far its pixels moved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.deformations import Deformation
from deformrs.geometry import Padding, check_images, size_of
from deformrs.rounding import format_down
from deformrs.space import Space
from deformrs.units import unit_px


def deform(
    image: Tensor, deformation: Deformation, params: Tensor, padding: Padding
) -> Iterator[tuple[Tensor, Tensor]]:
    """Each deformed image, [c, h, w], and its field in pixels, [h, w, 2], on the CPU.

    params: [n, d]. One at a time, for memory: large images are deformed in double precision.
    """
    check_images("the image", image, rank=3)
    image, params, size = image.detach().cpu(), params.detach().cpu(), size_of(image)
    for row in params:
        warped = deformation.apply(image, row[None], padding)[0]
        yield warped, deformation.field(row[None], size)[0] * unit_px(size)


def reach_px(field_px: Tensor) -> float:
    """How far the farthest pixel is read from its place. field_px: [h, w, 2]"""
    return float(torch.linalg.vector_norm(field_px.double(), dim=-1).max())


def shift_label(shift: NDArray[np.float64], reach: float, space: Space) -> str:
    """A single parameter in its unit, or how far pixels move.

    >>> from deformrs import Affine, Rotation
    >>> shift_label(np.array([-0.5]), 7.0, Rotation().space((28, 28)))
    '−28.6°'
    >>> shift_label(np.full(6, 0.1), 3.19, Affine().space((28, 28)))
    'moves 3.1 px'

    Guarantee: what is shown is never more than the truth, so that it cannot pass the radius.
    """
    if space.dim > 1:
        return f"moves {pixels_down(reach)}"
    return _signed(shift[0], space.blocks[0].unit.show_down(abs(shift[0]), space.size, decimals=1))


def setting_label(params: NDArray[np.float64], reach: float, space: Space) -> str:
    """The same for a deformation that somebody chose: to four digits.

    >>> from deformrs import Rotation
    >>> setting_label(np.array([np.pi / 6]), 7.0, Rotation().space((28, 28)))
    '+30°'
    """
    if space.dim > 1:
        return f"moves {pixels_down(reach)}"
    return _signed(params[0], space.blocks[0].unit.show(abs(params[0]), space.size))


def pixels_down(length_px: float) -> str:
    """A length in pixels with as many decimals as one wants to see, rounded down."""
    return f"{format_down(length_px, 1 if length_px >= 1 else 2)} px"


def _signed(value: float, shown: str) -> str:
    sign = "" if value == 0 else "−" if value < 0 else "+"
    return sign + shown
