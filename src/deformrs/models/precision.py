"""In which precision a network is executed: part of what is certified."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from deformrs.errors import InputError
from deformrs.models.types import Classifier, NetworkSpec

_SIDES = (32, 28, 64, 96, 224, 16, 8)
"""Of the data sets that networks are usually for. Most networks take images of any size."""


def copied(spec: NetworkSpec) -> NetworkSpec | None:
    """The same with a copy of its network, on the CPU, in float32 and in evaluation mode.

    None where it cannot be copied.
    """
    try:
        with torch.no_grad():  # the copy of a scripted network would have a history otherwise
            network = copy.deepcopy(spec.module)
    except Exception:  # any kind: a network may hold anything
        return None
    network = network.cpu().float().eval()
    for value in network.parameters():
        value.requires_grad_(False)
    return dataclasses.replace(spec, module=network)


def first_answer(spec: NetworkSpec) -> tuple[Tensor, Tensor] | None:
    """The first images that a network in float32 takes, and its scores for them."""
    answers = ((images, answer(spec, images)) for images in probes(spec))
    return next(((asked, scores) for asked, scores in answers if scores is not None), None)


def answer(spec: NetworkSpec, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Its scores, if it gives any and all of them are numbers. Moves it to where the images are.

    `dtype` is that of its weights.
    """
    try:
        with torch.inference_mode():
            classifier = Classifier(spec, dtype).eval().to(images.device)
            scores: Tensor = classifier(images)
    except Exception:  # it may fail in any way on images that are not for it
        return None
    return scores if bool(scores.isfinite().all()) else None


def probes(spec: NetworkSpec) -> list[Tensor]:
    """Images of noise, [2, c, h, w] in [0, 1] each: the network is likely to take one of them.

    >>> from deformrs.data.preparation import Preparation
    >>> [p.shape for p in probes(NetworkSpec(nn.Flatten(), Preparation(crop=(8, 9), channels=1)))]
    [torch.Size([2, 1, 8, 9])]
    """
    said = spec.preparation
    size = said.crop or said.resize
    if isinstance(size, int):  # of the shorter side
        size = (size, size)
    sizes = [(side, side) for side in _SIDES] if size is None else [size]
    generator = torch.Generator().manual_seed(0)
    channels = _channels(spec)
    return [torch.rand(2, channels, *size, generator=generator) for size in sizes]


def _channels(spec: NetworkSpec) -> int:
    if spec.preparation.channels is not None:
        return spec.preparation.channels
    if spec.mean is not None and len(spec.mean) > 1:
        return len(spec.mean)
    convolutions = (part for part in spec.module.modules() if isinstance(part, nn.Conv2d))
    first = next(convolutions, None)
    return 3 if first is None else first.in_channels


Precision = Literal["float32", "bfloat16", "float16"]
PrecisionAsked = Literal["auto", "float32", "bfloat16", "float16"]


def check_precision(precision: str) -> None:
    """Raise unless it is one that may be asked for."""
    known = get_args(PrecisionAsked)
    if precision not in known:
        near = difflib.get_close_matches(str(precision), known, n=1)
        raise InputError(
            "precision",
            repr(precision),
            "must be one of " + ", ".join(known),
            f"did you mean {near[0]!r}?" if near else "e.g. 'float32'",
        )


_BATCH, _ROUNDED = 1e-4, 0.1
"""How far scores for noise may move with the batch, and with the precision, as parts of their
spread."""


def automatic_precision(spec: NetworkSpec, device: torch.device) -> Precision:
    """The device's own precision, where the network is seen to answer alike in it, else float32.

    A network that makes float32 tensors of its own may not answer, and one with scores that lie
    close together for their size answers otherwise.
    """
    natural = natural_precision(device)
    if natural == "float32":
        return natural
    tried = copied(spec)
    found = None if tried is None else first_answer(tried)
    if tried is None or found is None:
        return "float32"
    images, scores = found
    spread = float(scores.max() - scores.min())
    apart = [answer(tried, image[None]) for image in images]
    if any(own is None for own in apart):
        return "float32"
    # One whose scores depend on the batch is for a stricter eye than that of bfloat16.
    alone = torch.cat([own for own in apart if own is not None])
    if not torch.allclose(alone, scores, rtol=0, atol=_BATCH * spread):
        return "float32"
    dtype: torch.dtype = getattr(torch, natural)
    tried.module.to(dtype)
    there = answer(tried, images.to(device), dtype)
    if there is None:
        return "float32"
    same = torch.allclose(there.cpu().float(), scores, rtol=0, atol=_ROUNDED * spread)
    return natural if same else "float32"


def natural_precision(device: torch.device) -> Precision:
    """bfloat16 where the device computes in it, float32 where it would only imitate it."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = device.type == "cpu" and _cpu_has_bfloat16()
    return "bfloat16" if native else "float32"


def _cpu_has_bfloat16() -> bool:
    # oneDNN alone also says yes to AVX-512 without these instructions, and is slow then.
    instructions = (torch.cpu._is_avx512_bf16_supported, torch.cpu._is_amx_tile_supported)
    there = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled  # type: ignore[no-untyped-call]
    used = bool(there) and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return used and any(has() for has in instructions)
