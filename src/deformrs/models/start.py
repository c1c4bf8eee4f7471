"""What training begins with, and the steps that all ways to it share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.libraries import new_library_network, of_library
from deformrs.models.named import build_own
from deformrs.models.parts import BuiltModel
from deformrs.models.sizing import fit_resized
from deformrs.models.weights import State
from deformrs.preparation import Preparation


@dataclass(frozen=True)
class Start:
    """What training begins with.

    built: on the CPU, in float32, with what the source says of preparation, mean, std and classes.
    network, arguments: from which `build_network` makes it again, but for its weights.
    pretrained: the weights come from somewhere; they were not drawn.
    normalises: no mean and std are wanted but those in `built`, if it has any. Where it has none
        and this is False, they are to be measured on the data.
    about: plain values that tell this start from others.
    """

    built: BuiltModel
    network: str
    arguments: Config
    pretrained: bool
    normalises: bool
    about: Config


@dataclass(frozen=True)
class Wanted:
    """What `start_model` was asked for, after its checks."""

    source: str
    num_classes: int
    channels: int
    weights: Path | None
    pretrained: bool
    seed: int


def make_start(
    built: BuiltModel,
    network: str,
    arguments: Config,
    pretrained: bool,
    normalises: bool,
    more: Config,
) -> Start:
    """The start; `more` says which files, weights and libraries it comes from."""
    about: Config = {"network": network, "arguments": arguments, "pretrained": pretrained}
    about |= {"files": {}} | more
    return Start(built, network, arguments, pretrained, normalises, about)


def builder(name: str, arguments: Config, seed: int) -> Callable[[int], nn.Module]:
    """The same network for any number of classes."""
    if of_library(name):
        channels = arguments["channels"]
        return lambda classes: new_library_network(name, classes, channels, seed)  # type: ignore[arg-type]
    return lambda classes: build_own(name, arguments | {"num_classes": classes, "seed": seed})


def fitted(
    wanted: Wanted,
    built: BuiltModel,
    state: State,
    origin: str,
    build: Callable[[int], nn.Module],
) -> BuiltModel:
    """Its network with these weights, the head only where the classes are as many."""
    if fit_resized(built.module, state, origin, wanted.num_classes, build):
        return built
    return dataclasses.replace(built, class_names=None)  # they were those of the old head


def with_channels(preparation: Preparation, channels: int) -> Preparation:
    """Pictures of other than 1 or 3 channels are taken as they are stored."""
    return dataclasses.replace(preparation, channels=channels if channels in (1, 3) else None)


def require_colour(wanted: Wanted) -> None:
    """Raise unless pictures are as published weights want them."""
    if wanted.channels != 3:
        raise other_channels(wanted, 3)


def other_channels(wanted: Wanted, channels: object) -> InputError:
    """The error for a source that is for another number of channels."""
    return InputError(
        "the number of channels",
        wanted.channels,
        f"must be {channels} for the weights or the preparation of {wanted.source}",
        f"pass --channels {channels}, which prepares the pictures so",
    )


def no_choice(name: str, source: str, remedy: str) -> InputError:
    """The error for weights beside a source that has some."""
    return InputError(name, "given", f"cannot be for {source}, which brings its own", remedy)
