"""Images from which the parameters of a deformation can be read back, and classifiers that do so.

A ramp encodes its own coordinates as brightness: x in the first channel, y in the second. Bilinear
interpolation is exact on it, so a deformed ramp shows where every pixel was read.
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
    """Return [2, side, side] of brightness 0.5 + 0.4 (x, y)."""
    return 0.5 + 0.4 * pixel_grid((side, side), CPU, torch.float32).permute(2, 0, 1)


def places(images: Tensor) -> Tensor:
    """Return the coordinates at which each pixel of a deformed ramp was read: [n, 2, h, w]."""
    return (images - 0.5) / 0.4


def blob(x: float, y: float, side: int = 32, width: float = 0.12) -> Tensor:
    """Return [1, side, side] with a bright spot at (x, y)."""
    grid = pixel_grid((side, side), CPU, torch.float32)
    return torch.exp(-((grid - torch.tensor([x, y])) ** 2).sum(-1) / (2 * width**2))[None]


def centroid(images: Tensor) -> Tensor:
    """Return the centre of brightness of each image: [n, 2]."""
    grid = pixel_grid((images.shape[-2], images.shape[-1]), CPU, torch.float32)
    mass = images.sum(dim=1)
    return torch.einsum("nhw,hwc->nc", mass, grid) / mass.sum(dim=(1, 2))[:, None]


def linear_map(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrix [n, 2, 2] and the shift [n, 2] of an affinely deformed ramp."""
    low, high = NEAR
    span = 2 * (high - low) / SIDE
    read_at = places(images)
    corners = read_at[:, :, [low, high]][:, :, :, [low, high]]  # [n, 2, row, column]
    along_x = (corners[..., 1] - corners[..., 0]).mean(dim=2) / span
    along_y = (corners[..., 1, :] - corners[..., 0, :]).mean(dim=2) / span
    return torch.stack([along_x, along_y], dim=-1), corners.mean(dim=(2, 3))


def one_if_below(reader: Reader, threshold: float) -> Reader:
    """Return the classifier that answers 1 while the reading [n] stays below a threshold."""

    def classify(images: Tensor) -> Tensor:
        below = reader(images) < threshold
        return torch.stack([~below, below], dim=1).float()

    return classify
