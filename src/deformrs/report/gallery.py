"""Pictures under deformations that provably leave their label alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.checks import check_whole
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.geometry import Padding, check_pictures, size_of
from deformrs.report.figures import save_figure


@dataclass(frozen=True)
class Exhibit:
    """One picture and its certificate. image: [c, h, w]"""

    image: Tensor
    certificate: Certificate


def certified_shifts(certificate: Certificate, count: int, seed: int = 0) -> NDArray[np.float64]:
    """Guarantee: the certificate covers every one of these shifts: [count, d].

    A single parameter runs evenly from one end of the certified range to the other; several are
    drawn at random, each block out to its radius and then drawn in until the whole is covered.
    """
    if certificate.prediction is None:
        raise InputError(
            "the certificate", "abstaining", "must predict a class", "show another picture"
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
    check_whole("the number of exhibits", len(exhibits), least=1)
    check_whole("columns", columns, least=1)
    figure = Figure(figsize=(columns, 1.3 * len(exhibits)), layout="constrained")
    bands = figure.subfigures(len(exhibits), 1, squeeze=False)[:, 0]
    for band, exhibit in zip(bands, exhibits, strict=True):
        check_pictures("the picture", exhibit.image, rank=3)
        if size_of(exhibit.image) != exhibit.certificate.space.size:
            raise InputError(
                "the picture",
                f"of size {size_of(exhibit.image)}",
                f"must be the one certified, of size {exhibit.certificate.space.size}",
                "match pictures and certificates",
            )
        shifts = certified_shifts(exhibit.certificate, columns)
        params = torch.from_numpy(shifts)
        pictures = deformation.apply(exhibit.image.cpu(), params, padding)
        band.suptitle(exhibit.certificate.claim, x=0.01, ha="left", fontsize=9)
        frames = band.subplots(1, columns, squeeze=False)[0]
        for axes, picture in zip(frames, pictures, strict=True):
            shown = picture if len(picture) == 3 else picture.mean(dim=0, keepdim=True)
            pixels = shown.float().permute(1, 2, 0).numpy()
            axes.imshow(pixels, cmap="gray" if len(shown) == 1 else None, vmin=0, vmax=1)
            axes.set_axis_off()
    save_figure(figure, path, dpi=130)
