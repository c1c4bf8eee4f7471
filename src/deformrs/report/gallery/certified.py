"""Images under deformations that provably leave their label alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.checks import check_integer
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.geometry import Padding, check_images, size_of
from deformrs.report.gallery.sheet import Band, Tile, draw_sheet
from deformrs.report.gallery.shown import Image
from deformrs.space import Space


@dataclass(frozen=True)
class Exhibit:
    """One image and its certificate. image: [c, h, w]"""

    image: Tensor
    certificate: Certificate

    def __post_init__(self) -> None:
        check_images("the image", self.image, rank=3)
        if size_of(self.image) != self.certificate.space.size:
            raise InputError(
                "the image",
                f"of size {size_of(self.image)}",
                f"must be the one certified, of size {self.certificate.space.size}",
                "match images and certificates",
            )

    def check_deformation(self, deformation: Deformation) -> None:
        """Raise unless the certificate speaks of that deformation's parameters."""
        space, own = self.certificate.space, deformation.space(size_of(self.image))
        if space != own:
            raise InputError(
                "the deformation",
                f"{deformation!r}, of parameters {_described(own)}",
                f"must be the one certified, of parameters {_described(space)}",
                "match deformation and certificate",
            )


def certified_shifts(certificate: Certificate, count: int, seed: int = 0) -> NDArray[np.float64]:
    """Guarantee: the certificate covers every one of these shifts: [count, d].

    A single parameter runs evenly from one end of the certified range to the other; several are
    drawn at random, each block out to its radius and then drawn in until the whole is covered.
    """
    check_integer("the number of shifts", count, least=1)
    if certificate.prediction is None:
        raise InputError(
            "the certificate", "abstaining", "must predict a class", "show another image"
        )
    space = certificate.space
    if space.dim == 1:
        radius = certificate.radius
        return np.linspace(-radius, radius, count)[:, None]
    generator = np.random.default_rng(seed)
    shifts = generator.standard_normal((count, space.dim))
    for index, (radius, part) in enumerate(zip(certificate.radii, space.slices, strict=True)):
        block, norm = shifts[:, part], certificate.law.norm(index)
        block *= radius / np.linalg.norm(block, ord=norm, axis=1, keepdims=True)
    for shift in shifts:
        while not certificate.covers(shift):
            shift *= 0.95
    return shifts


def draw_gallery(
    exhibits: Sequence[Exhibit],
    deformation: Deformation,
    path: Path,
    *,
    columns: int = 9,
    padding: Padding = "zeros",
) -> None:
    """A row for each exhibit: deformations from all over its certified set."""
    check_integer("the number of exhibits", len(exhibits), least=1)
    check_integer("columns", columns, least=1)
    bands = []
    for exhibit in exhibits:
        exhibit.check_deformation(deformation)
        params = torch.from_numpy(certified_shifts(exhibit.certificate, columns))
        images = deformation.apply(exhibit.image.detach().cpu(), params, padding)
        tiles = tuple(Tile(Image(image)) for image in images)
        bands.append(Band("", tiles, words=exhibit.certificate.claim))
    draw_sheet(bands, path)


def _described(space: Space) -> str:
    return " + ".join(f"{block.family} ({block.dim})" for block in space.blocks)
