"""Networks of the timm library, with downloaded or local weights."""

from __future__ import annotations

import difflib
import math
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, UnsupportedError
from deformrs.models.optional_dependencies import (
    first_line,
    import_extra,
    no_weights,
    quiet,
    reachable,
    seeded,
)
from deformrs.models.types import NetworkSpec, ResolvedSource
from deformrs.models.weights import State, fit_state, read_state, sized_to
from deformrs.runs.files import file_digest


def load_timm(name: str, weights: Path | None) -> ResolvedSource:
    """`timm:NAME`, prepared and normalised as timm says. Local weights never touch the network."""
    timm = known_timm(name)
    about: Config = {"timm": str(timm.__version__)}
    if weights is None:
        network = _pretrained(timm, name)
    else:
        state = read_state(weights)
        network = sized_to(state, lambda classes: _bare(timm, name, classes))
        fit_state(network, state, str(weights))
        about["files"] = {weights.name: file_digest(weights)}
    return ResolvedSource(describe_timm(name, network), about)


def known_timm(name: str) -> ModuleType:
    """The library, or an error unless it is installed and knows the name."""
    timm = import_extra("timm", "timm")
    _check_name(timm, name)
    return timm


def new_timm(name: str, num_classes: int, channels: int, seed: int) -> nn.Module:
    """`timm:NAME` for so many classes and channels, its weights drawn from `seed` alone."""
    timm = known_timm(name)
    return _bare(timm, name, num_classes, None if channels == 3 else channels, seed)


def published_timm(name: str) -> State:
    """The weights that timm offers: from the cache if they are there, else downloaded."""
    state: State = _pretrained(known_timm(name), name).state_dict()
    return state


def describe_timm(name: str, network: nn.Module) -> NetworkSpec:
    """The network with what timm says of it."""
    timm = known_timm(name)
    if not getattr(network, "num_classes", 0):
        raise InputError(
            f"the model timm:{name}", "without classes", "must be a classifier", "choose another"
        )
    wanted = timm.data.resolve_model_data_config(network)
    return NetworkSpec(
        network,
        _preparation(name, wanted),
        tuple(map(float, wanted["mean"])),
        tuple(map(float, wanted["std"])),
        _class_names(timm, network),
        channels_last=True,
    )


def _check_name(timm: ModuleType, name: str) -> None:
    known = timm.list_pretrained() if "." in name else timm.list_models()
    if timm.is_model(name) and ("." not in name or name in known):
        return
    near = difflib.get_close_matches(name, known, n=1)
    raise InputError(
        "the model",
        f"timm:{name}",
        "must be a network that timm knows",
        f"did you mean timm:{near[0]}?" if near else "see timm.list_models()",
    )


def _bare(
    timm: ModuleType, name: str, classes: int | None, channels: int | None = None, seed: int = 0
) -> nn.Module:
    options = {} if channels is None else {"in_chans": channels}
    try:
        with quiet("timm"), seeded(seed):
            network: nn.Module = timm.create_model(
                name, pretrained=False, num_classes=classes, **options
            )
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        raise InputError(
            f"the model timm:{name}",
            first_line(error),
            f"must be built by timm for {classes} classes of images with {channels} channels"
            if options
            else "must be built by timm",
            "pass --channels 3, or choose another" if options else "choose another",
        ) from error
    return network


def _pretrained(timm: ModuleType, name: str) -> nn.Module:
    """With the weights that timm offers: from the cache if they are there, else downloaded."""
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise no_weights(f"timm:{name}", "there are none to download")
    overlay: dict[str, str] = {}
    if config.hf_hub_id:
        hub = import_extra("huggingface_hub", "timm")
        file = config.hf_hub_filename or "model.safetensors"
        cached = hub.try_to_load_from_cache(config.hf_hub_id, file)
        if isinstance(cached, str):
            overlay["file"] = cached
        elif hub.constants.HF_HUB_OFFLINE or not reachable(hub.constants.ENDPOINT):
            raise no_weights(f"timm:{name}", f"{hub.constants.ENDPOINT} cannot be reached")
    try:
        with quiet("timm", "huggingface_hub"), seeded(0):
            network: nn.Module = timm.create_model(
                name, pretrained=True, pretrained_cfg_overlay=overlay
            )
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise no_weights(f"timm:{name}", first_line(error)) from error
    return network


def _preparation(name: str, wanted: dict[str, Any]) -> Preparation:
    """What timm's own evaluation does before it normalises."""
    channels, height, width = wanted["input_size"]
    share, mode = wanted["crop_pct"], wanted["crop_mode"]
    scaled = math.floor(height / share), math.floor(width / share)
    if mode not in ("center", "squash") or (mode == "center" and height != width):
        raise UnsupportedError(
            f"the preparation of timm:{name}",
            f"{mode!r} to {height} x {width}",
            "must be a centre cut of a square, or squashed",
            "give a preparation of your own",
        )
    return Preparation(
        resize=scaled if mode == "squash" else scaled[0],
        crop=(height, width),
        interpolation=wanted["interpolation"],
        channels=channels,
    )


def _class_names(timm: ModuleType, network: nn.Module) -> tuple[str, ...] | None:
    """The names of the ImageNet that the weights are for, if timm can tell which."""
    subset = timm.data.infer_imagenet_subset(network)
    if not subset:
        return None
    info = timm.data.ImageNetInfo(subset)
    if info.num_classes() != network.num_classes:
        return None
    return tuple(info.index_to_description(index) for index in range(info.num_classes()))
