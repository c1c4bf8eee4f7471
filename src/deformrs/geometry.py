"""Pixel coordinates and the warp: the only place where images are interpolated.

Let u = min(H, W)/2 pixels be the unit of length. The centre of pixel (row i, column j) lies at
x = (j + ½ - W/2)/u, y = (i + ½ - H/2)/u: a square image spans [-1, 1]² from edge to edge, and on
any other shape one unit is the same number of pixels both ways, so rotations stay rigid.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from deformrs.checks import check_choice
from deformrs.errors import InputError
from deformrs.units import Size, unit_px

Padding = Literal["zeros", "border", "reflection"]
"""What is read outside the image: black, the nearest pixel, or its mirror image."""


def size_of(images: Tensor) -> Size:
    """Return the height and width of images [..., h, w]."""
    return images.shape[-2], images.shape[-1]


def check_images(name: str, images: object, rank: int) -> None:
    """Raise unless images are finite floats in [0, 1]: of rank 3 for one, 4 for several."""
    if not isinstance(images, Tensor):
        raise InputError(
            name,
            f"a {type(images).__name__}",
            "must be a torch.Tensor, channels first, in [0, 1]",
            "e.g. torch.from_numpy(array).permute(2, 0, 1) / 255",
        )
    if images.ndim != rank or images.numel() == 0:
        shape = "C x H x W" if rank == 3 else "N x C x H x W"
        raise InputError(
            name,
            f"of shape {tuple(images.shape)}",
            f"must be non-empty, {shape}",
            "image[None] adds a dimension, images[0] removes one",
        )
    if images.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise InputError(
            name, f"of type {images.dtype}", "must be floating point", "image.float() / 255"
        )
    low, high = torch.aminmax(images.detach())
    if not (low >= 0 and high <= 1):  # NaN fails both
        remedy = "divide by 255 if it holds 0 to 255, and leave normalisation to the model"
        if low < 0:
            remedy = (
                "undo its normalisation, which belongs to the model: "
                "load_model(NetworkSpec(network, mean=..., std=...))"
            )
        raise InputError(
            name,
            "not a number somewhere" if images.isnan().any() else f"in [{low:g}, {high:g}]",
            "must lie in [0, 1]",
            remedy,
        )


def pixel_grid(size: Size, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Return the centre of every pixel as (x, y): [h, w, 2]."""
    height, width = size
    unit = unit_px(size)
    x = (torch.arange(width, device=device, dtype=dtype) + (0.5 - width / 2)) / unit
    y = (torch.arange(height, device=device, dtype=dtype) + (0.5 - height / 2)) / unit
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


def read(images: Tensor, points: Tensor, padding: Padding) -> Tensor:
    """Interpolate images bilinearly at points between their pixels.

    images: [n, c, h, w], points: [n, h', w', 2] -> [n, c, h', w'], in the images' precision.

    Coordinates need more bits than pixel values, so the interpolation runs in float32 at least.
    """
    check_choice("padding", padding, get_args(Padding))
    height, width = images.shape[-2:]
    working = torch.promote_types(torch.promote_types(images.dtype, points.dtype), torch.float32)
    points = points.to(working)
    if height != width:  # grid_sample wants each axis to span [-1, 1] from edge to edge
        unit = unit_px((height, width))
        x, y = points.unbind(-1)
        points = torch.stack((x * (2 * unit / width), y * (2 * unit / height)), dim=-1)
    # torch.compile would decompose it, and compute each position again for every channel.
    whole = torch.compiler.is_compiling() and points.is_cuda and not _differentiated(images, points)
    interpolated = _kept_whole if whole else _interpolated
    return interpolated(images.to(working), points, padding).to(images.dtype)


def _differentiated(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _interpolated(images: Tensor, points: Tensor, padding: str) -> Tensor:
    return grid_sample(images, points, mode="bilinear", padding_mode=padding, align_corners=False)


_kept_whole = torch.library.custom_op("deformrs::interpolated", _interpolated, mutates_args=())


@_kept_whole.register_fake
def _like(images: Tensor, points: Tensor, padding: str) -> Tensor:
    return images.new_empty((*images.shape[:2], *points.shape[1:3]))


def warp(images: Tensor, field: Tensor, padding: Padding = "zeros") -> Tensor:
    """Deform images: output pixel p shows what lies at p + v(p) in the input.

    images: [c, h, w] for one image under every field, or [n, c, h, w] for one each;
    field: [n, h, w, 2] -> [n, c, h, w]

    Guarantee: a zero field gives the image back to the last bits of float32.
    """
    grid = pixel_grid(size_of(images), field.device, field.dtype)
    if images.ndim == 3:
        images = images.expand(len(field), *images.shape)
    return read(images, grid + field, padding)
