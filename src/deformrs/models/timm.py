"""Networks of the timm library."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, UnsupportedError, first_line, nearest
from deformrs.models.optional_dependencies import (
    import_extra,
    no_weights,
    not_downloaded,
    quiet,
    reachable,
    seeded,
)
from deformrs.models.types import NetworkSpec
from deformrs.models.weights import State, read_state


def new_network(name: str, num_classes: int | None, channels: int = 3, seed: int = 0) -> nn.Module:
    """Return `timm:NAME` untrained, its weights drawn from `seed` alone.

    Without `num_classes` it has timm's default number.
    """
    timm = _timm_with(name)
    options: dict[str, Any] = {} if channels == 3 else {"in_chans": channels}
    try:
        with quiet("timm"), seeded(seed):
            network: nn.Module = timm.create_model(
                name, pretrained=False, num_classes=num_classes, **options
            )
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        raise InputError(
            f"the model timm:{name}",
            first_line(error),
            f"must be built by timm for {num_classes} classes of images with {channels} channels"
            if options
            else "must be built by timm",
            "pass --channels 3, or choose another" if options else "choose another",
        ) from error
    return network


def read_weights(name: str, weights: Path | None, download: bool = True) -> tuple[State, str]:
    """Return weights for `timm:NAME` and their origin.

    None stands for the published ones, from the cache or else downloaded if `download`.
    """
    timm = _timm_with(name)
    if weights is not None:
        return read_state(weights), str(weights)
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise no_weights(f"timm:{name}", "there are none to download")
    overlay: dict[str, str] = {}
    if config.hf_hub_id:
        hub = import_extra("huggingface_hub")
        file = config.hf_hub_filename or "model.safetensors"
        cached = hub.try_to_load_from_cache(config.hf_hub_id, file)
        if isinstance(cached, str):
            overlay["file"] = cached
        elif not download:
            raise not_downloaded(f"timm:{name}")
        elif hub.constants.HF_HUB_OFFLINE or not reachable(hub.constants.ENDPOINT):
            raise no_weights(f"timm:{name}", f"{hub.constants.ENDPOINT} cannot be reached")
    elif not download:  # the cache of other hosts is known to timm alone
        raise not_downloaded(f"timm:{name}")
    try:
        with quiet("timm", "huggingface_hub"), seeded(0):
            network = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise no_weights(f"timm:{name}", first_line(error)) from error
    state: State = network.state_dict()
    return state, f"timm:{name}"


def describe(name: str, network: nn.Module, weights: Path | None) -> NetworkSpec:
    """Return the network with timm's preparation, normalisation and class names."""
    timm = _timm_with(name)
    if not getattr(network, "num_classes", 0):
        raise InputError(
            f"the model timm:{name}", "without classes", "must be a classifier", "choose another"
        )
    config = timm.data.resolve_model_data_config(network)
    return NetworkSpec(
        network,
        _preparation(name, config),
        tuple(map(float, config["mean"])),
        tuple(map(float, config["std"])),
        _class_names(timm, network),
        channels_last=True,
    )


def _timm_with(name: str) -> ModuleType:
    """Return the library; raise unless it is installed and knows the network."""
    timm = import_extra("timm")
    known = timm.list_pretrained() if "." in name else timm.list_models()
    if not timm.is_model(name) or ("." in name and name not in known):
        close = nearest(name, known)
        raise InputError(
            "the model",
            f"timm:{name}",
            "must be a network that timm knows",
            f"did you mean timm:{close}?" if close else "see timm.list_models()",
        )
    return timm


def _preparation(name: str, config: dict[str, Any]) -> Preparation:
    """Return the resizing and cropping of timm's own evaluation."""
    channels, height, width = config["input_size"]
    fraction, mode = config["crop_pct"], config["crop_mode"]
    scaled = math.floor(height / fraction), math.floor(width / fraction)
    if mode not in ("center", "squash") or (mode == "center" and height != width):
        raise UnsupportedError(
            f"the preparation of timm:{name}",
            f"{mode!r} to {height} x {width}",
            "must be a centre crop of a square, or squashed",
            "pass a preparation of your own",
        )
    return Preparation(
        resize=scaled if mode == "squash" else scaled[0],
        crop=(height, width),
        interpolation=config["interpolation"],
        channels=channels,
    )


def _class_names(timm: ModuleType, network: nn.Module) -> tuple[str, ...] | None:
    """Return the class names of the ImageNet variant of the weights, if timm can tell which."""
    subset = timm.data.infer_imagenet_subset(network)
    if not subset:
        return None
    info = timm.data.ImageNetInfo(subset)
    if info.num_classes() != network.num_classes:
        return None
    return tuple(info.index_to_description(index) for index in range(info.num_classes()))
