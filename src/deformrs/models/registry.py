"""Networks of this package as people type them: `small_cnn`, `resnet18:width=32`."""

from __future__ import annotations

import difflib
from pathlib import Path

from torch import nn

from deformrs.checks import check_integer
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.networks import ResNet18, ResNet50, SmallCNN
from deformrs.models.optional_dependencies import first_line, import_extra
from deformrs.models.timm import describe_timm, new_timm, published_timm
from deformrs.models.torchvision import describe_torchvision, new_torchvision, read_torchvision
from deformrs.models.types import NetworkSpec
from deformrs.models.weights import State, read_state

LIBRARIES = ("timm", "torchvision")


def of_library(source: object) -> bool:
    """Does this name a network of another library?

    >>> of_library("timm:resnet18"), of_library("resnet18")
    (True, False)
    """
    return isinstance(source, str) and source.partition(":")[0] in LIBRARIES and ":" in source


def library_version(source: str) -> Config:
    """The library and its version; an error unless it is installed."""
    library = source.partition(":")[0]
    return {library: str(import_extra(library, library).__version__)}


def new_library_network(source: str, num_classes: int, channels: int, seed: int) -> nn.Module:
    """The network without anyone's weights: they depend on these arguments alone."""
    library, _, name = source.partition(":")
    new = new_timm if library == "timm" else new_torchvision
    return new(name, num_classes, channels, seed)


def read_library_weights(source: str, weights: Path | None) -> tuple[State, str]:
    """Weights for the network, and where they come from; None stands for published ones."""
    library, _, name = source.partition(":")
    if library == "torchvision":
        return read_torchvision(name, weights)
    if weights is None:
        return published_timm(name), source
    return read_state(weights), str(weights)


def describe_library_network(source: str, network: nn.Module, weights: Path | None) -> NetworkSpec:
    """The network with what the library says of it and of these weights."""
    library, _, name = source.partition(":")
    if library == "timm":
        return describe_timm(name, network)
    return describe_torchvision(name, network, weights)


NETWORKS: dict[str, type[nn.Module]] = {
    "SmallCNN": SmallCNN,
    "ResNet18": ResNet18,
    "ResNet50": ResNet50,
}
"""Those of this package. Each keeps as `arguments`, plain values, what it was made with."""


def name_and_arguments(module: nn.Module) -> tuple[str, Config]:
    """What `build_network` makes a network like this one from, but for its weights."""
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


def check_name(name: object) -> str:
    """The name, if it is one that `build_network` knows or another library may."""
    if isinstance(name, str) and (name in NETWORKS or of_library(name)):
        return name
    forms = [*NETWORKS, *(f"{library}:NAME" for library in LIBRARIES)]
    near = difflib.get_close_matches(str(name), NETWORKS, n=1)
    raise InputError(
        "the network",
        repr(name),
        "must be one of " + ", ".join(forms),
        f"did you mean {near[0]!r}?" if near else "a newer deformrs may know it",
    )


def build_network(name: object, arguments: object) -> nn.Module:
    """The network of that name with those arguments.

    `timm:NAME` and `torchvision:NAME` take num_classes and channels.
    """
    network = check_name(name)
    if of_library(network):
        num_classes, channels = _whole(network, arguments)
        return new_library_network(network, num_classes, channels, seed=0)
    try:
        return NETWORKS[network](**arguments)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"the arguments of {name}",
            repr(arguments),
            f"must fit it ({first_line(error)})",
            "save it again",
        ) from None


def _whole(name: str, arguments: object) -> tuple[int, int]:
    wanted = {"num_classes", "channels"}
    if not isinstance(arguments, dict) or arguments.keys() != wanted:
        raise InputError(
            f"the arguments of {name}",
            repr(arguments),
            "must be num_classes and channels",
            "save it again",
        )
    for key in sorted(wanted):
        check_integer(f"{key} of {name}", arguments[key], least=1)
    return arguments["num_classes"], arguments["channels"]


OWN_NAMES = ("small_cnn", "resnet18", "resnet50")
_FIELDS = ("width",)  # the number of classes and the like come from elsewhere


def own_network(text: str) -> tuple[str, Config] | None:
    """The name in `NETWORKS` and the fields that were typed; None for what is none of them.

    >>> own_network("ResNet-18:width=32")
    ('ResNet18', {'width': 32})
    >>> own_network("timm:resnet18")
    """
    typed, _, rest = text.partition(":")
    name = {key.lower(): key for key in NETWORKS}.get(_plainly(typed))
    return None if name is None else (name, _fields(typed, rest))


def nearest_own(text: str) -> str | None:
    """The name that was probably meant."""
    typed, colon, rest = text.partition(":")
    names = {_plainly(name): name for name in OWN_NAMES}
    near = difflib.get_close_matches(_plainly(typed), names, n=1)
    return names[near[0]] + colon + rest if near else None


def build_own(name: str, arguments: Config) -> nn.Module:
    """The network with these arguments, or an error in their words."""
    try:
        return NETWORKS[name](**arguments)
    except InputError:
        raise  # it names the argument
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            f"{name} with {arguments}",
            f"too much ({first_line(error)})",
            "must fit into memory",
            "choose a smaller width",
        ) from None


def _fields(name: str, text: str) -> Config:
    """`width=32`, or `32` alone."""
    values: Config = {}
    for place, item in enumerate(part.strip() for part in text.split(",") if part.strip()):
        key, sign, value = (part.strip() for part in item.partition("="))
        if not sign and place < len(_FIELDS):
            key, value = _FIELDS[place], item
        if key not in _FIELDS or key in values:
            again = "is given twice" if key in values else "must be " + ", ".join(_FIELDS)
            raise InputError(f"a field of {name}", repr(item), again, f"e.g. {name}:width=32")
        # Python refuses to read numbers of thousands of digits.
        number = int(value) if value.isdecimal() and len(value) < 20 else 0
        if number < 1:
            raise InputError(
                f"the {key} of {name}",
                repr(value),
                "must be an integer of at least 1",
                f"e.g. {name}:{key}=32",
            )
        values[key] = number
    return values


def _plainly(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
