"""Coordinates and the warp."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
import torch

from deformrs import Rotation
from deformrs.errors import InputError
from deformrs.geometry import pixel_grid, read, warp

CPU = torch.device("cpu")


def test_a_square_image_spans_minus_one_to_one_from_edge_to_edge() -> None:
    grid = pixel_grid((4, 4), CPU, torch.float64)
    assert grid[0, :, 0].tolist() == [-0.75, -0.25, 0.25, 0.75]
    assert grid[:, 0, 1].tolist() == [-0.75, -0.25, 0.25, 0.75]


def test_the_unit_is_half_the_shorter_side_both_ways() -> None:
    grid = pixel_grid((4, 6), CPU, torch.float64)
    assert grid[0, :, 0].tolist() == [-1.25, -0.75, -0.25, 0.25, 0.75, 1.25]
    assert grid[:, 0, 1].tolist() == [-0.75, -0.25, 0.25, 0.75]


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (224, 224), (300, 200)])
def test_guarantee_zero_field_gives_the_image_back(size: tuple[int, int]) -> None:
    image = torch.rand(3, *size, generator=torch.Generator())
    back = warp(image, torch.zeros(2, *size, 2))
    assert (back - image).abs().max() <= 1e-4 * max(size) / 224


def test_rotation_is_rigid_on_any_shape() -> None:
    """Distances between points do not change, on a wide image too."""
    size = (20, 50)
    moved = pixel_grid(size, CPU, torch.float64) + Rotation().field(
        torch.tensor([[0.6]], dtype=torch.float64), size
    )
    steps = (moved[0, :, 1:] - moved[0, :, :-1]).norm(dim=-1)
    torch.testing.assert_close(steps, torch.full_like(steps, 1 / 10))


def test_a_turn_there_and_back_returns_the_middle_of_a_smooth_image() -> None:
    x, y = pixel_grid((64, 64), CPU, torch.float32).unbind(-1)
    image = torch.exp(-((x - 0.2) ** 2 + y**2) / 0.1)[None]
    there = Rotation().apply(image, torch.tensor([[0.5]]))[0]
    back = Rotation().apply(there, torch.tensor([[-0.5]]))[0]
    assert (back - image).abs().max() < 0.02
    assert (there - image).abs().max() > 0.2


def test_padding() -> None:
    image = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    two_pixels_left = torch.zeros(1, 2, 2, 2)
    two_pixels_left[..., 0] = -2.0
    assert warp(image, two_pixels_left, "zeros").flatten().tolist() == [0, 0, 0, 0]
    assert warp(image, two_pixels_left, "border").flatten().tolist() == [1, 1, 3, 3]
    assert warp(image, two_pixels_left, "reflection").flatten().tolist() == [2, 1, 4, 3]
    with pytest.raises(InputError, match="'wrap'.*zeros, border, reflection"):
        warp(image, two_pixels_left, "wrap")  # type: ignore[arg-type]


def test_low_precision_images_are_read_at_full_precision_coordinates() -> None:
    """In bfloat16 coordinates a 200-pixel ramp would come back in steps of about a pixel."""
    ramp = torch.linspace(0, 1, 200).expand(1, 8, 200)
    shift = torch.zeros(1, 8, 200, 2)
    shift[..., 0] = 0.25 / 4  # a quarter of a pixel, four to a unit
    exact = warp(ramp, shift)
    low = warp(ramp.bfloat16(), shift)
    assert low.dtype == torch.bfloat16
    assert (low.float() - exact)[..., :-1].abs().max() <= 2**-8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_agrees_with_cpu() -> None:
    image = torch.rand(3, 24, 40, generator=torch.Generator())
    params = torch.tensor([[0.3], [math.pi]])
    on_gpu = Rotation().apply(image.cuda(), params.cuda()).cpu()
    torch.testing.assert_close(on_gpu, Rotation().apply(image, params), atol=1e-4, rtol=0)


def test_one_function_calls_grid_sample(root: Path) -> None:
    calls = [
        (path.name, node.lineno)
        for path in (root / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "grid_sample"
    ]
    assert len(calls) == 1, calls
    assert calls[0][0] == "geometry.py"


def test_what_a_compiler_keeps_whole_is_described_truly() -> None:
    """Shape, strides and schema of the operator, which it plans with without running it."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(4, 3, 20, 30, generator=generator)
    points = 2 * torch.rand(4, 7, 9, 2, generator=generator) - 1
    whole = torch.ops.deformrs.interpolated.default
    for given in (images, images.to(memory_format=torch.channels_last)):
        torch.library.opcheck(whole, (given, points, "zeros"))
    square = images[..., :20]
    assert torch.equal(whole(square, points, "border"), read(square, points, "border"))
