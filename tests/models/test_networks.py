"""The residual networks of this package: names, weights, and how they may be executed."""

from __future__ import annotations

import re

import pytest
import torch
from small_files import digest_of, scores, some_images
from torch import nn

import torchvision_ops
from deformrs.errors import InputError
from deformrs.models import ResNet18, ResNet50, check_fixed
from deformrs.models.weights import fit_state

torchvision_ops.declare()


def enliven(net: nn.Module) -> None:
    """Statistics and scales as after training, so that every block counts; signals stay finite."""
    generator = torch.Generator().manual_seed(1)
    for name, value in net.state_dict().items():
        if name.endswith("running_mean"):
            value.uniform_(-0.1, 0.1, generator=generator)
        elif name.endswith("running_var") or (name.endswith("weight") and value.dim() == 1):
            value.uniform_(0.5, 1.5, generator=generator)


KINDS: list[type[ResNet18] | type[ResNet50]] = [ResNet18, ResNet50]


def test_published_weights_of_resnet50_give_the_same_logits() -> None:
    timm, torchvision = pytest.importorskip("timm"), pytest.importorskip("torchvision")
    ours = ResNet50(num_classes=7).eval()
    images = some_images(2, side=32)
    for make in (timm.create_model, torchvision.models.get_model):
        with torch.device("meta"):
            theirs = make("resnet50", num_classes=7)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict(), assign=True)
        enliven(theirs)
        fit_state(ours, theirs.state_dict(), "w.safetensors")
        want = scores(theirs.eval(), images)
        assert 0 < want.std() < torch.inf
        torch.testing.assert_close(scores(ours, images), want, rtol=1e-4, atol=1e-5)


def test_resnet18_is_that_of_torchvision_but_for_its_stem() -> None:
    models = pytest.importorskip("torchvision").models
    theirs = models.resnet18(num_classes=10)
    theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    theirs.maxpool = nn.Identity()
    enliven(theirs)
    ours = ResNet18()
    fit_state(ours, theirs.state_dict(), "w.pth")
    images = some_images(2, side=32)
    want = scores(theirs.eval(), images)
    assert 0 < want.std() < torch.inf
    torch.testing.assert_close(scores(ours.eval(), images), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_depend_on_the_arguments_alone(kind: type[ResNet18] | type[ResNet50]) -> None:
    before = torch.get_rng_state()
    net = kind(num_classes=4, channels=1, width=8, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    again = kind(**net.arguments)  # type: ignore[arg-type]
    assert net.arguments == {"num_classes": 4, "channels": 1, "width": 8, "seed": 3}
    assert digest_of(again) == digest_of(net)
    assert digest_of(kind(4, 1, 8, seed=4)) != digest_of(net)
    for part in net.state_dict().values():
        assert part.device.type == "cpu"
        assert part.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_start_as_their_shortcuts(kind: type[ResNet18] | type[ResNet50]) -> None:
    net = kind(width=8)
    last = re.compile(r"layer\d\.\d\.bn2" if kind is ResNet18 else r"layer\d\.\d\.bn3")
    norms = {n: m for n, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)}
    zero = {name for name, norm in norms.items() if not norm.weight.any()}
    assert zero == {name for name in norms if last.fullmatch(name)}
    assert len(zero) == (8 if kind is ResNet18 else 16)
    features = torch.rand(2, 8 * (1 if kind is ResNet18 else 4), 6, 6)
    block = net.layer1[1]
    assert torch.equal(block(features), features)


def test_weights_have_the_spread_that_keeps_signals_alive() -> None:
    """He et al. 2015: variance 2 / (outputs x kernel). 36,864 draws: 5 % is over 10 sigma."""
    weight = ResNet18(width=64).state_dict()["layer1.0.conv1.weight"]
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)
    assert abs(weight.mean().item()) < 0.002


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3), (64, 4)])
def test_small_images_of_any_kind(side: int, channels: int) -> None:
    net = ResNet18(num_classes=5, channels=channels, width=8).eval()
    images = some_images(2, channels, side)
    assert scores(net, images).shape == (2, 5)
    assert net.layer1(net.conv1(images)).shape == (2, 8, side, side)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step_reaches_every_weight(kind: type[ResNet18] | type[ResNet50]) -> None:
    net = kind(num_classes=4, width=8)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = some_images(4, side=64).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = net(images)
        loss = nn.functional.cross_entropy(answer.float(), torch.tensor([0, 1, 2, 3]))
    torch.autograd.backward(loss)
    assert answer.dtype == torch.bfloat16
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert net.conv1.weight.grad is not None
    assert net.conv1.weight.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_fixed_function(kind: type[ResNet18] | type[ResNet50]) -> None:
    net = kind(num_classes=4, width=8)
    enliven(net)
    check_fixed(net.eval(), some_images(2, side=32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width is 0; it must be an integer of at least 1"),
        ({"width": 2.5}, "width is 2.5"),
        ({"num_classes": True}, "num_classes is True"),
        ({"channels": -1}, "channels is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ResNet18(**arguments)
