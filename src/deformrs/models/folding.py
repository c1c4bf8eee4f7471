"""Folding of batch norms into the weights of the layers before them, which saves time."""

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

from deformrs.models.precision import logits_or_none, probe, trial_copy
from deformrs.models.types import NetworkSpec

BatchNorms = Literal["folded", "partly folded", "kept"]
Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
Pair = tuple[Layer, _BatchNorm]

_NORM_AFTER: dict[type[nn.Module], type[_BatchNorm]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.Linear: nn.BatchNorm1d,
}

_TOLERANCE = 1e-4
"""Largest change of a logit by rounding in float32, as a fraction of the range of all logits."""

_TRUSTED_PACKAGES = ("deformrs", "timm", "torch", "torchvision")
"""Whose layers do the same for every image: torch.fx follows one path through a network, and may
miss a branch that depends on the image."""


def fold_known(spec: NetworkSpec) -> tuple[NetworkSpec, BatchNorms | None]:
    """Fold the batch norms of a network whose layers all come from known libraries.

    See `fold_batch_norm`. A network with layers of the user's own is returned as it is.
    """
    parts = spec.module.modules()
    if all(type(part).__module__.partition(".")[0] in _TRUSTED_PACKAGES for part in parts):
        return fold_batch_norm(spec)
    return spec, "kept" if _has_norms(spec.module) else None


def fold_batch_norm(spec: NetworkSpec) -> tuple[NetworkSpec, BatchNorms | None]:
    """Return the same function in evaluation mode with fewer layers, and the outcome.

    A batch norm that alone reads the output of a convolution or a linear layer is folded into that
    layer's weights, computed in float64. A network that torch.fx cannot trace, or whose logits for
    random images change by more than float32 rounds, is returned as it is: "kept". The outcome is
    None for a network without batch norms.

    Guarantee: the given network is not modified.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
    >>> folded, outcome = fold_batch_norm(NetworkSpec(net))
    >>> outcome, folded.module[1], net[1].num_features
    ('folded', Identity(), 4)
    """
    if not _has_norms(spec.module):
        return spec, None
    network = _folded(spec)
    if network is None:
        return spec, "kept"
    outcome: BatchNorms = "partly folded" if _has_norms(network) else "folded"
    return dataclasses.replace(spec, module=network), outcome


def _has_norms(network: nn.Module) -> bool:
    """Return whether there are batch norms; a scripted module may hide some."""
    return any(isinstance(part, _BatchNorm | torch.jit.ScriptModule) for part in network.modules())


def _folded(spec: NetworkSpec) -> nn.Module | None:
    """Return a folded copy that was seen to give the same logits; None if there is none."""
    state = (*spec.module.parameters(), *spec.module.buffers())
    lazy = any(is_lazy(value) for value in state)  # probing would initialise them
    trial = None if lazy else trial_copy(spec)
    if trial is None:
        return None
    network = trial.module
    pairs = _pairs(network)
    probed = probe(trial) if pairs else None
    if probed is None:
        return None
    images, before = probed
    for layer, norm in pairs:
        _absorb(layer, norm)
    rest = {norm: _rest(norm) for _, norm in pairs}
    for part in list(network.modules()):
        for name, child in list(part._modules.items()):  # one may have several parents
            if isinstance(child, _BatchNorm) and child in rest:
                setattr(part, name, rest[child])
    after = logits_or_none(trial, images)
    return network if after is not None and _agree(before, after) else None


class _Tracer(fx.Tracer):
    """Traces calls down to the single layers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        single = isinstance(m, _BatchNorm) or not list(m.children())
        return single or super().is_leaf_module(m, module_qualified_name)


def _pairs(network: nn.Module) -> list[Pair]:
    """Return layers with the batch norms that alone read their output, each called once.

    Returns none if the network cannot be traced.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about symbols in place of numbers
            graph = _Tracer().trace(network)
    except Exception:  # the network's own code runs, and may raise anything
        return []
    pairs: list[Pair] = []
    parts = dict(network.named_modules())
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    # A layer whose weights are read in another way must keep them.
    read = {str(n.target).rpartition(".")[0] for n in graph.nodes if n.op == "get_attr"}
    for node in graph.nodes:
        source = node.args[0] if node.op == "call_module" and len(node.args) == 1 else None
        if not isinstance(source, fx.Node) or source.op != "call_module" or node.kwargs:
            continue
        names = {str(source.target), str(node.target)}
        alone = len(source.users) == 1 and all(calls[name] == 1 for name in names)
        layer, norm = parts[str(source.target)], parts[str(node.target)]
        if alone and names.isdisjoint(read) and _can_fold(layer, norm):
            pairs.append((layer, norm))
    return pairs


def _can_fold(layer: nn.Module, norm: nn.Module) -> bool:
    """Return whether they are of types whose arithmetic is known; a subclass may do anything."""
    required = _NORM_AFTER.get(type(layer))
    kind = nn.BatchNorm2d if _has_activation(norm) else type(norm)
    if required is None or kind is not required:
        return False
    outputs = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    hooks = layer._forward_hooks, layer._forward_pre_hooks, norm._forward_hooks
    hooked = any((*hooks, norm._forward_pre_hooks)) or "forward" in {*vars(layer), *vars(norm)}
    fixed = not norm.training and norm.running_mean is not None and norm.running_var is not None
    return bool(fixed and not hooked and norm.num_features == outputs)


def _has_activation(norm: nn.Module) -> bool:
    """Return whether this is timm's batch norm that includes an activation."""
    kind = type(norm)
    return kind.__name__ == "BatchNormAct2d" and kind.__module__.startswith("timm.layers.")


def _rest(norm: nn.Module) -> nn.Module:
    """Return what replaces a folded batch norm."""
    return nn.Sequential(*norm.children()) if _has_activation(norm) else nn.Identity()


def _absorb(layer: Layer, norm: _BatchNorm) -> None:
    """Fold the batch norm into the layer's weights."""
    values = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, var, scale, shift = (None if value is None else value.double() for value in values)
    assert mean is not None, "_can_fold requires running statistics"
    assert var is not None, "_can_fold requires running statistics"
    bias = None if layer.bias is None else layer.bias.double()
    weights = fuse_conv_bn_weights(layer.weight.double(), bias, mean, var, norm.eps, scale, shift)
    layer.weight, layer.bias = (
        nn.Parameter(value.detach().float(), requires_grad=False) for value in weights
    )


def _agree(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape:
        return False
    spread, largest = float(before.max() - before.min()), float(before.abs().max())
    allowed = _TOLERANCE * spread + 4 * torch.finfo(torch.float32).eps * largest
    return float((after - before).abs().max()) <= allowed
