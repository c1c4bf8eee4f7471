"""What a tile of a gallery shows: an image, or the arrows of a displacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from torch import Tensor

from deformrs.geometry import size_of
from deformrs.units import Size

ARROWS = 13
"""Arrows along the longer side of an image."""
COLOURS = LinearSegmentedColormap.from_list("lengths", ["#f2b04b", "#c63b63", "#2b1055"])
"""None of them pale: short arrows have to be seen on white."""


class Shown(Protocol):
    """Something to be drawn over the area of an image, with a colour scale below if it has one."""

    has_scale: bool

    @property
    def size(self) -> Size: ...

    def draw(self, axes: Axes) -> None: ...


@dataclass(frozen=True)
class Image:
    """pixels: [c, h, w] in [0, 1]. Three channels are shown in colour, others as their mean."""

    pixels: Tensor
    has_scale = False

    @property
    def size(self) -> Size:
        return size_of(self.pixels)

    def draw(self, axes: Axes) -> None:
        pixels = self.pixels.detach().cpu().float()
        if len(pixels) != 3:
            pixels = pixels.mean(dim=0, keepdim=True)
        # Interpolation may pass 1 by the last bit, which matplotlib would complain about.
        pixels = pixels.clamp(0, 1).permute(1, 2, 0)
        axes.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1)


@dataclass(frozen=True)
class Arrows:
    """field_px: [h, w, 2], in pixels. Each arrow points from a pixel to where it is read.

    Colours run from 0 to `longest_px`. An arrow of `usual_px` reaches a little beyond the next
    arrow: at true length they would be too short to see or too long to tell apart.
    """

    field_px: Tensor
    longest_px: float
    usual_px: float
    has_scale = True

    @property
    def size(self) -> Size:
        return self.field_px.shape[0], self.field_px.shape[1]

    def draw(self, axes: Axes) -> None:
        height, width = self.size
        step = max(1, round(max(self.size) / ARROWS))
        rows = np.arange((height - 1) % step // 2, height, step)
        columns = np.arange((width - 1) % step // 2, width, step)
        arrows = self.field_px.detach().cpu().double().numpy()[np.ix_(rows, columns)]
        axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
        axes.quiver(
            *np.meshgrid(columns, rows),
            *np.moveaxis(arrows, -1, 0),
            np.linalg.norm(arrows, axis=-1),
            cmap=COLOURS,
            clim=(0, self.longest_px or 1),
            angles="xy",
            scale_units="xy",
            scale=(self.usual_px or 1) / (1.4 * step),
            width=0.012,
            headwidth=3.6,
            headlength=4,
            headaxislength=3.6,
        )


def arrows_of(fields_px: Tensor) -> list[Arrows]:
    """Several fields, [n, h, w, 2], drawn to one scale."""
    lengths = torch.linalg.vector_norm(fields_px.detach().cpu().double(), dim=-1)
    longest, usual = float(lengths.max()), float(np.quantile(lengths.numpy(), 0.9))
    return [Arrows(field, longest, usual) for field in fields_px]


def draw_scale(axes: Axes) -> None:
    """The colours of arrows, from no length at the left to the longest at the right."""
    axes.imshow(np.linspace(0, 1, 128)[None], cmap=COLOURS, aspect="auto")
