"""Checks that run over every registered family: a new one is tested by existing."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

import deformrs
from deformrs import Deformation, Gaussian, SmoothedClassifier
from deformrs.errors import InputError
from deformrs.testing import check_deformation
from deformrs.units import Size
from examples import DEFORMATIONS


@pytest.mark.parametrize("family", sorted(Deformation.registry))
def test_family_has_examples(family: str) -> None:
    assert Deformation.registry[family].examples()  # type: ignore[attr-defined]


def test_the_tutorials_family_is_among_them() -> None:
    assert "lens" in Deformation.registry


@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_keeps_every_promise(deformation: Deformation) -> None:
    check_deformation(deformation)


@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_prints_as_written_and_is_immutable(deformation: Deformation) -> None:
    names = {name: getattr(deformrs, name) for name in deformrs.__all__}
    names |= {family.__name__: family for family in Deformation.registry.values()}
    assert eval(repr(deformation), names) == deformation
    for field in dataclasses.fields(deformation):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(deformation, field.name, 3)


@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_can_be_certified(deformation: Deformation) -> None:
    def always_one(images: Tensor) -> Tensor:
        return torch.eye(2)[1].expand(len(images), 2)

    g = SmoothedClassifier(always_one, deformation, Gaussian(0.1), num_classes=2)
    certificate = g.certify(torch.rand(1, 6, 8, generator=torch.Generator()), n=200)
    assert certificate.prediction == 1
    # All of 200 samples agree, so p_A >= 0.001^(1/200) and the margin is its normal quantile.
    margin = torch.special.ndtri(torch.tensor(0.001 ** (1 / 200), dtype=torch.float64)).item()
    assert certificate.radii == pytest.approx([0.1 * margin] * len(certificate.radii), rel=1e-6)
    assert "class 1 for any" in certificate.summary()


@pytest.mark.parametrize("deformation", DEFORMATIONS)
@pytest.mark.parametrize("channels", [1, 3, 7])
def test_any_number_of_channels(deformation: Deformation, channels: int) -> None:
    image = torch.rand(channels, 9, 12, generator=torch.Generator())
    params = torch.full((4, deformation.dim((9, 12))), 0.05)
    together = deformation.apply(image, params)
    assert together.shape == (4, channels, 9, 12)
    for channel in range(channels):
        alone = deformation.apply(image[channel : channel + 1], params)
        torch.testing.assert_close(together[:, channel : channel + 1], alone)


@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_a_batch_of_images_takes_a_row_of_parameters_each(deformation: Deformation) -> None:
    images = torch.rand(3, 1, 9, 12, generator=torch.Generator())
    params = 0.1 * torch.randn(3, deformation.dim((9, 12)), generator=torch.Generator())
    together = deformation.apply(images, params)
    for image, row, warped in zip(images, params, together, strict=True):
        torch.testing.assert_close(deformation.apply(image, row[None])[0], warped)


@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_wrong_parameters_are_named(deformation: Deformation) -> None:
    image = torch.rand(1, 9, 12, generator=torch.Generator())
    wanted = deformation.dim((9, 12))
    with pytest.raises(InputError, match=rf"\(2, {wanted + 1}\).*\(n, {wanted}\)"):
        deformation.apply(image, torch.zeros(2, wanted + 1))
    with pytest.raises(InputError, match="finite"):
        deformation.apply(image, torch.full((1, wanted), math.nan))
    with pytest.raises(InputError, match="2 rows; it must be 3, one per image"):
        deformation.apply(image.expand(3, 1, 9, 12), torch.zeros(2, wanted))
    with pytest.raises(InputError, match="floating point"):
        deformation.apply((255 * image).to(torch.uint8), torch.zeros(1, wanted))


def test_check_finds_a_family_whose_zero_moves_the_image() -> None:
    @dataclasses.dataclass(frozen=True)
    class Crooked(Deformation):
        def dim(self, size: Size) -> int:
            return 1

        def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
            return (params[:, :, None, None] + 0.01) * points

    Crooked.name = "crooked"
    Deformation.registry["crooked"] = Crooked
    try:
        with pytest.raises(AssertionError, match="zero parameters give the image back"):
            check_deformation(Crooked())
    finally:
        del Deformation.registry["crooked"]


def test_a_displacement_of_the_wrong_shape_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Flat(Deformation):
        def dim(self, size: Size) -> int:
            return 1

        def displacement(self, params: Tensor, points: Tensor, size: Size) -> Tensor:
            return points[..., 0]

    with pytest.raises(InputError, match="stack"):
        Flat().field(torch.zeros(1, 1), (4, 4))


def test_a_name_cannot_be_taken_twice() -> None:
    with pytest.raises(
        InputError, match="belongs to deformrs.deformations.rotation.Rotation already"
    ):

        class Other(Deformation):
            name = "rotation"


def test_unknown_names_and_fields_are_explained() -> None:
    with pytest.raises(InputError, match="did you mean 'rotation'"):
        Deformation.from_config({"name": "rotatoin"})
    with pytest.raises(InputError, match="'degree'"):
        Deformation.from_config({"name": "dct", "degree": 3})


@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_a_field_does_not_depend_on_the_others_in_its_batch(deformation: Deformation) -> None:
    """To the last bit: or counts would depend on the batch size."""
    size = (13, 16)
    params = 0.3 * torch.randn(37, deformation.dim(size), generator=torch.Generator())
    whole = deformation.field(params, size)
    for step in (1, 7, 16):
        parts = [deformation.field(params[k : k + step], size) for k in range(0, 37, step)]
        assert torch.equal(torch.cat(parts), whole)
