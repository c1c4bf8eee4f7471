"""Each family against its formula, written out pixel by pixel in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch

from deformrs import (
    DCT,
    Affine,
    Compose,
    Deformation,
    Rotation,
    Scaling,
    Shear,
    Translation,
    VectorField,
)
from deformrs.errors import InputError

SIZE = 5, 8
UNIT = 2.5
Formula = Callable[[Sequence[float], float, float, int, int], tuple[float, float]]


def dct(wave: Callable[[int, int, int], float], k: int) -> Formula:
    def formula(
        p: Sequence[float], _x: float, _y: float, row: int, column: int
    ) -> tuple[float, float]:
        height, width = SIZE
        terms = [
            (i, j, wave(i, row, height) * wave(j, column, width))
            for i in range(k)
            for j in range(k)
        ]
        return (
            sum(p[k * i + j] * w for i, j, w in terms),
            sum(p[k * k + k * i + j] * w for i, j, w in terms),
        )

    return formula


def dct_wave(order: int, pixel: int, length: int) -> float:
    return math.cos(math.pi * order * (pixel + 0.5) / length)


def cosine_wave(order: int, pixel: int, length: int) -> float:
    """The published code: cos(pi k (t + 0.5/length)) on linspace(-1, 1, length)."""
    t = torch.linspace(-1, 1, length, dtype=torch.float64)[pixel].item()
    return math.cos(math.pi * order * (t + 0.5 / length))


CASES: list[tuple[Deformation, list[float], Formula]] = [
    (Translation(), [0.3, -0.2], lambda p, x, y, i, j: (p[0], p[1])),
    (
        Rotation(),
        [0.7],
        lambda p, x, y, i, j: (
            x * (math.cos(p[0]) - 1) - y * math.sin(p[0]),
            x * math.sin(p[0]) + y * (math.cos(p[0]) - 1),
        ),
    ),
    (Scaling(), [0.25], lambda p, x, y, i, j: (p[0] * x, p[0] * y)),
    (Shear(), [0.4], lambda p, x, y, i, j: (p[0] * y, 0.0)),
    (
        Affine(),
        [0.1, -0.2, 0.3, 0.15, -0.05, 0.2],
        lambda p, x, y, i, j: (p[0] * x + p[1] * y + p[4], p[2] * x + p[3] * y + p[5]),
    ),
    (DCT(3), [0.01 * k for k in range(18)], dct(dct_wave, 3)),
    (DCT(2, basis="cosine"), [0.1, -0.2, 0.3, 0.05, 0.2, 0.1, -0.1, 0.15], dct(cosine_wave, 2)),
    (
        VectorField(),
        [0.01 * k for k in range(80)],
        lambda p, x, y, i, j: (p[16 * i + 2 * j], p[16 * i + 2 * j + 1]),
    ),
    (
        # T = rotation ∘ scaling ∘ translation
        Compose(Rotation(), Scaling(), Translation()),
        [0.5, 0.2, 0.1, -0.3],
        lambda p, x, y, i, j: (
            (1 + p[1]) * (math.cos(p[0]) * (x + p[2]) - math.sin(p[0]) * (y + p[3])) - x,
            (1 + p[1]) * (math.sin(p[0]) * (x + p[2]) + math.cos(p[0]) * (y + p[3])) - y,
        ),
    ),
]


@pytest.mark.parametrize(("family", "params", "formula"), CASES, ids=lambda v: str(v)[:24])
def test_field_follows_the_formula(
    family: Deformation, params: list[float], formula: Formula
) -> None:
    field = family.field(torch.tensor([params], dtype=torch.float64), SIZE)[0]
    for row in range(SIZE[0]):
        for column in range(SIZE[1]):
            x, y = (column + 0.5 - 4) / UNIT, (row + 0.5 - 2.5) / UNIT
            expected = formula(params, x, y, row, column)
            assert field[row, column].tolist() == pytest.approx(expected, abs=1e-12)


def test_translation_by_whole_pixels_is_exact() -> None:
    image = torch.rand(1, 6, 6, generator=torch.Generator())
    right_and_down = torch.tensor([[2 / 3, 1 / 3]])  # two and one pixels of three to a unit
    moved = Translation().apply(image, right_and_down)[0]
    torch.testing.assert_close(moved[:, :5, :4], image[:, 1:, 2:], atol=1e-5, rtol=0)
    assert moved[:, 5:].max() < 1e-5
    assert moved[:, :, 4:].max() < 1e-5


def test_a_quarter_turn_is_exact_on_a_square() -> None:
    image = torch.rand(1, 7, 7, generator=torch.Generator())
    turned = Rotation().apply(image, torch.tensor([[math.pi / 2]]))[0]
    torch.testing.assert_close(turned, image.rot90(1, dims=(1, 2)), atol=1e-5, rtol=0)


def test_scaling_up_shows_the_content_smaller() -> None:
    image = torch.ones(1, 20, 20)
    assert Scaling().apply(image, torch.tensor([[1.0]])).sum() == pytest.approx(100, rel=0.05)


def test_the_image_undergoes_a_composition_from_left_to_right() -> None:
    image = torch.rand(1, 8, 8, generator=torch.Generator())
    quarter, pixel = math.pi / 2, 0.25
    one_by_one = Translation().apply(
        Rotation().apply(image, torch.tensor([[quarter]]))[0], torch.tensor([[pixel, 0.0]])
    )
    at_once = Compose(Rotation(), Translation()).apply(image, torch.tensor([[quarter, pixel, 0.0]]))
    torch.testing.assert_close(at_once[..., :-1], one_by_one[..., :-1], atol=1e-5, rtol=0)
    other_order = Compose(Translation(), Rotation()).apply(
        image, torch.tensor([[pixel, 0.0, quarter]])
    )
    assert (other_order[..., :-1] - one_by_one[..., :-1]).abs().max() > 0.1


def test_a_field_between_pixels_is_interpolated() -> None:
    """A field linear in x is reproduced exactly where a shift by half a pixel reads it."""
    size = (6, 6)
    slope = torch.arange(6, dtype=torch.float64).expand(6, 6) / 30
    psi = torch.stack([slope, torch.zeros_like(slope)], dim=-1).reshape(1, -1)
    half_pixel = torch.tensor([[1 / 6, 0.0]], dtype=torch.float64)
    both = Compose(VectorField(), Translation()).field(torch.cat([psi, half_pixel], dim=1), size)
    expected = 1 / 6 + slope + 1 / 60
    torch.testing.assert_close(both[0, :, :-1, 0], expected[:, :-1])


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_bad_window_of_dct(k: int) -> None:
    with pytest.raises(InputError, match=f"k of DCT is {k}"):
        DCT(k)


def test_bad_basis_of_dct() -> None:
    with pytest.raises(InputError, match="'sine'"):
        DCT(2, basis="sine")  # type: ignore[arg-type]


def test_bad_compositions() -> None:
    with pytest.raises(InputError, match="at least one part"):
        Compose()
    with pytest.raises(InputError, match="'rotation'"):
        Compose("rotation")  # type: ignore[arg-type]
