"""Networks without anyone's training, made so that they cost what trained ones cost."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import LoadedModel, NetworkSpec, Precision, load_model, save_model
from deformrs.models.registry import build_own, new_library_network, of_library, own_network

CLASSES = 10


@dataclass(frozen=True)
class Network:
    """A network by its name, with the arguments that build it again."""

    module: nn.Module
    described: tuple[str, Config]
    channels: int

    @property
    def built(self) -> NetworkSpec:
        """With the normalisation that any network has."""
        return NetworkSpec(self.module, mean=(0.5,) * self.channels, std=(0.25,) * self.channels)

    def loaded(self, precision: Precision, device: torch.device) -> LoadedModel:
        """The same network as people load one."""
        built = self.built
        with tempfile.TemporaryDirectory() as folder:
            save_model(
                Path(folder),
                self.module,
                Preparation(channels=self.channels),
                mean=built.mean,
                std=built.std,
                described=self.described,
            )
            return load_model(folder, precision=precision, device=device)


def new_network(name: str, channels: int, side: int) -> Network:
    """`small_cnn`, `resnet18:width=16`, `resnet50`, `timm:NAME`; equal names, equal networks."""
    arguments: Config = {"num_classes": CLASSES, "channels": channels}
    own = own_network(name)
    if own is not None:
        described = own[0], own[1] | arguments
        module = build_own(*described)
    elif of_library(name):
        described = name, arguments
        module = new_library_network(name, CLASSES, channels, seed=0)
    else:
        raise InputError(
            "the network", repr(name), "must be one of deformrs or timm:NAME", "e.g. resnet18"
        )
    _settle(module, channels, side)
    return Network(module.eval(), described, channels)


def some_images(count: int, channels: int, side: int, seed: int = 0) -> list[Tensor]:
    """Smooth images [channels, side, side] that are all different."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 8, 8, generator=generator)
    return list(interpolate(coarse, size=(side, side), mode="bilinear").clamp(0, 1))


@torch.no_grad()
def _settle(module: nn.Module, channels: int, side: int) -> None:
    """Give batch norm the statistics of images, and weight to blocks that begin without any.

    A GPU multiplies zeros with less power, and so faster, than what a trained network holds.
    """
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        if not norm.weight.any():
            nn.init.ones_(norm.weight)
        norm.momentum = None  # the plain average
        norm.train()
    images = torch.stack(some_images(4, channels, side, seed=1))
    module((images - 0.5) / 0.25)
