"""Images from which a deformation's parameters can be read back, and classifiers that do so.

A ramp holds its own coordinates as brightness: x in the first channel, y in the second. Bilinear
interpolation is exact on it, so the deformed ramp shows where every pixel was read.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from deformrs.geometry import pixel_grid

CPU = torch.device("cpu")
SIDE = 16
NEAR = 5, 10  # two pixels that mirror each other about the centre of 16
Reader = Callable[[Tensor], Tensor]


def ramp(side: int = SIDE) -> Tensor:
    """[2, side, side], brightness 0.5 + 0.4 (x, y)."""
    return 0.5 + 0.4 * pixel_grid((side, side), CPU, torch.float32).permute(2, 0, 1)


def places(images: Tensor) -> Tensor:
    """Where each pixel of a deformed ramp was read: [n, 2, h, w]."""
    return (images - 0.5) / 0.4


def blob(x: float, y: float, side: int = 32, width: float = 0.12) -> Tensor:
    """[1, side, side], a bright spot."""
    grid = pixel_grid((side, side), CPU, torch.float32)
    return torch.exp(-((grid - torch.tensor([x, y])) ** 2).sum(-1) / (2 * width**2))[None]


def centroid(images: Tensor) -> Tensor:
    """The middle of the light: [n, 2]."""
    grid = pixel_grid((images.shape[-2], images.shape[-1]), CPU, torch.float32)
    mass = images.sum(dim=1)
    return torch.einsum("nhw,hwc->nc", mass, grid) / mass.sum(dim=(1, 2))[:, None]


def linear_map(images: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix [n, 2, 2] and the shift [n, 2] of an affinely deformed ramp."""
    low, high = NEAR
    span = 2 * (high - low) / SIDE
    found = places(images)
    corners = found[:, :, [low, high]][:, :, :, [low, high]]  # [n, 2, row, column]
    along_x = (corners[..., 1] - corners[..., 0]).mean(dim=2) / span
    along_y = (corners[..., 1, :] - corners[..., 0, :]).mean(dim=2) / span
    return torch.stack([along_x, along_y], dim=-1), corners.mean(dim=(2, 3))


def one_if_below(reader: Reader, threshold: float) -> Reader:
    """The classifier that answers 1 while what `reader` reads, [n], stays below a threshold."""

    def classify(images: Tensor) -> Tensor:
        below = reader(images) < threshold
        return torch.stack([~below, below], dim=1).float()

    return classify
