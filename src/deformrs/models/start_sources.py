"""The kinds of sources that training can begin with, one function each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch.nn.parameter import is_lazy

from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.beside import load_users
from deformrs.models.extras import import_extra, no_weights, seeded
from deformrs.models.libraries import (
    describe_library_network,
    library_version,
    read_library_weights,
)
from deformrs.models.named import build_own
from deformrs.models.parts import BuiltModel
from deformrs.models.saved import read_saved
from deformrs.models.scoring import check_scores
from deformrs.models.start import (
    Start,
    Wanted,
    builder,
    fitted,
    make_start,
    no_choice,
    other_channels,
    require_colour,
    with_channels,
)
from deformrs.models.weights import digest_of, file_digest, read_state
from deformrs.preparation import Preparation

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what published ResNet-50s want


def start_own(wanted: Wanted, name: str, fields: Config) -> Start:
    """A network of this package."""
    typed: Config = {"num_classes": wanted.num_classes, "channels": wanted.channels}
    network = build_own(name, typed | fields | {"seed": wanted.seed})
    arguments: Config = network.arguments  # type: ignore[assignment]
    large = name == "ResNet50"
    usual = Preparation(256, (224, 224)) if large else Preparation()
    built = BuiltModel(network, with_channels(usual, wanted.channels), channels_last=True)
    more: Config = {}
    if wanted.pretrained:
        library = _published(wanted, name)
        state, origin = read_library_weights(library, None)
        built = describe_library_network(library, network, None)
        more = library_version(library) | {"state_sha256": digest_of(state)}
    elif wanted.weights is not None:
        state, origin = read_state(wanted.weights), str(wanted.weights)
        more = _files(wanted.weights)
        if large and wanted.channels == 3:
            built = dataclasses.replace(built, mean=_IMAGENET[0], std=_IMAGENET[1])
    if more:
        built = fitted(wanted, built, state, origin, builder(name, arguments, wanted.seed))
    return make_start(built, name, arguments, bool(more), name == "SmallCNN", more)


def start_library(wanted: Wanted) -> Start:
    """`timm:NAME` or `torchvision:NAME`."""
    source, weights = wanted.source, wanted.weights
    if wanted.pretrained:
        require_colour(wanted)
    arguments: Config = {"num_classes": wanted.num_classes, "channels": wanted.channels}
    build = builder(source, arguments, wanted.seed)
    built = describe_library_network(source, build(wanted.num_classes), weights)
    loaded = wanted.pretrained or weights is not None
    if not loaded:
        built = dataclasses.replace(built, class_names=None)
    if not loaded or wanted.channels != built.preparation.channels:
        built = dataclasses.replace(built, mean=None, std=None)
    said = with_channels(built.preparation, wanted.channels)
    built = dataclasses.replace(built, preparation=said)
    more = library_version(source)
    if loaded:
        state, origin = read_library_weights(source, weights)
        more |= _files(weights) if weights else {"state_sha256": digest_of(state)}
        built = fitted(wanted, built, state, origin, build)
    return make_start(built, source, arguments, loaded, False, more)


def start_users(wanted: Wanted) -> Start:
    """`FILE.py:FUNCTION`, a network of the user's own, which says itself what it wants."""
    source = wanted.source
    if wanted.pretrained:
        raise no_choice("pretrained", source, "pass a file of weights, or load them in FUNCTION")
    with seeded(wanted.seed):
        found = load_users(source, wanted.weights)
    built = found.built
    for key, value in built.module.state_dict().items():
        if is_lazy(value):
            raise InputError(
                f"{key!r} of {source}",
                "not there yet, in a lazy layer",
                "must be there when training begins",
                "show the network a picture in FUNCTION, or say its sizes",
            )
    built.module.float().cpu()
    said = built.preparation.channels
    if said is not None and said != wanted.channels:
        raise other_channels(wanted, said)
    if built.preparation.crop is not None:
        shape = (2, wanted.channels, *built.preparation.crop)
        check_scores(built, wanted.num_classes, torch.full(shape, 0.5))
    arguments: Config = {"num_classes": wanted.num_classes, "channels": wanted.channels}
    return make_start(built, source, arguments, wanted.weights is not None, True, found.about)


def start_saved(wanted: Wanted) -> Start:
    """A folder that training wrote: its network, its weights, its normalisation."""
    source = wanted.source
    for name, given in (("weights", wanted.weights), ("pretrained", wanted.pretrained)):
        if given:
            raise no_choice(name, source, "leave it out")
    saved = read_saved(Path(source))
    built, arguments = saved.found.built, saved.arguments
    if arguments["channels"] != wanted.channels:
        raise other_channels(wanted, arguments["channels"])
    if arguments["num_classes"] != wanted.num_classes:
        build = builder(saved.network, arguments, wanted.seed)
        state = built.module.state_dict()
        built = dataclasses.replace(built, module=build(wanted.num_classes))
        built = fitted(wanted, built, state, source, build)
        arguments = arguments | {"num_classes": wanted.num_classes}
        if "seed" in arguments:
            arguments["seed"] = wanted.seed
    return make_start(built, saved.network, arguments, True, True, saved.found.about)


def _published(wanted: Wanted, name: str) -> str:
    """Where the published weights for a network of this package are."""
    if name != "ResNet50":
        raise InputError(
            "pretrained",
            f"asked for with {wanted.source}",
            "needs published weights, and there are none for this network",
            "pass a file with --weights, or choose resnet50, timm:NAME or torchvision:NAME",
        )
    require_colour(wanted)
    try:
        import_extra("torchvision", "torchvision")
    except InputError as error:
        raise no_weights(wanted.source, str(error)) from None
    return "torchvision:resnet50"


def _files(weights: Path) -> Config:
    return {"files": {weights.name: file_digest(weights)}}
