"""Pixel coordinates and the warp: the only place where pictures are interpolated.

Let u = min(H, W)/2 pixels be the unit of length. The centre of pixel (row i, column j) lies at
x = (j + ½ - W/2)/u, y = (i + ½ - H/2)/u: a square image spans [-1, 1]² from edge to edge, and on
any other shape one unit is the same number of pixels both ways, so rotations stay rigid.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from deformrs.errors import InputError
from deformrs.units import Size, unit_px

Padding = Literal["zeros", "border", "reflection"]
"""What is read outside the picture: black, the nearest pixel, or its mirror image."""


def pixel_grid(size: Size, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """The centre of every pixel as (x, y): [h, w, 2]."""
    height, width = size
    unit = unit_px(size)
    x = (torch.arange(width, device=device, dtype=dtype) + (0.5 - width / 2)) / unit
    y = (torch.arange(height, device=device, dtype=dtype) + (0.5 - height / 2)) / unit
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


def read(images: Tensor, points: Tensor, padding: Padding) -> Tensor:
    """Read pictures at points between their pixels, bilinearly.

    images: [n, c, h, w], points: [n, h', w', 2] -> [n, c, h', w'], in the images' precision.

    Coordinates need more bits than pixel values, so the interpolation runs in float32 at least.
    """
    if padding not in get_args(Padding):
        raise InputError(
            "padding", repr(padding), "must be one of " + ", ".join(get_args(Padding)), "choose one"
        )
    height, width = images.shape[-2:]
    working = torch.promote_types(torch.promote_types(images.dtype, points.dtype), torch.float32)
    points = points.to(working)
    if height != width:  # grid_sample wants each axis to span [-1, 1] from edge to edge
        unit = unit_px((height, width))
        x, y = points.unbind(-1)
        points = torch.stack((x * (2 * unit / width), y * (2 * unit / height)), dim=-1)
    return grid_sample(
        images.to(working), points, mode="bilinear", padding_mode=padding, align_corners=False
    ).to(images.dtype)


def warp(images: Tensor, field: Tensor, padding: Padding = "zeros") -> Tensor:
    """Deform pictures: output pixel p shows what lies at p + v(p) in the input.

    images: [c, h, w] for one picture under every field, or [n, c, h, w] for one each;
    field: [n, h, w, 2] -> [n, c, h, w]

    Guarantee: a zero field gives the picture back to the last bits of float32.
    """
    size = images.shape[-2], images.shape[-1]
    grid = pixel_grid(size, field.device, field.dtype)
    if images.ndim == 3:
        images = images.expand(len(field), *images.shape)
    return read(images, grid + field, padding)
