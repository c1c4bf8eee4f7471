"""check_fixed refuses models that are not a fixed function of one image, and accepts the others."""

from __future__ import annotations

import pytest
import torch
from small_files import digest_of, some_images, tiny_net
from torch import Tensor, nn

from deformrs.errors import InputError, ModelError
from deformrs.models import NetworkSpec, SmallCNN, check_fixed, check_num_classes, initial_network
from deformrs.models.types import Classifier


class Function(nn.Module):
    """The logits are a function of the channels' means."""

    def __init__(self, weight: Tensor, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.offset = offset

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) @ self.weight + self.offset


@pytest.mark.parametrize("number", [2, 3, 8])
def test_fixed_models_pass(number: int) -> None:
    check_fixed(tiny_net(number, dropout=0.5), some_images(number))
    check_fixed(SmallCNN(channels=3, seed=number).eval(), some_images(number))


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_low_precision_passes(precision: torch.dtype) -> None:
    net = SmallCNN(channels=3).eval().to(precision)
    check_fixed(Classifier(NetworkSpec(net), precision), some_images(8))


@pytest.mark.parametrize("weight", [torch.zeros(3, 4), torch.ones(3, 4)], ids=["zero", "equal"])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_constant_and_equal_logits_pass(weight: Tensor, offset: float) -> None:
    check_fixed(Function(weight, offset), some_images())


@pytest.mark.parametrize("number", [2, 8])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_batch_statistics_are_refused(number: int, precision: torch.dtype) -> None:
    net = SmallCNN(channels=3).train().to(precision)
    with pytest.raises(ModelError, match="one by one.*model.eval()"):
        check_fixed(Classifier(NetworkSpec(net), precision), some_images(number))


def test_batch_statistics_are_refused_where_all_images_are_alike() -> None:
    net = tiny_net().train()
    net.norm.momentum = 0.0
    with pytest.raises(ModelError, match="one by one"):
        check_fixed(net, some_images(1).expand(4, -1, -1, -1))


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_dropout_is_refused(share: float, precision: torch.dtype) -> None:
    """Each of 8 x 8 features is dropped with probability `share` or more: a miss needs all kept
    in two calls, 0.95 ** 128 = 0.0014, and the generator is seeded."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(share)
    )
    net.append(nn.Linear(8, 5)).to(precision)
    net[4].train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with pytest.raises(ModelError, match="on a repeated call"):
            check_fixed(Classifier(NetworkSpec(net), precision), some_images(8))


def test_the_offset_of_logits_does_not_hide_dropout() -> None:
    net = nn.Sequential(Function(torch.rand(3, 50), offset=1.0), nn.Dropout(0.1).train())
    with pytest.raises(ModelError, match="on a repeated call"):
        check_fixed(net, some_images())


def test_a_model_that_remembers_is_refused() -> None:
    calls: list[int] = []

    def counting(images: Tensor) -> Tensor:
        calls.append(1)
        return images.mean((2, 3)) + len(calls)

    with pytest.raises(ModelError, match="on a repeated call"):
        check_fixed(counting, some_images())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ModelError, match="NaN or infinite"):
        check_fixed(lambda images: images.mean((2, 3)) * value, some_images())


def test_errors_of_the_model_are_one_line() -> None:
    with pytest.raises(ModelError, match=r"the model's output is an error \(.*\); it must be") as e:
        check_fixed(tiny_net(), some_images(channels=1))
    assert "\n" not in str(e.value)
    with pytest.raises(ModelError, match=r"of shape \(16, 3, 16, 16\); it must be N x K"):
        check_fixed(lambda images: images, some_images())
    with pytest.raises(ModelError, match=r"logits of shape \(16, number of classes\)"):
        check_fixed(lambda images: images[:1, :, 0, 0], some_images())


@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (3, 8, 8), (0, 3, 8, 8)])
def test_two_images_are_needed(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="with n >= 2"):
        check_fixed(tiny_net(), torch.zeros(shape))


def brightness(images: Tensor) -> Tensor:
    """Three logits from the means of the channels."""
    return 3 * images.mean((2, 3)) - 1


def test_a_little_noise_inside_a_model_is_refused() -> None:
    generator = torch.Generator().manual_seed(0)

    def noisy(images: Tensor) -> Tensor:
        return brightness(images + 0.01 * torch.randn(images.shape, generator=generator))

    with pytest.raises(ModelError, match="on a repeated call"):
        check_fixed(noisy, some_images(2))


def test_scaling_by_the_brightest_of_a_batch_is_refused() -> None:
    with pytest.raises(ModelError, match="one by one"):
        check_fixed(lambda images: brightness(images / images.amax()), some_images(2))


def test_behaviour_of_full_batches_alone_is_refused() -> None:
    def moody(images: Tensor) -> Tensor:
        scores = brightness(images)
        return scores - scores.mean(0) if len(images) > 40 else scores

    check_fixed(moody, some_images(2))
    check_fixed(brightness, some_images(2), batch_size=64)
    with pytest.raises(ModelError, match="full batch"):
        check_fixed(moody, some_images(2), batch_size=64)


def test_dependence_on_the_place_in_the_batch_is_refused() -> None:
    def ranked(images: Tensor) -> Tensor:
        place = torch.arange(len(images), dtype=images.dtype)[:, None]
        return brightness(images) + torch.where(place > 3, 0.5, 0.0)

    with pytest.raises(ModelError, match="must not exceed rounding"):
        check_fixed(ranked, some_images(2))


def test_the_number_of_classes_is_checked_without_changing_the_network() -> None:
    start = initial_network("resnet18:width=8", 4, 3)
    start.spec.module.train()
    digest = digest_of(start.spec.module)
    check_num_classes(start.spec, 4, some_images())
    with pytest.raises(InputError, match="logits of the network is 4; it must be 5"):
        check_num_classes(start.spec, 5, some_images())
    with pytest.raises(RuntimeError, match="must be logits for .* images of shape"):
        check_num_classes(start.spec, 4, some_images(channels=1))
    assert all(part.training for part in start.spec.module.modules())
    assert digest_of(start.spec.module) == digest
