"""The number of classes of a checkpoint, for networks that are built before it is read."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from deformrs.models.weights import State


def sized_to(state: State, build: Callable[[int | None], nn.Module]) -> nn.Module:
    """The network with as many classes as the weights have; `build(None)` has its usual number.

    A network's last tensor is the bias or the weight of its head, one row a class.
    """
    network = build(None)
    name, usual = list(network.state_dict().items())[-1]
    here = state.get(name, usual)
    if here.dim() == 0 or here.shape[:1] == usual.shape[:1]:
        return network
    return build(len(here))
