"""The networks of this package, by name."""

from __future__ import annotations

import difflib

from torch import nn

from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.small_cnn import SmallCNN

NETWORKS: dict[str, type[nn.Module]] = {"SmallCNN": SmallCNN}
"""Each keeps the arguments it was made with, plain values, as `arguments`."""


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


def build_network(name: object, arguments: object) -> nn.Module:
    """The network of that name with those arguments."""
    if not isinstance(name, str) or name not in NETWORKS:
        near = difflib.get_close_matches(str(name), NETWORKS, n=1)
        raise InputError(
            "the network",
            repr(name),
            "must be one of " + ", ".join(NETWORKS),
            f"did you mean {near[0]!r}?" if near else "a newer deformrs may know it",
        )
    try:
        return NETWORKS[name](**arguments)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"the arguments of {name}", repr(arguments), f"must fit it ({error})", "save it again"
        ) from None
