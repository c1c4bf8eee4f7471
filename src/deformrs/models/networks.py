"""Networks by name: `small_cnn`, `resnet18:width=32`, `timm:resnet34`, `torchvision:resnet50`.

Those of this package are a small CNN, and residual networks (He et al. 2016) with the layer names
of published weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from deformrs.checks import check_integer, check_seed
from deformrs.config import Config
from deformrs.errors import InputError, did_you_mean, first_line, nearest
from deformrs.limits import MAX_CLASSES, MAX_WEIGHTS
from deformrs.models import timm, torchvision
from deformrs.models.optional_dependencies import import_extra
from deformrs.models.types import NetworkSpec, ResolvedSource
from deformrs.models.weights import State, fit_state, sized_to
from deformrs.runs.files import file_digest


class SmallCNN(nn.Module):
    """Three convolutions and a linear layer: [n, channels, h, w] in [0, 1] -> [n, num_classes].

    It normalises its images itself. The weights are drawn from `seed` alone, so equal arguments
    give equal networks. `arguments` holds the arguments of the constructor.
    """

    def __init__(
        self, num_classes: int = 10, channels: int = 1, width: int = 24, seed: int = 0
    ) -> None:
        super().__init__()
        self.arguments = _checked(num_classes, channels, width, seed)
        with torch.device("meta"):  # PyTorch's constructors would draw from global random state
            self.features = nn.Sequential(
                _layer(channels, width, stride=2),
                _layer(width, 2 * width, stride=2),
                _layer(2 * width, 4 * width, stride=2),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
            )
            self.head = nn.Linear(16 * width, num_classes)
        _allocate(self)
        _draw_cnn_weights(self, torch.Generator().manual_seed(seed))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features((images - 0.5) / 0.5))
        return logits


def _checked(num_classes: int, channels: int, width: int, seed: int) -> Config:
    """Return the arguments of a constructor as plain values; raise if one is invalid."""
    for name, value in (("num_classes", num_classes), ("channels", channels), ("width", width)):
        check_integer(name, value, least=1)
    check_seed("seed", seed)
    return {
        "num_classes": int(num_classes),
        "channels": int(channels),
        "width": int(width),
        "seed": int(seed),
    }


def _allocate(network: nn.Module) -> None:
    """Give a network its memory, unless that is more than any of this package's should take."""
    weights = sum(parameter.numel() for parameter in network.parameters())
    if weights > MAX_WEIGHTS:
        raise InputError(
            f"a {type(network).__name__}",
            f"of {weights:,} weights",
            f"must be a network that fits into memory, with at most {MAX_WEIGHTS:,}",
            "choose a smaller width",
        )
    network.to_empty(device="cpu")


def _layer(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _draw_cnn_weights(model: nn.Module, generator: torch.Generator) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class _BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut."""

    growth = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = _shortcut(inputs, planes, stride)

    def forward(self, features: Tensor) -> Tensor:
        inner = relu(self.bn1(self.conv1(features)), inplace=True)
        return relu(self.bn2(self.conv2(inner)) + self.downsample(features), inplace=True)


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut; the middle one has the stride."""

    growth = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = self.growth * planes
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, features: Tensor) -> Tensor:
        inner = relu(self.bn1(self.conv1(features)), inplace=True)
        inner = relu(self.bn2(self.conv2(inner)), inplace=True)
        return relu(self.bn3(self.conv3(inner)) + self.downsample(features), inplace=True)


_Block = type[_BasicBlock] | type[_Bottleneck]


class _ResNet(nn.Module):
    """A stem, four stages of blocks, global average pooling and a linear layer."""

    def __init__(
        self,
        block: _Block,
        depths: tuple[int, int, int, int],
        small: bool,
        num_classes: int,
        channels: int,
        width: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.arguments = _checked(num_classes, channels, width, seed)
        kernel, stride = (3, 1) if small else (7, 2)
        outputs = block.growth * width
        with torch.device("meta"):  # PyTorch's constructors would draw from global random state
            self.conv1 = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
            self.layer1 = _stage(block, depths[0], width, width, 1)
            self.layer2 = _stage(block, depths[1], outputs, 2 * width, 2)
            self.layer3 = _stage(block, depths[2], 2 * outputs, 4 * width, 2)
            self.layer4 = _stage(block, depths[3], 4 * outputs, 8 * width, 2)
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(8 * outputs, num_classes)
        _allocate(self)
        _draw_weights(self, torch.Generator().manual_seed(seed))

    def forward(self, images: Tensor) -> Tensor:
        features = self.maxpool(relu(self.bn1(self.conv1(images)), inplace=True))
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
        logits: Tensor = self.fc(self.avgpool(features).flatten(1))
        return logits


class ResNet18(_ResNet):
    """ResNet-18 for small images (MNIST, CIFAR-10): [n, channels, h, w] -> [n, num_classes].

    Its stem is a 3 x 3 convolution that keeps the size of the image. `width` is the number of
    features after the stem. It does not normalise its images. The weights are drawn from `seed`
    alone, so equal arguments give equal networks. `arguments` holds the arguments of the
    constructor.
    """

    def __init__(
        self, num_classes: int = 10, channels: int = 3, width: int = 64, seed: int = 0
    ) -> None:
        super().__init__(_BasicBlock, (2, 2, 2, 2), True, num_classes, channels, width, seed)


class ResNet50(_ResNet):
    """ResNet-50 for photographs (ImageNet): [n, channels, h, w] -> [n, num_classes].

    Its stem, a 7 x 7 convolution and max pooling, leaves a quarter of the size. For the rest see
    `ResNet18`. The ResNet-50 weights that torchvision and timm publish fit into it.
    """

    def __init__(
        self, num_classes: int = 1000, channels: int = 3, width: int = 64, seed: int = 0
    ) -> None:
        super().__init__(_Bottleneck, (3, 4, 6, 3), False, num_classes, channels, width, seed)


def _stage(block: _Block, depth: int, inputs: int, planes: int, stride: int) -> nn.Sequential:
    first = block(inputs, planes, stride)
    return nn.Sequential(
        first, *(block(block.growth * planes, planes, 1) for _ in range(depth - 1))
    )


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def _draw_weights(model: nn.Module, generator: torch.Generator) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(
                module.weight, mode="fan_out", nonlinearity="relu", generator=generator
            )
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01, generator=generator)
            nn.init.zeros_(module.bias)
    # Blocks begin as their shortcuts, so that large learning rates do no harm at first
    # (Goyal et al. 2017).
    for module in model.modules():
        if isinstance(module, _BasicBlock):
            nn.init.zeros_(module.bn2.weight)
        elif isinstance(module, _Bottleneck):
            nn.init.zeros_(module.bn3.weight)


class Library(Protocol):
    """A library of networks, such as the modules `models.timm` and `models.torchvision`."""

    def new_network(
        self, name: str, num_classes: int | None, channels: int = 3, seed: int = 0
    ) -> nn.Module: ...

    def read_weights(
        self, name: str, weights: Path | None, download: bool = True
    ) -> tuple[State, str]: ...

    def describe(self, name: str, network: nn.Module, weights: Path | None) -> NetworkSpec: ...


_MAX_CHANNELS = 64

LIBRARIES: dict[str, Library] = {"timm": timm, "torchvision": torchvision}

NETWORKS: dict[str, type[nn.Module]] = {
    "SmallCNN": SmallCNN,
    "ResNet18": ResNet18,
    "ResNet50": ResNet50,
}
"""The networks of this package. Each keeps the arguments of its constructor as `arguments`."""

OWN_NAMES = ("small_cnn", "resnet18", "resnet50")


def of_library(source: object) -> bool:
    """Return whether this names a network of another library.

    >>> of_library("timm:resnet18"), of_library("resnet18")
    (True, False)
    """
    return isinstance(source, str) and source.partition(":")[0] in LIBRARIES and ":" in source


def library_of(source: str) -> tuple[Library, str, Config]:
    """Return the library of `timm:NAME`, the NAME, and the library's version.

    Raises unless the library is installed.
    """
    library, _, name = source.partition(":")
    version = str(import_extra(library).__version__)
    return LIBRARIES[library], name, {library: version}


def load_library_network(
    source: str, weights: Path | None, download: bool = True
) -> ResolvedSource:
    """Return `timm:NAME` or `torchvision:NAME` with weights from a file, or published ones."""
    library, name, about = library_of(source)
    state, origin = library.read_weights(name, weights, download)
    network = sized_to(state, lambda classes: library.new_network(name, classes))
    fit_state(network, state, origin)
    if weights is not None:
        about["files"] = {weights.name: file_digest(weights)}
    return ResolvedSource(library.describe(name, network, weights), about, name=source)


def check_name(name: object) -> str:
    """Return the name if `build_network` knows it or a library may; raise otherwise."""
    if isinstance(name, str) and (name in NETWORKS or of_library(name)):
        return name
    forms = [*NETWORKS, *(f"{library}:NAME" for library in LIBRARIES)]
    raise InputError(
        "the network",
        repr(name),
        "must be one of " + ", ".join(forms),
        did_you_mean(name, NETWORKS, "a newer deformrs may know it"),
    )


def build_network(name: object, arguments: Config, seed: int | None = None) -> nn.Module:
    """Return the network of that name, untrained; equal arguments give equal weights.

    Networks of libraries take num_classes and channels. `seed` draws the weights; by default it
    is the one among the arguments, or 0 for a library.
    """
    network = check_name(name)
    if of_library(network):
        num_classes, channels = _library_arguments(network, arguments)
        library, short, _ = library_of(network)
        return library.new_network(short, num_classes, channels, seed or 0)
    try:
        return NETWORKS[network](**arguments if seed is None else arguments | {"seed": seed})
    except InputError:
        raise  # it names the argument
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        raise InputError(
            f"the arguments of {network}",
            repr(arguments),
            f"must be those of a network that fits into memory ({first_line(error)})",
            "correct them, or choose a smaller width",
        ) from None


def name_and_arguments(module: nn.Module) -> tuple[str, Config]:
    """Return the name and the arguments from which `build_network` makes such a network."""
    for name, kind in NETWORKS.items():
        if type(module) is kind:
            arguments: Config = module.arguments  # type: ignore[assignment]
            return name, arguments
    raise InputError(
        "the network",
        f"a {type(module).__name__}",
        "must be one of " + ", ".join(NETWORKS) + " to be saved as a run",
        "save its state dict, and load it with mymodel.py:build and weights",
    )


def parse_own(text: str) -> tuple[str, Config] | None:
    """Return the name in `NETWORKS` and the given width; None for any other text.

    >>> parse_own("ResNet-18:width=32")
    ('ResNet18', {'width': 32})
    >>> parse_own("timm:resnet18")
    """
    typed, _, rest = text.partition(":")
    name = {key.lower(): key for key in NETWORKS}.get(_simplified(typed))
    return None if name is None else (name, _width(typed, rest.strip()))


def nearest_own(text: str) -> str | None:
    """Return the network of this package that is spelt most like this, with its options."""
    typed, colon, rest = text.partition(":")
    names = {_simplified(name): name for name in OWN_NAMES}
    close = nearest(_simplified(typed), names)
    return None if close is None else names[close] + colon + rest


def _width(name: str, text: str) -> Config:
    """Return `width=32`, or `32` alone, as arguments."""
    if not text:
        return {}
    key, _, value = (part.strip() for part in text.rpartition("="))
    if key not in ("", "width"):
        raise InputError(f"a field of {name}", repr(text), "must be width", f"e.g. {name}:width=32")
    # Python refuses to read numbers of thousands of digits.
    width = int(value) if value.isdecimal() and len(value) < 20 else 0
    if width < 1:
        raise InputError(
            f"the width of {name}",
            repr(value),
            "must be an integer of at least 1",
            f"e.g. {name}:width=32",
        )
    return {"width": width}


def _library_arguments(name: str, arguments: Config) -> tuple[int, int]:
    if not isinstance(arguments, dict) or arguments.keys() != {"num_classes", "channels"}:
        raise InputError(
            f"the arguments of {name}",
            repr(arguments),
            "must be num_classes and channels",
            "save it again",
        )
    num_classes, channels = arguments["num_classes"], arguments["channels"]
    for key, value, most in (
        ("num_classes", num_classes, MAX_CLASSES),
        ("channels", channels, _MAX_CHANNELS),
    ):
        check_integer(f"{key} of {name}", value, least=1)
        if value > most:  # type: ignore[operator]
            raise InputError(f"{key} of {name}", value, f"must be at most {most:,}", "correct it")
    return num_classes, channels  # type: ignore[return-value]


def _simplified(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
