"""Bad input of the smoothed classifier, and the errors that name it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import deformrs
from deformrs import (
    Affine,
    DeformRSError,
    Rotation,
    SmoothedClassifier,
    Uniform,
)
from deformrs.errors import InputError, ModelError
from deformrs.models import SmallCNN
from examples import IMAGE, Model, smoothed


def nan_model(images: Tensor) -> Tensor:
    return torch.full((len(images), 5), math.nan)


BAD_IMAGES = {
    "below 0": (IMAGE - 1, r"image is in \[-.*must lie in \[0, 1\]: undo its normalisation"),
    "above 1": (IMAGE * 255, r"must lie in \[0, 1\]: divide by 255"),
    "NaN": (torch.where(IMAGE > 0.5, math.nan, IMAGE), "not a number"),
    "infinite": (torch.full((1, 4, 4), math.inf), r"must lie in \[0, 1\]"),
    "rank 4": (IMAGE[None], r"of shape \(1, 1, 12, 12\)"),
    "empty": (torch.zeros(1, 0, 4), "non-empty"),
    "rank 1": (IMAGE[0, 0], r"of shape \(12,\).*C x H x W"),
    "integers": ((IMAGE * 255).int(), "must be floating point"),
    "a list": ([[0.5]], "a list; it must be a torch.Tensor, a NumPy array or a PIL image"),
}
BAD_ARGUMENTS: dict[str, tuple[dict[str, object], str]] = {
    "alpha 0": ({"alpha": 0.0}, r"alpha is 0.0; it must lie in \(0, 1\)"),
    "alpha 1": ({"alpha": 1.0}, "alpha is 1.0"),
    "alpha 1.2": ({"alpha": 1.2}, "alpha is 1.2"),
    "alpha -0.1": ({"alpha": -0.1}, "alpha is -0.1"),
    "alpha NaN": ({"alpha": math.nan}, "alpha is nan"),
    "n 0": ({"n": 0}, "n is 0"),
    "n -5": ({"n": -5}, "n is -5"),
    "n 1.5": ({"n": 1.5}, "n is 1.5"),
    "n0 0": ({"n0": 0}, "n0 is 0"),
    "seed -1": ({"seed": -1}, "seed is -1"),
    "index -1": ({"index": -1}, "index is -1"),
    "method": ({"method": "wald"}, "'wald'.*clopper_pearson"),
}
BAD_MODELS: dict[str, tuple[Model, str]] = {
    "NaN": (nan_model, "NaN.*check the weights"),
    "too few classes": (lambda x: torch.zeros(len(x), 4), r"\(64, 4\).*\(64, 5\).*num_classes"),
    "labels instead of scores": (lambda x: torch.zeros(len(x)), r"of shape \(8,\)"),
    "one score": (lambda x: x.mean((1, 2, 3))[:, None], r"one for each.*cat\(\[-z, z\], 1\)"),
    "integers": (lambda x: torch.zeros(len(x), 5, dtype=torch.long), "int64 of shape"),
    "one row for all": (lambda x: torch.zeros(1, 5), r"of shape \(1, 5\)"),
    "not a tensor": (lambda x: [0.0] * len(x), "a list"),  # type: ignore[dict-item, return-value]
    "infinite": (lambda x: torch.full((len(x), 5), math.inf), "infinite"),
    "no score at all": (lambda x: torch.full((len(x), 5), -math.inf), "infinite"),
    "other channels": (SmallCNN(num_classes=5, channels=3, width=4).eval(), "channels.*8, 1, 12"),
    "other precision": (SmallCNN(num_classes=5, width=4).eval().bfloat16(), "float32 images"),
    "bound method": (SmallCNN(num_classes=5, width=4).forward, "training mode"),
    "training mode": (SmallCNN(num_classes=5, width=4), r"training mode.*model.eval\(\)"),
    "part in training mode": (
        nn.Sequential(nn.Flatten(), nn.Linear(144, 5), nn.Dropout()).eval().append(nn.Dropout()),
        "training mode",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("case", BAD_IMAGES)
    def test_image(self, case: str) -> None:
        image, message = BAD_IMAGES[case]
        with pytest.raises(InputError, match=message):
            smoothed().certify(image, n=100)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=message):
            smoothed().predict(image, n=100)  # type: ignore[arg-type]

    @pytest.mark.parametrize("case", BAD_ARGUMENTS)
    def test_arguments(self, case: str) -> None:
        arguments, message = BAD_ARGUMENTS[case]
        with pytest.raises(InputError, match=message):
            smoothed().certify(IMAGE, **{"n": 100, **arguments})  # type: ignore[arg-type]

    @pytest.mark.parametrize("case", BAD_MODELS)
    def test_model(self, case: str) -> None:
        model, message = BAD_MODELS[case]
        with pytest.raises(ModelError, match=message):
            smoothed(model).certify(IMAGE, n=100)

    def test_angles_beyond_half_a_turn(self) -> None:
        g = SmoothedClassifier(nan_model, Rotation(), Uniform(54.0), 5)
        with pytest.raises(InputError, match=r"is 54 \(3,094°\).*radians.*'54deg'"):
            g.certify(IMAGE, n=100)

    def test_shift_of_the_wrong_dimension(self) -> None:
        certificate = smoothed().certify(IMAGE, n=100)
        for ask in (certificate.covers, lambda s: smoothed().predict(IMAGE, n=10, shift=s)):
            with pytest.raises(InputError, match=r"of shape \(2,\).*1 parameter"):
                ask([0.1, 0.2])
            with pytest.raises(InputError, match="finite"):
                ask([math.nan])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((nan_model, "rotation", Uniform(1), 5), "deformation is rotation"),
            ((nan_model, Rotation(), 0.5, 5), "noise is 0.5"),
            ((nan_model, Rotation(), Uniform(1), 1), "num_classes is 1"),
            ((nan_model, Rotation, Uniform(1), 5), "deformation is"),
            (("resnet", Rotation(), Uniform(1), 5), "model is 'resnet'"),
            ((SmallCNN, Rotation(), Uniform(1), 5), "model is <class"),
        ],
    )
    def test_constructor(self, arguments: tuple[object, ...], message: str) -> None:
        with pytest.raises(InputError, match=message):
            SmoothedClassifier(*arguments)  # type: ignore[arg-type]

    def test_padding_and_device(self) -> None:
        with pytest.raises(InputError, match="padding is 'wrap'"):
            SmoothedClassifier(nan_model, Rotation(), Uniform(1), 5, padding="wrap")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="device is 'gpu'"):
            SmoothedClassifier(nan_model, Rotation(), Uniform(1), 5, device="gpu")

    def test_a_class_that_goes_by_anothers_name(self) -> None:
        with pytest.raises(InputError, match="must be its own"):

            class Weak(Affine):
                pass

        class Nameless(deformrs.Deformation):
            def dim(self, size: tuple[int, int]) -> int:
                return 1

            def displacement(self, params: Tensor, points: Tensor, size: tuple[int, int]) -> Tensor:
                return params[:, :, None, None] * points

        with pytest.raises(InputError, match="set name"):
            SmoothedClassifier(nan_model, Nameless(), Uniform(1), 5)

    def test_numbers_of_numpy_will_do(self) -> None:
        noise = Uniform(np.float32(0.5))  # type: ignore[arg-type]
        g = SmoothedClassifier(SmallCNN(width=4).eval(), Rotation(), noise, 10)
        usual = g.certify(IMAGE, n=100, alpha=0.01, seed=3)
        assert (
            g.certify(IMAGE, n=np.int64(100), alpha=np.float64(0.01), seed=np.int32(3)) == usual  # type: ignore[arg-type]
        )

    def test_batch_size(self) -> None:
        with pytest.raises(InputError, match="batch_size is 0"):
            smoothed(batch_size=0)

    def test_every_error_is_one_of_the_projects(self) -> None:
        with pytest.raises(DeformRSError) as caught:
            smoothed().certify(IMAGE, n=0)
        error = caught.value
        assert (error.name, error.value) == ("n", "0")
        assert str(error) == f"n is 0; it {error.rule}: {error.remedy}"
