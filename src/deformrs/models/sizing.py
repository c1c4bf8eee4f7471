"""Networks for as many classes as their weights have, or for others."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from deformrs.models.weights import State, fit_state, shape_of, unwrapped


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


def fit_resized(
    network: nn.Module,
    state: State,
    origin: str,
    num_classes: int,
    build: Callable[[int], nn.Module],
) -> bool:
    """Load the weights; a head for other classes, or none, leaves the network's own as it is.

    `build(k)` is the same network for k classes: what depends on k is the head. Everything else
    must fit, as in `fit_state`. True if the head was loaded too.
    """
    own = network.state_dict()
    found = unwrapped(state, own)
    odd = {key for key in own if key not in found or shape_of(found[key]) != shape_of(own[key])}
    if odd:
        other = build(num_classes + 1).state_dict()
        head = {key: own[key] for key in own if shape_of(other.get(key)) != shape_of(own[key])}
        if odd & head.keys():
            found.update(head)
            fit_state(network, found, origin)
            return False
    fit_state(network, state, origin)
    return True
