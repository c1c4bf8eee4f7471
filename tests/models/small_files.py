"""Small images, networks and files for the tests of model sources."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from deformrs.models import LoadedModel
from deformrs.models.weights import state_digest

CLASSES = 5

FACTORIES = """
from torch import nn
from small_files import TinyNet
from deformrs.models import NetworkSpec
from deformrs.data.preparation import Preparation

def build():
    return TinyNet()

def described():
    preparation = Preparation(20, (16, 16), channels=3)
    return NetworkSpec(TinyNet().double(), preparation, (0.5,), (0.25,), tuple("abcde"))

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5))

def tied():
    net = nn.Sequential(nn.Flatten(), nn.Linear(3, 3), nn.Linear(3, 3))
    net[2].weight = net[1].weight
    return net

def needs(size):
    return TinyNet(size)

def wrong():
    return 3

def fails():
    raise KeyError("of the user")

def leaves():
    raise SystemExit(3)

number = 3
"""
"""A Python file of the user's own, with functions that build networks."""


def some_images(number: int = 4, channels: int = 3, side: int = 16) -> Tensor:
    return torch.rand(number, channels, side, side, generator=torch.Generator().manual_seed(7))


class TinyNet(nn.Module):
    """For colour images of any size, with layers that behave differently in training."""

    def __init__(self, classes: int = CLASSES, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.norm(self.conv(images)).relu().mean((2, 3))
        scores: Tensor = self.head(self.dropout(features))
        return scores


def tiny_net(seed: int = 0, classes: int = CLASSES, dropout: float = 0.0) -> TinyNet:
    net = TinyNet(classes, dropout)
    draw(net, seed)
    return net.eval()


def draw(net: nn.Module, seed: int = 0) -> None:
    """Draw weights from the seed alone, and statistics that are not the default 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in net.state_dict().values():
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=generator) * 0.4 + 0.05)


@torch.inference_mode()
def scores(model: nn.Module, images: Tensor) -> Tensor:
    answer: Tensor = model(images)
    return answer


def same(loaded: LoadedModel, original: nn.Module, images: Tensor, normalised: Tensor) -> None:
    """Check that the loaded model returns the logits of the original on normalised images."""
    got, want = scores(loaded.module, images), scores(original, normalised)
    assert got.dtype == torch.float32
    assert not loaded.module.training
    assert want.std() > 0
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def digest_of(net: nn.Module) -> str:
    return state_digest(net.state_dict())


class Payload:
    """Unpickled, it creates a folder: what a hostile checkpoint could do, and worse."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (self.target,)


def is_harmful(content: bytes, target: Path) -> bool:
    """Return whether an ordinary unpickler runs the payload, so that the test tests something."""
    pickle.loads(content)
    ran = target.exists()
    target.rmdir()
    return ran


def export(path: Path, net: nn.Module, batch: int | None = None, side: int = 16) -> Path:
    """Export a network to a file; without a batch size it takes any."""
    shapes = None if batch else ({0: torch.export.Dim("batch")},)
    example = some_images(batch or 4, side=side)
    torch.export.save(torch.export.export(net, (example,), dynamic_shapes=shapes), path)
    return path


def photo(width: int = 211, height: int = 163) -> Image.Image:
    """A smooth image, on which good methods of resizing differ little."""
    y, x = np.mgrid[:height, :width] / 40
    layers = np.stack([np.sin(x + y), np.cos(2 * x), np.sin(3 * y - x)], axis=-1)
    return Image.fromarray(((layers + 1) * 127).astype(np.uint8))


def normalised(loaded: LoadedModel, images: Tensor) -> Tensor:
    mean, std = (torch.tensor(loaded.about[key])[:, None, None] for key in ("mean", "std"))
    return (images - mean) / std


def cache_on_hub(cache: Path, repository: str, net: nn.Module) -> None:
    """Put weights where huggingface_hub looks for those it has downloaded."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    save_file(net.state_dict(), snapshot / "model.safetensors")
