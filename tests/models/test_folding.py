"""Batch norms in the weights of the layers before them: the same function."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import cast

import pytest
import torch
from normed import Parts, chain, drawn, folded, norms
from small_files import digest_of, export, tiny_net
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.models import NetworkSpec, ResNet18, ResNet50, SmallCNN, load_model, save_model
from deformrs.models.folding import fold_batch_norm


@pytest.mark.parametrize("kind", [SmallCNN, functools.partial(ResNet18, width=8)])
def test_networks_of_this_package(kind: type[SmallCNN]) -> None:
    network = kind(channels=3, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, _BatchNorm):
                cast("Tensor", part.running_mean).uniform_(-0.5, 0.5, generator=generator)
                cast("Tensor", part.running_var).uniform_(0.5, 2, generator=generator)
                part.weight.uniform_(0.5, 1.5, generator=generator)
    assert folded(network) == ("folded", 0)


def test_guarantee_the_network_stays_as_it_is() -> None:
    """That of `fold_batch_norm`: weights, mode, precision and layers."""
    network = drawn(ResNet50(num_classes=5, width=4)).bfloat16().train()
    before, layers = digest_of(network), [*network.named_modules()]
    spec, word = fold_batch_norm(NetworkSpec(network))
    assert word == "folded"
    assert digest_of(network) == before
    assert [*network.named_modules()] == layers
    assert all(part.training for part in network.modules())
    own = {value.data_ptr() for value in network.state_dict().values()}
    assert own.isdisjoint(value.data_ptr() for value in spec.module.state_dict().values())


def test_a_network_without_any() -> None:
    assert folded(drawn(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))) == (None, 0)


@pytest.mark.parametrize(
    "network",
    [
        chain(nn.Conv2d(3, 6, 3, groups=3, bias=False), nn.BatchNorm2d(6, affine=False)),
        chain(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4, eps=0.1)),
        chain(nn.Sequential(nn.Flatten(), nn.Linear(768, 9)), nn.BatchNorm1d(9)),
    ],
    ids=["groups without scales", "padded by reflection", "linear"],
)
def test_layers_of_all_kinds(network: nn.Module) -> None:
    assert folded(network) == ("folded", 0)


def test_some_may_be_folded_and_others_kept() -> None:
    inner = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    inner = nn.Sequential(nn.BatchNorm2d(3), *inner.children())
    assert folded(drawn(inner)) == ("partly folded", 1)


def test_a_layer_that_has_two_names() -> None:
    class Named(Parts):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(self.conv, self.norm, self.end)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.layers(x)
            return scores

    assert folded(drawn(Named())) == ("folded", 0)


def test_weights_that_two_convolutions_share() -> None:
    tied = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3), nn.Flatten())
    tied[2].weight = tied[0].weight
    assert folded(drawn(tied)) == ("folded", 0)


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet"])
def test_networks_of_timm(name: str) -> None:
    """Some have the activation inside their batch norms."""
    torchvision_ops.declare()
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = timm.create_model(name, pretrained=False, num_classes=5).eval()
    assert norms(network) > 2
    assert folded(network, side=64) == ("folded", 0)


def test_a_loaded_model_says_what_became_of_them(tmp_path: Path) -> None:
    network = SmallCNN(width=4, seed=1)
    save_model(tmp_path / "net", network, Preparation(channels=1))
    loaded = load_model(str(tmp_path / "net"))
    assert loaded.about["batch_norm"] == "folded"
    assert norms(loaded.module) == 0
    assert loaded.about["state_sha256"] == digest_of(network)  # the weights that are stored
    (tmp_path / "own.py").write_text("from normed import Untraceable as build")
    kept = load_model(f"{tmp_path / 'own.py'}:build")
    assert kept.about["batch_norm"] == "kept"
    assert norms(kept.module) == 1
    program = load_model(str(export(tmp_path / "net.pt2", tiny_net())), trust_code=True)
    assert "batch_norm" not in program.about
