"""Classifiers of the torchvision library."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, first_line, nearest
from deformrs.models.optional_dependencies import (
    import_extra,
    no_weights,
    not_downloaded,
    reachable,
    seeded,
)
from deformrs.models.types import NetworkSpec
from deformrs.models.weights import State, read_state

# These two are published with heads that evaluation drops, and with a normalisation inside.
_INCEPTIONS = {"googlenet", "inception_v3"}


def new_network(name: str, num_classes: int | None, channels: int = 3, seed: int = 0) -> nn.Module:
    """Return `torchvision:NAME` untrained, its weights drawn from `seed` alone.

    Without `num_classes` it has torchvision's default number.
    """
    torchvision = _torchvision_with(name)
    if channels != 3:
        raise InputError(
            "the number of channels",
            channels,
            f"must be 3 for torchvision:{name}, which takes only colour images",
            "pass --channels 3, which converts grey images to colour; or use timm:NAME",
        )
    options: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    if name in _INCEPTIONS:
        options |= {"aux_logits": True, "transform_input": True, "init_weights": False}
    try:
        with seeded(seed):
            network: nn.Module = torchvision.models.get_model(name, weights=None, **options)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"the model torchvision:{name}",
            first_line(error),
            "must be built by torchvision",
            "choose another",
        ) from error
    return network


def read_weights(name: str, weights: Path | None, download: bool = True) -> tuple[State, str]:
    """Return weights for `torchvision:NAME` and their origin.

    None stands for the published ones, from the cache or else downloaded if `download`.
    """
    if weights is not None:
        return _renamed(name, read_state(weights)), str(weights)
    published = _published(name, None)
    cached = Path(torch.hub.get_dir(), "checkpoints", published.url.rpartition("/")[2])
    if not cached.exists() and not download:
        raise not_downloaded(f"torchvision:{name}")
    if not cached.exists() and not reachable(published.url):
        raise no_weights(f"torchvision:{name}", f"{published.url} cannot be reached")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # where it would announce the download
            state: State = published.get_state_dict(
                progress=sys.stderr.isatty(), check_hash=True, map_location="cpu", weights_only=True
            )
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise no_weights(f"torchvision:{name}", first_line(error)) from error
    return _renamed(name, state), published.url


def describe(name: str, network: nn.Module, weights: Path | None) -> NetworkSpec:
    """Return the network with the preset of its weights.

    That is the preset of the published weights with the same file name, or else of the newest.
    """
    published = _published(name, weights)
    preset = published.transforms()
    names = tuple(published.meta["categories"])
    last = list(network.state_dict().values())[-1]
    return NetworkSpec(
        network,
        Preparation(
            resize=preset.resize_size[0],
            crop=(preset.crop_size[0], preset.crop_size[0]),
            interpolation=preset.interpolation.value,
            channels=3,
        ),
        tuple(map(float, preset.mean)),
        tuple(map(float, preset.std)),
        names if len(names) == len(last) else None,
        channels_last=True,
    )


def _torchvision_with(name: str) -> ModuleType:
    """Return the library; raise unless it is installed and knows the classifier."""
    torchvision = import_extra("torchvision")
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        close = nearest(name, known)
        raise InputError(
            "the model",
            f"torchvision:{name}",
            "must be a classifier that torchvision knows",
            f"did you mean torchvision:{close}?" if close else "see torchvision.models",
        )
    return torchvision


def _published(name: str, weights: Path | None) -> Any:
    """Return torchvision's entry for the published weights of that file name, or the newest."""
    entries = _torchvision_with(name).models.get_model_weights(name)
    named = [entry for entry in entries if weights and entry.url.endswith("/" + weights.name)]
    return named[0] if named else entries.DEFAULT


def _renamed(name: str, state: State) -> State:
    """Return the weights of a DenseNet without the dots that Python's attributes cannot have."""
    if not name.startswith("densenet"):
        return state
    dotted = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.(\d)")
    return {dotted.sub(r"\1\2", key): value for key, value in state.items()}
