"""Faster execution of a network: lower precision, and batch norms folded into other layers.

Networks are tried with random images to see that their logits stay the same.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections import Counter
from typing import Literal

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils.fusion import fuse_conv_bn_weights

from deformrs.models.types import Classifier, NetworkSpec

Precision = Literal["float32", "bfloat16", "float16"]
PrecisionChoice = Literal["auto", "float32", "bfloat16", "float16"]

_SIDES = (32, 28, 64, 96, 224, 16, 8)
"""Sizes of images to try, if the network does not state one: those of common datasets."""

_MOST_PIXELS = 2**22
"""Of an image to try; a larger one is none of a usual network, and would take much memory."""

_BATCH_TOLERANCE, _PRECISION_TOLERANCE = 1e-4, 0.1
"""Largest change of a logit with the batch, and with the precision, as fractions of the range of
all logits."""


def automatic_precision(spec: NetworkSpec, device: torch.device) -> Precision:
    """Return the device's own precision if the network's logits hardly change in it, else float32.

    Some networks fail in it, as they create float32 tensors, and some have logits that lie too
    close together for its rounding.
    """
    natural = natural_precision(device)
    if natural == "float32":
        return natural
    trial = trial_copy(spec)
    probed = None if trial is None else probe(trial)
    if trial is None or probed is None:
        return "float32"
    images, logits = probed
    spread = float(logits.max() - logits.min())
    single = [logits_or_none(trial, image[None]) for image in images]
    # bfloat16 is too coarse to tell whether the logits depend on the batch: float32 shows it.
    for alone, together in zip(single, logits, strict=True):
        if alone is None or not _close(alone[0], together, _BATCH_TOLERANCE * spread):
            return "float32"
    dtype: torch.dtype = getattr(torch, natural)
    trial.module.to(dtype)
    rounded = logits_or_none(trial, images.to(device), dtype)
    if rounded is None or not _close(rounded.cpu(), logits, _PRECISION_TOLERANCE * spread):
        return "float32"
    return natural


def natural_precision(device: torch.device) -> Precision:
    """Return bfloat16 if the device computes in it natively, else float32."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = device.type == "cpu" and _cpu_has_bfloat16()
    return "bfloat16" if native else "float32"


def trial_copy(spec: NetworkSpec) -> NetworkSpec | None:
    """Return a copy of the network on the CPU, in float32 and in evaluation mode.

    None if it cannot be copied.
    """
    try:
        with torch.no_grad():  # else the copy of a scripted network would have a history
            network = copy.deepcopy(spec.module)
    except Exception:  # a network may hold anything
        return None
    network = network.cpu().float().eval()
    for value in network.parameters():
        value.requires_grad_(False)
    return dataclasses.replace(spec, module=network)


def probe(spec: NetworkSpec) -> tuple[Tensor, Tensor] | None:
    """Return the first random images that a float32 network accepts, with its logits for them."""
    for images in probe_images(spec):
        logits = logits_or_none(spec, images)
        if logits is not None:
            return images, logits
    return None


def probe_images(spec: NetworkSpec) -> list[Tensor]:
    """Return random images of several sizes, [2, c, h, w] in [0, 1] each, to try a network with.

    >>> from deformrs.data.preparation import Preparation
    >>> spec = NetworkSpec(nn.Flatten(), Preparation(crop=(8, 9), channels=1))
    >>> [images.shape for images in probe_images(spec)]
    [torch.Size([2, 1, 8, 9])]
    """
    size = spec.preparation.crop or spec.preparation.resize
    if isinstance(size, int):  # of the shorter side
        size = (size, size)
    sizes = [(side, side) for side in _SIDES] if size is None else [size]
    sizes = [(height, width) for height, width in sizes if height * width <= _MOST_PIXELS]
    generator = torch.Generator().manual_seed(0)
    channels = _channels(spec)
    return [torch.rand(2, channels, *size, generator=generator) for size in sizes]


def logits_or_none(
    spec: NetworkSpec, images: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor | None:
    """Return the logits of a network with weights of that type; None if it fails or some are NaN.

    Moves the network to the device of the images.
    """
    try:
        with torch.inference_mode():
            logits: Tensor = Classifier(spec, dtype).eval().to(images.device)(images)
    except (Exception, SystemExit):  # a network may raise anything on images it is not for
        return None
    return logits if logits.numel() and bool(logits.isfinite().all()) else None


def _close(logits: Tensor, reference: Tensor, tolerance: float) -> bool:
    return torch.allclose(logits.float(), reference, rtol=0, atol=tolerance)


def _channels(spec: NetworkSpec) -> int:
    if spec.preparation.channels is not None:
        return spec.preparation.channels
    if spec.mean is not None and len(spec.mean) > 1:
        return len(spec.mean)
    convolutions = (part for part in spec.module.modules() if isinstance(part, nn.Conv2d))
    first = next(convolutions, None)
    return 3 if first is None else first.in_channels


def _cpu_has_bfloat16() -> bool:
    # oneDNN alone also accepts AVX-512 without these instructions, and is slow then.
    instructions = (torch.cpu._is_avx512_bf16_supported, torch.cpu._is_amx_tile_supported)
    available = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled  # type: ignore[no-untyped-call]
    used = bool(available) and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return used and any(supported() for supported in instructions)


BatchNorms = Literal["folded", "partly folded", "kept"]
Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
Pair = tuple[Layer, _BatchNorm]

_NORM_AFTER: dict[type[nn.Module], type[_BatchNorm]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.Linear: nn.BatchNorm1d,
}

_FOLDING_TOLERANCE = 1e-4
"""Largest change of a logit by rounding in float32, as a fraction of the range of all logits."""

_TRUSTED_PACKAGES = ("deformrs", "timm", "torch", "torchvision")
"""Whose layers do the same for every image: torch.fx follows one path through a network, and may
miss a branch that depends on the image."""


def fold_batch_norm(spec: NetworkSpec) -> tuple[NetworkSpec, BatchNorms | None]:
    """Return the same function in evaluation mode with fewer layers, and the outcome.

    A batch norm that alone reads the output of a convolution or a linear layer is folded into that
    layer's weights, computed in float64. A network with layers of the user's own, or that torch.fx
    cannot trace, or whose logits for random images change by more than float32 rounds, is returned
    as it is: "kept". The outcome is None for a network without batch norms.

    Guarantee: the given network is not modified.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
    >>> folded, outcome = fold_batch_norm(NetworkSpec(net))
    >>> outcome, folded.module[1], net[1].num_features
    ('folded', Identity(), 4)
    """
    if not _has_norms(spec.module):
        return spec, None
    parts = spec.module.modules()
    trusted = all(type(part).__module__.partition(".")[0] in _TRUSTED_PACKAGES for part in parts)
    network = _folded(spec) if trusted else None
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
    allowed = _FOLDING_TOLERANCE * spread + 4 * torch.finfo(torch.float32).eps * largest
    return float((after - before).abs().max()) <= allowed
