"""Batch norms that follow a convolution become a part of its weights: fewer passes over memory."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from typing import Literal

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils.fusion import fuse_conv_bn_weights

from deformrs.models.precision import answer, copied, first_answer
from deformrs.models.types import NetworkSpec

BatchNorms = Literal["folded", "partly folded", "kept"]
Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
Pair = tuple[Layer, _BatchNorm]

_FOLLOWED: dict[type[nn.Module], type[_BatchNorm]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.Linear: nn.BatchNorm1d,
}
_SPREAD = 1e-4
"""How far rounding may move a score in float32, as a part of the spread of scores."""


_KNOWN = ("deformrs", "timm", "torch", "torchvision")
"""Whose layers do the same for every image: torch.fx follows one way through a network, and a
branch that depends on the image can hide from it."""


def fold_known(spec: NetworkSpec) -> tuple[NetworkSpec, BatchNorms | None]:
    """`fold_batch_norm` for networks of libraries that are known; code of one's own is kept."""
    parts = spec.module.modules()
    if all(type(part).__module__.partition(".")[0] in _KNOWN for part in parts):
        return fold_batch_norm(spec)
    return spec, "kept" if _norms(spec.module) else None


def fold_batch_norm(spec: NetworkSpec) -> tuple[NetworkSpec, BatchNorms | None]:
    """The same function in evaluation mode with fewer layers, and what became of its batch norms.

    Each one that a convolution or a linear layer feeds, and nothing else does, is folded into that
    layer's weights, computed in float64. A network whose calls cannot be followed by torch.fx, or
    whose scores for noise then change by more than float32 rounds, is returned as it is: "kept".
    None is for a network without batch norms; what a scripted one holds is not looked at.

    Guarantee: the network that was given stays as it is.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
    >>> folded, word = fold_batch_norm(NetworkSpec(net))
    >>> word, folded.module[1], net[1].num_features
    ('folded', Identity(), 4)
    """
    if not _norms(spec.module):
        return spec, None
    network = _folded(spec)
    if network is None:
        return spec, "kept"
    word: BatchNorms = "partly folded" if _norms(network) else "folded"
    return dataclasses.replace(spec, module=network), word


def _norms(network: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm | torch.jit.ScriptModule) for part in network.modules())


def _folded(spec: NetworkSpec) -> nn.Module | None:
    """A folded copy that is seen to give the same scores, if it can be had."""
    state = (*spec.module.parameters(), *spec.module.buffers())
    lazy = any(is_lazy(value) for value in state)  # a look at an image would give it weights
    tried = None if lazy else copied(spec)
    if tried is None:
        return None
    network = tried.module
    pairs = _pairs(network)
    found = first_answer(tried) if pairs else None
    if found is None:
        return None
    images, before = found
    for layer, norm in pairs:
        _absorb(layer, norm)
    rest = {norm: _rest(norm) for _, norm in pairs}
    for part in list(network.modules()):
        for name, child in list(part._modules.items()):  # one may stand in several places
            if isinstance(child, _BatchNorm) and child in rest:
                setattr(part, name, rest[child])
    after = answer(tried, images)
    return network if after is not None and _agree(before, after) else None


class _Tracer(fx.Tracer):
    """Follows calls down to the single layers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        single = isinstance(m, _BatchNorm) or not list(m.children())
        return single or super().is_leaf_module(m, module_qualified_name)


def _pairs(network: nn.Module) -> list[Pair]:
    """Layers and the batch norms that alone read what they give, each called once.

    None are found in a network that asks for more than symbols can tell.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of symbols in the place of numbers
            graph = _Tracer().trace(network)
    except Exception:  # any kind: the network's own code runs
        return []
    found: list[Pair] = []
    parts = dict(network.named_modules())
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    # Whose weights are read in another way must keep them.
    read = {str(n.target).rpartition(".")[0] for n in graph.nodes if n.op == "get_attr"}
    for node in graph.nodes:
        source = node.args[0] if node.op == "call_module" and len(node.args) == 1 else None
        if not isinstance(source, fx.Node) or source.op != "call_module" or node.kwargs:
            continue
        names = {str(source.target), str(node.target)}
        alone = len(source.users) == 1 and all(calls[name] == 1 for name in names)
        layer, norm = parts[str(source.target)], parts[str(node.target)]
        if alone and names.isdisjoint(read) and _fit(layer, norm):
            found.append((layer, norm))
    return found


def _fit(layer: nn.Module, norm: nn.Module) -> bool:
    """May they become one? Only types whose arithmetic is known; a subclass may do anything."""
    wanted = _FOLLOWED.get(type(layer))
    kind = nn.BatchNorm2d if _acts(norm) else type(norm)
    if wanted is None or kind is not wanted:
        return False
    outputs = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    own = layer._forward_hooks, layer._forward_pre_hooks, norm._forward_hooks
    watched = any((*own, norm._forward_pre_hooks)) or "forward" in {*vars(layer), *vars(norm)}
    fixed = not norm.training and norm.running_mean is not None and norm.running_var is not None
    return bool(fixed and not watched and norm.num_features == outputs)


def _acts(norm: nn.Module) -> bool:
    """Is it timm's batch norm with an activation after it?"""
    kind = type(norm)
    return kind.__name__ == "BatchNormAct2d" and kind.__module__.startswith("timm.layers.")


def _rest(norm: nn.Module) -> nn.Module:
    """What is left to do after the layer that took a batch norm in."""
    return nn.Sequential(*norm.children()) if _acts(norm) else nn.Identity()


def _absorb(layer: Layer, norm: _BatchNorm) -> None:
    held = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, var, scale, shift = (None if value is None else value.double() for value in held)
    assert mean is not None, "it has statistics, or it was not chosen"
    assert var is not None, "likewise"
    bias = None if layer.bias is None else layer.bias.double()
    weights = fuse_conv_bn_weights(layer.weight.double(), bias, mean, var, norm.eps, scale, shift)
    layer.weight, layer.bias = (
        nn.Parameter(value.detach().float(), requires_grad=False) for value in weights
    )


def _agree(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape:
        return False
    spread, largest = float(before.max() - before.min()), float(before.abs().max())
    allowed = _SPREAD * spread + 4 * torch.finfo(torch.float32).eps * largest
    return float((after - before).abs().max()) <= allowed
