"""Networks by name: `small_cnn`, `resnet18:width=32`, `timm:resnet34`, `torchvision:resnet50`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import nn

from deformrs.checks import check_integer
from deformrs.config import Config
from deformrs.errors import InputError, did_you_mean, first_line, nearest
from deformrs.models import timm, torchvision
from deformrs.models.networks import ResNet18, ResNet50, SmallCNN
from deformrs.models.optional_dependencies import import_extra
from deformrs.models.types import NetworkSpec, ResolvedSource
from deformrs.models.weights import State, fit_state, sized_to
from deformrs.runs.files import file_digest


class Library(Protocol):
    """A library of networks, such as the modules `models.timm` and `models.torchvision`."""

    def new_network(
        self, name: str, num_classes: int | None, channels: int = 3, seed: int = 0
    ) -> nn.Module: ...

    def read_weights(self, name: str, weights: Path | None) -> tuple[State, str]: ...

    def describe(self, name: str, network: nn.Module, weights: Path | None) -> NetworkSpec: ...


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
    version = str(import_extra(library, library).__version__)
    return LIBRARIES[library], name, {library: version}


def load_library_network(source: str, weights: Path | None) -> ResolvedSource:
    """Return `timm:NAME` or `torchvision:NAME` with weights from a file, or published ones."""
    library, name, about = library_of(source)
    state, origin = library.read_weights(name, weights)
    network = sized_to(state, lambda classes: library.new_network(name, classes))
    fit_state(network, state, origin)
    if weights is not None:
        about["files"] = {weights.name: file_digest(weights)}
    return ResolvedSource(library.describe(name, network, weights), about)


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
    name = {key.lower(): key for key in NETWORKS}.get(_folded(typed))
    return None if name is None else (name, _width(typed, rest.strip()))


def nearest_own(text: str) -> str | None:
    """Return the network of this package that is spelt most like this, with its options."""
    typed, colon, rest = text.partition(":")
    names = {_folded(name): name for name in OWN_NAMES}
    close = nearest(_folded(typed), names)
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
    check_integer(f"num_classes of {name}", num_classes, least=1)
    check_integer(f"channels of {name}", channels, least=1)
    return num_classes, channels  # type: ignore[return-value]


def _folded(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
