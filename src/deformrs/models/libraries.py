"""Networks of other libraries as they are named in a run: `timm:NAME`, `torchvision:NAME`."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from deformrs.config import Config
from deformrs.models.extras import import_extra
from deformrs.models.parts import BuiltModel
from deformrs.models.timm_models import describe_timm, new_timm, published_timm
from deformrs.models.torchvision_models import (
    describe_torchvision,
    new_torchvision,
    read_torchvision,
)
from deformrs.models.weights import State, read_state

LIBRARIES = ("timm", "torchvision")


def of_library(source: object) -> bool:
    """Does this name a network of another library?

    >>> of_library("timm:resnet18"), of_library("resnet18")
    (True, False)
    """
    return isinstance(source, str) and source.partition(":")[0] in LIBRARIES and ":" in source


def library_version(source: str) -> Config:
    """The library and its version; an error unless it is installed."""
    library = source.partition(":")[0]
    return {library: str(import_extra(library, library).__version__)}


def new_library_network(source: str, num_classes: int, channels: int, seed: int) -> nn.Module:
    """The network without anyone's weights: they depend on these arguments alone."""
    library, _, name = source.partition(":")
    new = new_timm if library == "timm" else new_torchvision
    return new(name, num_classes, channels, seed)


def read_library_weights(source: str, weights: Path | None) -> tuple[State, str]:
    """Weights for the network, and where they come from; None stands for published ones."""
    library, _, name = source.partition(":")
    if library == "torchvision":
        return read_torchvision(name, weights)
    if weights is None:
        return published_timm(name), source
    return read_state(weights), str(weights)


def describe_library_network(source: str, network: nn.Module, weights: Path | None) -> BuiltModel:
    """The network with what the library says of it and of these weights."""
    library, _, name = source.partition(":")
    if library == "timm":
        return describe_timm(name, network)
    return describe_torchvision(name, network, weights)
