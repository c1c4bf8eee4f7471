"""Networks by the names that folders know them by."""

from __future__ import annotations

import difflib

from torch import nn

from deformrs.checks import check_whole
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.extras import first_line
from deformrs.models.libraries import LIBRARIES, new_library_network, of_library
from deformrs.models.resnet import ResNet18, ResNet50
from deformrs.models.small_cnn import SmallCNN

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
        check_whole(f"{key} of {name}", arguments[key], least=1)
    return arguments["num_classes"], arguments["channels"]
