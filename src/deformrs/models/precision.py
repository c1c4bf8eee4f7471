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


def automatic_precision(built: BuiltModel, device: torch.device) -> Precision:
    """The device's own precision, where the network is seen to answer in it; float32 elsewhere.

    A network that makes float32 tensors of its own may not.
    """
    natural = natural_precision(device)
    if natural == "float32":
        return natural
    tried = copied(built)
    found = None if tried is None else first_answer(tried)
    if tried is None or found is None:
        return "float32"
    dtype: torch.dtype = getattr(torch, natural)
    tried.module.to(dtype)
    answered = answer(tried, found[0].to(device), dtype) is not None
    return natural if answered else "float32"


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
