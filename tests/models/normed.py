"""Networks with batch norms of unusual statistics, and what folding makes of them."""

from __future__ import annotations

import torch
from small_files import draw, scores, some_images
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deformrs.data.preparation import Preparation
from deformrs.models import NetworkSpec
from deformrs.models.folding import fold_batch_norm

COLOUR = Preparation(channels=3)


def norms(network: nn.Module) -> int:
    return sum(isinstance(part, _BatchNorm) for part in network.modules())


def drawn(network: nn.Module) -> nn.Module:
    """Statistics that are not the usual 0 and 1, and differ from channel to channel."""
    draw(network)
    return network.eval()


def folded(network: nn.Module, side: int = 16) -> tuple[str | None, int]:
    """What became of its batch norms, and how many are left; its scores are seen to be the same."""
    spec, word = fold_batch_norm(NetworkSpec(network, COLOUR))
    images = some_images(side=side)
    want = scores(network, images)
    assert want.std() > 0
    torch.testing.assert_close(scores(spec.module, images), want, rtol=1e-4, atol=1e-5)
    assert (spec.module is network) == (word in (None, "kept"))
    return word, norms(spec.module)


class Parts(nn.Module):
    """Layers for the networks below, which call them otherwise than one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.end = nn.Flatten()


class Untraceable(Parts):
    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.conv(x))
        scores: Tensor = self.end(inner if x.mean() > 0 else -inner)
        return scores


def chain(first: nn.Module, second: nn.Module) -> nn.Module:
    return drawn(nn.Sequential(first, second, nn.Flatten()))
