"""Initial networks for training: drawn from a seed, published, saved, or the user's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from deformrs.checks import check_integer, check_seed
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.execution import scores_of
from deformrs.models.networks import (
    LIBRARIES,
    OWN_NAMES,
    build_network,
    library_of,
    nearest_own,
    of_library,
    parse_own,
)
from deformrs.models.optional_dependencies import import_extra, no_weights, seeded
from deformrs.models.saved import (
    load_factory,
    load_saved,
    of_file,
    read_description,
)
from deformrs.models.sources import unknown_source
from deformrs.models.types import Classifier, NetworkSpec
from deformrs.models.weights import State, fit_resized, read_state, require_file, state_digest
from deformrs.runs.files import file_digest

FORMS = ", ".join((*OWN_NAMES, "timm:NAME", "torchvision:NAME", "a run folder", "FILE.py:FUNCTION"))
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and std of published ResNet-50s


@dataclass(frozen=True)
class InitialNetwork:
    """The network that training starts from.

    spec: on the CPU, in float32, with the preprocessing and class names of its source.
    network, arguments: from which `build_network` makes it again, without its weights.
    pretrained: the weights were loaded, not drawn.
    normalises: the normalisation in `spec`, if any, is the one to use. If this is False and `spec`
        has none, mean and std are to be computed from the data.
    origin: the files and libraries it comes from.
    """

    spec: NetworkSpec
    network: str
    arguments: Config
    pretrained: bool
    normalises: bool
    origin: Config

    @property
    def about(self) -> Config:
        """The plain values that tell this network from others."""
        own: Config = {"network": self.network, "arguments": self.arguments}
        return own | {"pretrained": self.pretrained, "files": {}} | self.origin


@dataclass(frozen=True)
class _Request:
    source: str
    num_classes: int
    channels: int
    weights: Path | None
    pretrained: bool
    seed: int

    @property
    def arguments(self) -> Config:
        return {"num_classes": self.num_classes, "channels": self.channels}


def initial_network(
    source: str,
    num_classes: int,
    channels: int,
    *,
    weights: Path | None = None,
    pretrained: bool = False,
    seed: int = 0,
) -> InitialNetwork:
    """Return the network that `source` names, for `num_classes` classes and `channels` channels.

        small_cnn   resnet18:width=32   resnet50      networks of this package
        timm:NAME   torchvision:NAME                  of those libraries
        runs/rotation                                 continues from a trained network
        mymodel.py:build                              a function that returns a network

    Weights are drawn from `seed`, or read from a .safetensors or .pth file, or, with `pretrained`,
    the published ones (of timm, of torchvision, of torchvision's ResNet-50). If these are for
    another number of classes the head is drawn anew; everything else must fit.

    Guarantee: the weights depend on these arguments alone (and on the user's own file), and
    torch's global random state is left unchanged.

    >>> initial = initial_network("ResNet-18:width=8", num_classes=10, channels=1)
    >>> initial.network, initial.arguments["width"], initial.spec.preparation.words
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
            "pretrained", "given with weights", "means the published weights", "leave one out"
        )
    request = _Request(source, int(num_classes), int(channels), weights, pretrained, int(seed))
    own = parse_own(source)
    if own is not None:
        return _own_network(request, *own)
    if of_library(source):
        return _library_network(request)
    if of_file(source):
        return _factory_network(request)
    if source and Path(source).is_dir():
        return _saved_network(request)
    library, close = source.partition(":")[0], nearest_own(source)
    if library in ("hf", "robustbench") or source.endswith((".onnx", ".pt2")):
        remedy = "its computation cannot be trained here: build the network in a Python file"
    elif close is not None:
        remedy = f"did you mean {close}? A network of timm would be timm:{library}"
    else:
        remedy = "there is no such folder; a network of timm is e.g. timm:resnet34"
    raise unknown_source(source, FORMS, LIBRARIES, remedy)


def _own_network(request: _Request, name: str, width: Config) -> InitialNetwork:
    """Build a network of this package."""
    network = build_network(name, request.arguments | width, request.seed)
    arguments: Config = network.arguments  # type: ignore[assignment]
    large = name == "ResNet50"
    preparation = Preparation(256, (224, 224)) if large else Preparation()
    spec = NetworkSpec(network, _prepared(preparation, request.channels), channels_last=True)
    state: State | None = None
    origin: Config = {}
    file = str(request.weights)
    if request.pretrained:
        _check_published(request, name)
        library, short, version = library_of("torchvision:resnet50")
        state, file = library.read_weights(short, None)
        spec = library.describe(short, network, None)
        origin = version | {"state_sha256": state_digest(state)}
    elif request.weights is not None:
        state, origin = read_state(request.weights), _files(request.weights)
        if large and request.channels == 3:
            spec = dataclasses.replace(spec, mean=_IMAGENET[0], std=_IMAGENET[1])
    if state is not None:
        spec = _fitted(request, spec, state, file, _builder(name, arguments, request.seed))
    return InitialNetwork(
        spec, name, arguments, state is not None, normalises=name == "SmallCNN", origin=origin
    )


def _library_network(request: _Request) -> InitialNetwork:
    """Build `timm:NAME` or `torchvision:NAME`."""
    weights = request.weights
    if request.pretrained:
        _check_colour(request)
    library, name, origin = library_of(request.source)
    build = _builder(request.source, request.arguments, request.seed)
    spec = library.describe(name, build(request.num_classes), weights)
    loaded = request.pretrained or weights is not None
    if not loaded:
        spec = dataclasses.replace(spec, class_names=None)
    if not loaded or request.channels != spec.preparation.channels:
        spec = dataclasses.replace(spec, mean=None, std=None)
    spec = dataclasses.replace(spec, preparation=_prepared(spec.preparation, request.channels))
    if loaded:
        state, file = library.read_weights(name, weights)
        origin |= _files(weights) if weights else {"state_sha256": state_digest(state)}
        spec = _fitted(request, spec, state, file, build)
    return InitialNetwork(spec, request.source, request.arguments, loaded, False, origin)


def _factory_network(request: _Request) -> InitialNetwork:
    """Call `FILE.py:FUNCTION`, the user's own code, which describes its network itself."""
    source = request.source
    if request.pretrained:
        raise _has_weights("pretrained", source, "pass a file of weights, or load them in FUNCTION")
    with seeded(request.seed):
        resolved = load_factory(source, request.weights)
    spec = resolved.spec
    for key, value in spec.module.state_dict().items():
        if is_lazy(value):
            raise InputError(
                f"{key!r} of {source}",
                "in a lazy layer that has no shape yet",
                "must be initialised before training",
                "pass the network an image in FUNCTION, or give the sizes of its layers",
            )
    spec.module.float().cpu()
    channels = spec.preparation.channels
    if channels is not None and channels != request.channels:
        raise _other_channels(request, channels)
    if spec.preparation.crop is not None:
        shape = (2, request.channels, *spec.preparation.crop)
        check_num_classes(spec, request.num_classes, torch.full(shape, 0.5))
    loaded = request.weights is not None
    return InitialNetwork(spec, source, request.arguments, loaded, True, resolved.about)


def _saved_network(request: _Request) -> InitialNetwork:
    """Load a network that training wrote, with its weights and its normalisation."""
    source = request.source
    for name, given in (("weights", request.weights), ("pretrained", request.pretrained)):
        if given:
            raise _has_weights(name, source, "leave it out")
    description = read_description(Path(source))
    network, arguments = description.network, description.arguments
    if description.uses_code:
        raise InputError(
            f"the network in {source}",
            f"built by {network}, a Python file",
            "must be named by its file, which training executes",
            f"pass {description.explicit_options}",
        )
    resolved = load_saved(Path(source))
    spec = resolved.spec
    if not of_library(network):  # those of this package know their arguments in full
        arguments = spec.module.arguments  # type: ignore[assignment]
    if arguments["channels"] != request.channels:
        raise _other_channels(request, arguments["channels"])
    if arguments["num_classes"] != request.num_classes:
        build = _builder(network, arguments, request.seed)
        state = spec.module.state_dict()
        spec = dataclasses.replace(spec, module=build(request.num_classes))
        spec = _fitted(request, spec, state, source, build)
        arguments = arguments | {"num_classes": request.num_classes}
        if "seed" in arguments:
            arguments["seed"] = request.seed
    return InitialNetwork(spec, network, arguments, True, True, resolved.about)


def _builder(name: str, arguments: Config, seed: int) -> Callable[[int], nn.Module]:
    """Return a function that builds the same network for any number of classes."""
    return lambda classes: build_network(name, arguments | {"num_classes": classes}, seed)


def _fitted(
    request: _Request,
    spec: NetworkSpec,
    state: State,
    origin: str,
    build: Callable[[int], nn.Module],
) -> NetworkSpec:
    """Load weights, those of the head only if it is for as many classes."""
    if fit_resized(spec.module, state, origin, request.num_classes, build):
        return spec
    return dataclasses.replace(spec, class_names=None)  # they were those of the old head


def _prepared(preparation: Preparation, channels: int) -> Preparation:
    """Return the preparation for images with that many channels; only 1 and 3 can be converted."""
    return dataclasses.replace(preparation, channels=channels if channels in (1, 3) else None)


def _check_published(request: _Request, name: str) -> None:
    """Raise unless there are published weights for a network of this package."""
    if name != "ResNet50":
        raise InputError(
            "pretrained",
            f"requested for {request.source}",
            "needs published weights, and there are none for this network",
            "pass a file with --weights, or choose resnet50, timm:NAME or torchvision:NAME",
        )
    _check_colour(request)
    try:
        import_extra("torchvision")
    except InputError as error:
        raise no_weights(request.source, str(error)) from None


def _check_colour(request: _Request) -> None:
    """Raise unless images have the three channels of published weights."""
    if request.channels != 3:
        raise _other_channels(request, 3)


def _other_channels(request: _Request, channels: object) -> InputError:
    return InputError(
        "the number of channels",
        request.channels,
        f"must be {channels} for the weights or the preparation of {request.source}",
        f"pass --channels {channels}, which converts the images",
    )


def _has_weights(name: str, source: str, remedy: str) -> InputError:
    return InputError(name, "given", f"cannot be for {source}, which brings its own", remedy)


def _files(weights: Path) -> Config:
    return {"files": {weights.name: file_digest(weights)}}


def check_num_classes(spec: NetworkSpec, num_classes: int, images: Tensor) -> None:
    """Raise unless the network returns `num_classes` logits for images [n, c, h, w] in [0, 1].

    Its weights and its mode are left unchanged.
    """
    modes = [(part, part.training) for part in spec.module.modules()]
    try:
        with torch.no_grad():
            logits = scores_of(Classifier(spec, torch.float32).eval().to(images.device), images)
    finally:
        for part, mode in modes:
            part.training = mode
    if logits.shape[1] != num_classes:
        raise InputError(
            "the number of logits of the network",
            logits.shape[1],
            f"must be {num_classes}, one for each class of the data",
            f"build it for {num_classes} classes",
        )
