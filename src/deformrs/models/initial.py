"""From a source, as people write it, to the network that training begins with."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from deformrs.checks import check_integer, check_seed
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models.determinism import check_scores
from deformrs.models.optional_dependencies import import_extra, no_weights, seeded
from deformrs.models.registry import (
    LIBRARIES,
    OWN_NAMES,
    build_own,
    describe_library_network,
    library_version,
    nearest_own,
    new_library_network,
    of_library,
    own_network,
    read_library_weights,
)
from deformrs.models.saved import load_users, of_file, read_saved
from deformrs.models.types import NetworkSpec
from deformrs.models.weights import (
    State,
    digest_of,
    fit_resized,
    read_state,
    require_file,
)
from deformrs.runs.files import file_digest


@dataclass(frozen=True)
class InitialNetwork:
    """What training begins with.

    built: on the CPU, in float32, with what the source says of preparation, mean, std and classes.
    network, arguments: from which `build_network` makes it again, but for its weights.
    pretrained: the weights come from somewhere; they were not drawn.
    normalises: no mean and std are wanted but those in `built`, if it has any. Where it has none
        and this is False, they are to be measured on the data.
    about: plain values that tell this start from others.
    """

    spec: NetworkSpec
    network: str
    arguments: Config
    pretrained: bool
    normalises: bool
    about: Config


@dataclass(frozen=True)
class Wanted:
    """What `initial_network` was asked for, after its checks."""

    source: str
    num_classes: int
    channels: int
    weights: Path | None
    pretrained: bool
    seed: int


def make_start(
    spec: NetworkSpec,
    network: str,
    arguments: Config,
    pretrained: bool,
    normalises: bool,
    more: Config,
) -> InitialNetwork:
    """The start; `more` says which files, weights and libraries it comes from."""
    about: Config = {"network": network, "arguments": arguments, "pretrained": pretrained}
    about |= {"files": {}} | more
    return InitialNetwork(spec, network, arguments, pretrained, normalises, about)


def builder(name: str, arguments: Config, seed: int) -> Callable[[int], nn.Module]:
    """The same network for any number of classes."""
    if of_library(name):
        channels = arguments["channels"]
        return lambda classes: new_library_network(name, classes, channels, seed)  # type: ignore[arg-type]
    return lambda classes: build_own(name, arguments | {"num_classes": classes, "seed": seed})


def fitted(
    wanted: Wanted,
    spec: NetworkSpec,
    state: State,
    origin: str,
    build: Callable[[int], nn.Module],
) -> NetworkSpec:
    """Its network with these weights, the head only where the classes are as many."""
    if fit_resized(spec.module, state, origin, wanted.num_classes, build):
        return spec
    return dataclasses.replace(spec, class_names=None)  # they were those of the old head


def with_channels(preparation: Preparation, channels: int) -> Preparation:
    """Images of other than 1 or 3 channels are taken as they are stored."""
    return dataclasses.replace(preparation, channels=channels if channels in (1, 3) else None)


def require_colour(wanted: Wanted) -> None:
    """Raise unless images are as published weights want them."""
    if wanted.channels != 3:
        raise other_channels(wanted, 3)


def other_channels(wanted: Wanted, channels: object) -> InputError:
    """The error for a source that is for another number of channels."""
    return InputError(
        "the number of channels",
        wanted.channels,
        f"must be {channels} for the weights or the preparation of {wanted.source}",
        f"pass --channels {channels}, which prepares the images so",
    )


def no_choice(name: str, source: str, remedy: str) -> InputError:
    """The error for weights beside a source that has some."""
    return InputError(name, "given", f"cannot be for {source}, which brings its own", remedy)


_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what published ResNet-50s want


def start_own(wanted: Wanted, name: str, fields: Config) -> InitialNetwork:
    """A network of this package."""
    typed: Config = {"num_classes": wanted.num_classes, "channels": wanted.channels}
    network = build_own(name, typed | fields | {"seed": wanted.seed})
    arguments: Config = network.arguments  # type: ignore[assignment]
    large = name == "ResNet50"
    usual = Preparation(256, (224, 224)) if large else Preparation()
    spec = NetworkSpec(network, with_channels(usual, wanted.channels), channels_last=True)
    more: Config = {}
    if wanted.pretrained:
        library = _published(wanted, name)
        state, origin = read_library_weights(library, None)
        spec = describe_library_network(library, network, None)
        more = library_version(library) | {"state_sha256": digest_of(state)}
    elif wanted.weights is not None:
        state, origin = read_state(wanted.weights), str(wanted.weights)
        more = _files(wanted.weights)
        if large and wanted.channels == 3:
            spec = dataclasses.replace(spec, mean=_IMAGENET[0], std=_IMAGENET[1])
    if more:
        spec = fitted(wanted, spec, state, origin, builder(name, arguments, wanted.seed))
    return make_start(spec, name, arguments, bool(more), name == "SmallCNN", more)


def start_library(wanted: Wanted) -> InitialNetwork:
    """`timm:NAME` or `torchvision:NAME`."""
    source, weights = wanted.source, wanted.weights
    if wanted.pretrained:
        require_colour(wanted)
    arguments: Config = {"num_classes": wanted.num_classes, "channels": wanted.channels}
    build = builder(source, arguments, wanted.seed)
    spec = describe_library_network(source, build(wanted.num_classes), weights)
    loaded = wanted.pretrained or weights is not None
    if not loaded:
        spec = dataclasses.replace(spec, class_names=None)
    if not loaded or wanted.channels != spec.preparation.channels:
        spec = dataclasses.replace(spec, mean=None, std=None)
    said = with_channels(spec.preparation, wanted.channels)
    spec = dataclasses.replace(spec, preparation=said)
    more = library_version(source)
    if loaded:
        state, origin = read_library_weights(source, weights)
        more |= _files(weights) if weights else {"state_sha256": digest_of(state)}
        spec = fitted(wanted, spec, state, origin, build)
    return make_start(spec, source, arguments, loaded, False, more)


def start_users(wanted: Wanted) -> InitialNetwork:
    """`FILE.py:FUNCTION`, a network of the user's own, which says itself what it wants."""
    source = wanted.source
    if wanted.pretrained:
        raise no_choice("pretrained", source, "pass a file of weights, or load them in FUNCTION")
    with seeded(wanted.seed):
        found = load_users(source, wanted.weights)
    spec = found.spec
    for key, value in spec.module.state_dict().items():
        if is_lazy(value):
            raise InputError(
                f"{key!r} of {source}",
                "not there yet, in a lazy layer",
                "must be there when training begins",
                "show the network an image in FUNCTION, or say its sizes",
            )
    spec.module.float().cpu()
    said = spec.preparation.channels
    if said is not None and said != wanted.channels:
        raise other_channels(wanted, said)
    if spec.preparation.crop is not None:
        shape = (2, wanted.channels, *spec.preparation.crop)
        check_scores(spec, wanted.num_classes, torch.full(shape, 0.5))
    arguments: Config = {"num_classes": wanted.num_classes, "channels": wanted.channels}
    return make_start(spec, source, arguments, wanted.weights is not None, True, found.about)


def start_saved(wanted: Wanted) -> InitialNetwork:
    """A folder that training wrote: its network, its weights, its normalisation."""
    source = wanted.source
    for name, given in (("weights", wanted.weights), ("pretrained", wanted.pretrained)):
        if given:
            raise no_choice(name, source, "leave it out")
    saved = read_saved(Path(source))
    spec, arguments = saved.found.spec, saved.arguments
    if arguments["channels"] != wanted.channels:
        raise other_channels(wanted, arguments["channels"])
    if arguments["num_classes"] != wanted.num_classes:
        build = builder(saved.network, arguments, wanted.seed)
        state = spec.module.state_dict()
        spec = dataclasses.replace(spec, module=build(wanted.num_classes))
        spec = fitted(wanted, spec, state, source, build)
        arguments = arguments | {"num_classes": wanted.num_classes}
        if "seed" in arguments:
            arguments["seed"] = wanted.seed
    return make_start(spec, saved.network, arguments, True, True, saved.found.about)


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


STARTS = ", ".join(
    (*OWN_NAMES, "timm:NAME", "torchvision:NAME", "a run folder", "FILE.py:FUNCTION")
)
_FIXED = (".onnx", ".pt2")


def initial_network(
    source: str,
    num_classes: int,
    channels: int,
    *,
    weights: Path | None = None,
    pretrained: bool = False,
    seed: int = 0,
) -> InitialNetwork:
    """The network that `source` names, for so many classes of images with so many channels.

        small_cnn   resnet18:width=32   resnet50      networks of this package
        timm:NAME   torchvision:NAME                  of those libraries
        runs/rotation                                 goes on from what training wrote there
        mymodel.py:build                              a function that returns a network

    Weights are drawn from `seed`, or those of a .safetensors or .pth file, or, with `pretrained`,
    published ones (of timm, of torchvision, of torchvision's ResNet-50). Where these are for
    another number of classes the head is drawn anew; everything else must fit.

    Guarantee: the weights depend on these arguments alone (and on the user's own file), and
    torch's global random state is as before.

    >>> start = initial_network("ResNet-18:width=8", num_classes=10, channels=1)
    >>> start.network, start.arguments["width"], start.spec.preparation.words
    ('ResNet18', 8, 'grey')
    """
    check_integer("num_classes", num_classes, least=1)
    check_integer("channels", channels, least=1)
    check_seed("seed", seed)
    source = str(source).strip()
    if weights is not None:
        weights = Path(weights)
        require_file("the weights file", weights)
    if weights is not None and pretrained:
        raise InputError(
            "pretrained", "given beside weights", "stands for published ones", "leave one out"
        )
    wanted = Wanted(source, int(num_classes), int(channels), weights, pretrained, int(seed))
    own = own_network(source)
    if own is not None:
        return start_own(wanted, *own)
    if of_library(source):
        return start_library(wanted)
    if of_file(source):
        return start_users(wanted)
    if source and Path(source).is_dir():
        return start_saved(wanted)
    raise _unknown(source)


def _unknown(source: str) -> InputError:
    library, colon, name = source.partition(":")
    near = difflib.get_close_matches(library.lower(), LIBRARIES, n=1)
    own = nearest_own(source)
    path = Path(source)
    if path.suffix == ".py":
        remedy = f"name the function that builds it, e.g. {source}:build"
    elif path.suffix in _FIXED or library == "hf":
        remedy = "its computation cannot be trained here: build the network in a Python file"
    elif path.is_file():
        remedy = "a file of weights needs a network: give that as the model, this as --weights"
    elif colon and near:
        remedy = f"did you mean {near[0]}:{name}?"
    elif own is not None:
        remedy = f"did you mean {own}? A network of timm would be timm:{library}"
    else:
        remedy = "there is no such folder; a network of timm is e.g. timm:resnet34"
    return InputError("the model", repr(source), f"must be one of {STARTS}", remedy)
