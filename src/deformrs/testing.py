"""Checks that every deformation must pass, built-in or your own.

>>> from deformrs import Rotation
>>> from deformrs.testing import check_deformation
>>> check_deformation(Rotation())
"""

from __future__ import annotations

import json
from itertools import product
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from torch import Tensor

from deformrs.deformations import Deformation
from deformrs.geometry import Padding, pixel_grid
from deformrs.units import Size

SIZES: tuple[Size, ...] = ((28, 28), (33, 33), (24, 40), (51, 32))
"""Even, odd, wide and tall."""

_STRENGTH = 0.15
_SCIPY_MODES = {"zeros": "grid-constant", "border": "nearest", "reflection": "reflect"}


def check_deformation(deformation: Deformation, seed: int = 0) -> None:
    """Raise an AssertionError that names the property a deformation lacks, if any."""
    generator = torch.Generator().manual_seed(seed)
    deformation.check_registered()
    _check_configuration(deformation)
    for size in SIZES:
        image = torch.rand(2, *size, generator=generator)
        params = _STRENGTH * torch.randn(3, deformation.dim(size), generator=generator)
        _check_field(deformation, params, size)
        _check_space(deformation, params, size)
        _check_identity(deformation, image)
        _check_images(deformation, image, params)
        _check_precisions(deformation, image, params)


def _expect(condition: object, deformation: Deformation, promise: str) -> None:
    if not condition:
        raise AssertionError(f"{deformation!r} breaks a rule: {promise}")


def _check_configuration(deformation: Deformation) -> None:
    written = json.loads(json.dumps(deformation.to_config()))
    _expect(
        Deformation.from_config(written) == deformation,
        deformation,
        "from_config(to_config()) gives an equal object",
    )
    _expect(
        hash(deformation) == hash(Deformation.from_config(written)),
        deformation,
        "equal deformations have equal hashes (use a frozen dataclass)",
    )


def _check_space(deformation: Deformation, params: Tensor, size: Size) -> None:
    space = deformation.space(size)
    _expect(
        space.dim == deformation.dim(size), deformation, "blocks and dim agree on the parameters"
    )
    periods = torch.from_numpy(np.where(np.isfinite(space.periods), space.periods, 0.0))
    double = params.double()
    _expect(
        torch.allclose(
            deformation.field(double + periods, size), deformation.field(double, size), atol=1e-9
        ),
        deformation,
        "adding the period to a parameter changes nothing",
    )


def _check_identity(deformation: Deformation, image: Tensor) -> None:
    size = image.shape[-2], image.shape[-1]
    zeros = torch.zeros(1, deformation.dim(size))
    for padding, dtype in product(
        get_args(Padding), (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    ):
        difference = (deformation.apply(image, zeros.to(dtype), padding)[0] - image).abs().max()
        _expect(
            difference <= 1e-5,
            deformation,
            f"zero parameters give the image back ({size}, {padding}: off by {difference:.2g})",
        )


def _check_field(deformation: Deformation, params: Tensor, size: Size) -> None:
    field = deformation.field(params, size)
    _expect(field.isfinite().all(), deformation, "the field is finite")
    _expect(
        torch.equal(field, deformation.field(params, size)),
        deformation,
        "equal parameters give equal fields: no randomness",
    )
    alone = torch.cat([deformation.field(row[None], size) for row in params])
    _expect(
        torch.allclose(field, alone, atol=1e-6), deformation, "samples do not influence each other"
    )
    points = pixel_grid(size, params.device, params.dtype)[None]
    spread = points.expand(len(params), -1, -1, -1)
    for given in (points, spread):
        _expect(
            torch.allclose(deformation.displacement(params, given, size), field, atol=1e-5),
            deformation,
            "displacement at the pixels is the field",
        )
    _expect(
        torch.allclose(
            deformation.displacement(params, points.flip(1, 2), size), field.flip(1, 2), atol=1e-5
        ),
        deformation,
        "displacement is evaluated at the given points",
    )


def _check_images(deformation: Deformation, image: Tensor, params: Tensor) -> None:
    size = image.shape[-2], image.shape[-1]
    field = deformation.field(params.double(), size).numpy()
    for padding in get_args(Padding):
        images = deformation.apply(image, params, padding).numpy()
        for warped, displacement in zip(images, field, strict=True):
            expected = interpolated(image.numpy(), displacement, padding)
            off = np.abs(warped - expected).max()
            _expect(
                off <= 1e-4,
                deformation,
                f"images agree with an independent interpolation ({padding}: off by {off:.2g})",
            )


def _check_precisions(deformation: Deformation, image: Tensor, params: Tensor) -> None:
    full = deformation.apply(image, params)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        other = deformation.apply(image.to(dtype), params)
        _expect(other.dtype == dtype, deformation, f"{dtype} images stay {dtype}")
        _expect(
            torch.allclose(other.float(), full, atol=1e-2),
            deformation,
            f"{dtype} images differ from float32 by rounding only",
        )


def interpolated(
    image: NDArray[np.float32], displacement: NDArray[np.float64], padding: str
) -> NDArray[np.float64]:
    """Return the warp computed by SciPy, from the definition of the coordinates.

    image: [c, h, w], displacement: [h, w, 2] in units -> [c, h, w]
    """
    height, width = image.shape[1:]
    unit = min(height, width) / 2
    rows, columns = np.mgrid[:height, :width]
    places = np.stack([rows + displacement[..., 1] * unit, columns + displacement[..., 0] * unit])
    return np.stack(
        [
            map_coordinates(channel.astype(np.float64), places, order=1, mode=_SCIPY_MODES[padding])
            for channel in image
        ]
    )
