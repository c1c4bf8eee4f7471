"""In which precision a network is executed: part of what is certified."""

from __future__ import annotations

import difflib
from typing import Literal, get_args

import torch

from deformrs.errors import InputError
from deformrs.models.parts import BuiltModel
from deformrs.models.probing import answer, copied, first_answer

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


def automatic_precision(built: BuiltModel, device: torch.device) -> Precision:
    """The device's own precision, where the network is seen to answer alike in it, else float32.

    A network that makes float32 tensors of its own may not answer, and one with scores that lie
    close together for their size answers otherwise.
    """
    natural = natural_precision(device)
    if natural == "float32":
        return natural
    tried = copied(built)
    found = None if tried is None else first_answer(tried)
    if tried is None or found is None:
        return "float32"
    pictures, scores = found
    spread = float(scores.max() - scores.min())
    apart = [answer(tried, picture[None]) for picture in pictures]
    if any(own is None for own in apart):
        return "float32"
    # One whose scores depend on the batch is for a stricter eye than that of bfloat16.
    alone = torch.cat([own for own in apart if own is not None])
    if not torch.allclose(alone, scores, rtol=0, atol=_BATCH * spread):
        return "float32"
    dtype: torch.dtype = getattr(torch, natural)
    tried.module.to(dtype)
    there = answer(tried, pictures.to(device), dtype)
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
