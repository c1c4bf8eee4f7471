"""Batch norms that must not be folded: the network stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch
from normed import COLOUR, Parts, Untraceable, chain, drawn, folded
from small_files import tiny_net
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from deformrs.models import NetworkSpec
from deformrs.models.folding import fold_batch_norm, fold_known


class ConvolvedTwice(Parts):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.end(self.conv(self.norm(self.conv(x))))
        return scores


class NormedTwice(Parts):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.end(self.norm(self.norm(self.conv(x))))
        return scores


class ReadElsewhere(Parts):
    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv(x)
        scores: Tensor = self.end(self.norm(inner) + inner)
        return scores


class WeightsRead(Parts):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.end(self.norm(self.conv(x)) * self.norm.weight.sum())
        return scores


class OtherwiseForSymbols(Parts):
    """Takes another way where the image is a symbol: only trying it shows."""

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv(x)
        if isinstance(x, Tensor):
            inner = inner + 1
        scores: Tensor = self.end(self.norm(inner))
        return scores


class Doubled(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) ** 2


def hooked(place: int) -> nn.Module:
    network = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    cast("nn.Sequential", network)[place].register_forward_hook(lambda _, __, output: output**2)
    return network


def patched() -> nn.Module:
    network = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    layer = cast("nn.Conv2d", cast("nn.Sequential", network)[0])
    layer.forward = lambda x: nn.Conv2d.forward(layer, x) ** 2  # type: ignore[method-assign,assignment]
    return network


def normed_weights() -> nn.Module:
    return chain(parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4))


def batch_statistics() -> nn.Module:
    return chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))


def rows_of_pixels() -> nn.Module:
    """BatchNorm1d is then over rows, though there are as many columns."""
    return drawn(
        nn.Sequential(nn.Flatten(1, 2), nn.Linear(16, 48), nn.BatchNorm1d(48), nn.Flatten())
    )


KEPT: dict[str, Callable[[], nn.Module]] = {
    "a convolution called twice": lambda: drawn(ConvolvedTwice()),
    "a norm called twice": lambda: drawn(NormedTwice()),
    "features read elsewhere": lambda: drawn(ReadElsewhere()),
    "weights read elsewhere": lambda: drawn(WeightsRead()),
    "not traceable": lambda: drawn(Untraceable()),
    "otherwise for symbols": lambda: drawn(OtherwiseForSymbols()),
    "a subclass": lambda: chain(Doubled(3, 4, 3), nn.BatchNorm2d(4)),
    "a hook on the convolution": lambda: hooked(0),
    "a hook on the norm": lambda: hooked(1),
    "a patched convolution": patched,
    "parametrized": normed_weights,
    "statistics of the batch": batch_statistics,
    "the norm of another axis": rows_of_pixels,
    "the norm before": lambda: chain(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)),
    "a transposed convolution": lambda: chain(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)),
}


@pytest.mark.parametrize("build", KEPT.values(), ids=KEPT.keys())
def test_what_cannot_be_folded_is_kept(build: Callable[[], nn.Module]) -> None:
    assert folded(build()) == ("kept", 1)


class Hidden(nn.Module):
    """Another way through it for bright images, which torch.fx does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(images)
        scores: Tensor = self.norm(features)
        if isinstance(images, Tensor):
            scores = torch.where(images.mean() > 0.7, features, scores)
        return scores.mean((2, 3))


def test_code_of_ones_own_is_kept() -> None:
    spec = NetworkSpec(drawn(Hidden()), COLOUR)
    assert fold_known(spec) == (spec, "kept")
    plain = drawn(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))
    assert fold_known(NetworkSpec(plain))[1] is None
    known = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    assert fold_known(NetworkSpec(known, COLOUR))[1] == "folded"


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated")
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_scripted_and_lazy_networks_are_kept() -> None:
    assert fold_batch_norm(NetworkSpec(torch.jit.script(tiny_net()), COLOUR))[1] == "kept"
    lazy = nn.Sequential(nn.LazyConv2d(4, 3), nn.BatchNorm2d(4), nn.Flatten())
    assert fold_batch_norm(NetworkSpec(lazy, COLOUR))[1] == "kept"
    assert isinstance(lazy[0], nn.LazyConv2d)
