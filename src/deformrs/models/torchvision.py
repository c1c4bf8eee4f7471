"""Classifiers of torchvision, with downloaded or local weights."""

from __future__ import annotations

import contextlib
import difflib
import io
import pickle
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models.optional_dependencies import (
    first_line,
    import_extra,
    no_weights,
    reachable,
    seeded,
)
from deformrs.models.types import NetworkSpec, ResolvedSource
from deformrs.models.weights import State, fit_state, read_state, sized_to
from deformrs.runs.files import file_digest

# These two are published with heads that evaluation drops, and with a normalisation inside.
_INCEPTIONS = {"googlenet", "inception_v3"}


def load_torchvision(name: str, weights: Path | None) -> ResolvedSource:
    """`torchvision:NAME`, prepared and normalised as the preset of its weights says."""
    torchvision = import_extra("torchvision", "torchvision")
    about: Config = {"torchvision": str(torchvision.__version__)}
    state, origin = read_torchvision(name, weights)
    if weights is not None:
        about["files"] = {weights.name: file_digest(weights)}
    network = sized_to(state, lambda classes: _bare(torchvision, name, classes))
    fit_state(network, state, origin)
    return ResolvedSource(describe_torchvision(name, network, weights), about)


def new_torchvision(name: str, num_classes: int, channels: int, seed: int) -> nn.Module:
    """`torchvision:NAME` for so many classes, its weights drawn from `seed` alone."""
    torchvision = import_extra("torchvision", "torchvision")
    _published(torchvision, name, None)  # raises unless torchvision knows it
    if channels != 3:
        raise InputError(
            "the number of channels",
            channels,
            f"must be 3 for torchvision:{name}, which takes colour alone",
            "pass --channels 3, which also shows grey images in colour; or use timm:NAME",
        )
    return _bare(torchvision, name, num_classes, seed)


def read_torchvision(name: str, weights: Path | None) -> tuple[State, str]:
    """Weights for `torchvision:NAME`, and where they come from; None downloads published ones."""
    published = _published(import_extra("torchvision", "torchvision"), name, weights)
    state = _download(name, published) if weights is None else read_state(weights)
    renamed = _renamed(state) if name.startswith("densenet") else state
    return renamed, published.url if weights is None else str(weights)


def describe_torchvision(name: str, network: nn.Module, weights: Path | None) -> NetworkSpec:
    """The network with the preset of its weights.

    It is that of the published weights with the same file name, or of the newest ones.
    """
    published = _published(import_extra("torchvision", "torchvision"), name, weights)
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


def _published(torchvision: ModuleType, name: str, weights: Path | None) -> Any:
    """The entry of torchvision's own list that says what these weights want."""
    models = torchvision.models
    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            "the model",
            f"torchvision:{name}",
            "must be a classifier that torchvision knows",
            f"did you mean torchvision:{near[0]}?" if near else "see torchvision.models",
        )
    offered = models.get_model_weights(name)
    named = [entry for entry in offered if weights and entry.url.endswith("/" + weights.name)]
    return named[0] if named else offered.DEFAULT


def _download(name: str, published: Any) -> State:
    """The published weights: from the cache if they are there, else downloaded and checked."""
    cached = Path(torch.hub.get_dir(), "checkpoints", published.url.rpartition("/")[2])
    if not cached.exists() and not reachable(published.url):
        raise no_weights(f"torchvision:{name}", f"{published.url} cannot be reached")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # where it would announce the download
            state: State = published.get_state_dict(
                progress=sys.stderr.isatty(), check_hash=True, map_location="cpu", weights_only=True
            )
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise no_weights(f"torchvision:{name}", first_line(error)) from error
    return state


def _bare(torchvision: ModuleType, name: str, classes: int | None, seed: int = 0) -> nn.Module:
    options: dict[str, Any] = {} if classes is None else {"num_classes": classes}
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


def _renamed(state: State) -> State:
    """The published DenseNets have names with a dot that Python's attributes cannot have."""
    dotted = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.(\d)")
    return {dotted.sub(r"\1\2", key): value for key, value in state.items()}
