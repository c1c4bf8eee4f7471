"""Is a model a fixed function of one picture?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deformrs.errors import InputError, ModelError
from deformrs.models.extras import first_line

_SPREAD = {torch.float32: 0.01, torch.float16: 0.03, torch.bfloat16: 0.03}
"""How far scores may move, as a part of their spread. TF32 is called float32 too."""

_ROUNDINGS = 4
"""How many roundings of the largest score are allowed besides."""


@torch.inference_mode()
def check_fixed(model: Callable[[Tensor], Tensor], pictures: Tensor) -> None:
    """Raise ModelError unless a picture's scores depend on that picture alone.

    pictures: [n, c, h, w] in [0, 1], n >= 2. They and their negatives are asked for together,
    in two halves, and together again. Dropout, randomness or batch statistics inside a model
    change its answers, and no certificate would hold. Rounding is allowed for, in the precision
    of the model's weights.
    """
    if pictures.dim() != 4 or len(pictures) < 2:
        raise InputError(
            "pictures", tuple(pictures.shape), "must be [n, c, h, w] with n >= 2", "give two"
        )
    # The negatives make the halves differ even where all pictures are alike.
    halves = pictures, 1 - pictures
    together = _scores(model, torch.cat(halves))
    apart = torch.cat([_scores(model, half) for half in halves])
    again = _scores(model, torch.cat(halves))
    if not together.isfinite().all():
        raise ModelError(
            "a score of the model",
            "NaN or infinite",
            "must be a number",
            "check the weights, the precision and the input range",
        )
    allowed = _allowed(model, together)
    for name, scores in (("asked again", again), ("asked in two halves", apart)):
        moved = float((scores - together).abs().max())
        if not moved <= allowed:
            raise ModelError(
                f"the change of a score, {name},",
                f"{moved:.3g}",
                f"must not exceed rounding ({allowed:.3g} here): a certificate needs a fixed model",
                "switch off dropout, batch statistics and randomness (model.eval(), or export it "
                "in evaluation mode)",
            )


def _scores(model: Callable[[Tensor], Tensor], pictures: Tensor) -> Tensor:
    try:
        scores = model(pictures)
    except (ModelError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            "the model's answer",
            f"an error ({first_line(error)})",
            f"must be scores for pictures of shape {tuple(pictures.shape)} on {pictures.device}",
            "give it the channels and the size that it wants",
        ) from error
    if not isinstance(scores, Tensor) or scores.dim() != 2 or len(scores) != len(pictures):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ModelError(
            "the model's output", got, f"must be scores of shape ({len(pictures)}, K)", "wrap it"
        )
    return scores.double()


def _allowed(model: Callable[[Tensor], Tensor], scores: Tensor) -> float:
    parts = model.parameters() if isinstance(model, nn.Module) else ()
    kinds = {part.dtype for part in parts} & _SPREAD.keys() or {torch.float32}
    spread = float(scores.max() - scores.min())
    largest = float(scores.abs().max())
    return max(
        _SPREAD[kind] * spread + _ROUNDINGS * torch.finfo(kind).eps * largest for kind in kinds
    )
