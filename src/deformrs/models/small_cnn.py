"""A network for small pictures that trains on two CPU cores in under a minute."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deformrs.checks import check_seed, check_whole
from deformrs.config import Config


class SmallCNN(nn.Module):
    """Three convolutions and a linear layer: [n, channels, h, w] in [0, 1] -> [n, num_classes].

    The weights are drawn from `seed` alone, so equal arguments give equal networks. `arguments`
    are those it was made with.
    """

    def __init__(
        self, num_classes: int = 10, channels: int = 1, width: int = 24, seed: int = 0
    ) -> None:
        super().__init__()
        self.arguments = check_arguments(num_classes, channels, width, seed)
        with torch.device("meta"):  # PyTorch's constructors would draw from global random state
            self.features = nn.Sequential(
                _layer(channels, width, stride=2),
                _layer(width, 2 * width, stride=2),
                _layer(2 * width, 4 * width, stride=2),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
            )
            self.head = nn.Linear(16 * width, num_classes)
        self.to_empty(device="cpu")
        _draw_weights(self, torch.Generator().manual_seed(seed))

    def forward(self, pictures: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features((pictures - 0.5) / 0.5))
        return scores


def check_arguments(num_classes: int, channels: int, width: int, seed: int) -> Config:
    """What a network of this package was made with, as plain values."""
    for name, value in (("num_classes", num_classes), ("channels", channels), ("width", width)):
        check_whole(name, value, least=1)
    check_seed("seed", seed)
    return {
        "num_classes": int(num_classes),
        "channels": int(channels),
        "width": int(width),
        "seed": int(seed),
    }


def _layer(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _draw_weights(model: nn.Module, generator: torch.Generator) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
