"""The precision in which a network is executed, and random images to try a network with."""

from __future__ import annotations

import copy
import dataclasses
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from deformrs.errors import InputError, did_you_mean
from deformrs.models.types import Classifier, NetworkSpec

Precision = Literal["float32", "bfloat16", "float16"]
PrecisionChoice = Literal["auto", "float32", "bfloat16", "float16"]

_SIDES = (32, 28, 64, 96, 224, 16, 8)
"""Sizes of images to try, if the network does not state one: those of common datasets."""

_BATCH_TOLERANCE, _PRECISION_TOLERANCE = 1e-4, 0.1
"""Largest change of a logit with the batch, and with the precision, as fractions of the range of
all logits."""


def check_precision(precision: str) -> None:
    """Raise unless this is the name of a precision, or `auto`."""
    known = get_args(PrecisionChoice)
    if precision not in known:
        raise InputError(
            "precision",
            repr(precision),
            "must be one of " + ", ".join(known),
            did_you_mean(precision, known, "e.g. 'float32'"),
        )


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
    except Exception:  # a network may raise anything on images it is not for
        return None
    return logits if bool(logits.isfinite().all()) else None


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
