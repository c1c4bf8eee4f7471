"""Does a network give one score for each class?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deformrs.errors import InputError, ModelError
from deformrs.models.optional_dependencies import first_line
from deformrs.models.types import Classifier, NetworkSpec

_SPREAD = {torch.float32: 1e-4, torch.float16: 0.03, torch.bfloat16: 0.03}
"""How far scores may move with the batch, as a part of their spread."""

_TF32 = 0.01
"""The same for float32 on a GPU, which may multiply with ten bits."""

_AGAIN = 1e-6
"""The same for the very same batch: nothing is rounded otherwise."""

_ROUNDINGS = 4
"""How many roundings of the largest score are allowed besides."""


@torch.inference_mode()
def check_fixed(
    model: Callable[[Tensor], Tensor], images: Tensor, batch_size: int | None = None
) -> None:
    """Raise ModelError unless an image's scores depend on that image alone.

    images: [n, c, h, w] in [0, 1], n >= 2. They, their negatives and paler copies are asked for
    together, together again, one by one, in another order and, if it is given, in batches of
    `batch_size`. Dropout, randomness or batch statistics inside a model change its answers, and
    no certificate would hold. Rounding is allowed for, in the precision of the model's weights.
    """
    if images.dim() != 4 or len(images) < 2:
        raise InputError(
            "images", tuple(images.shape), "must be [n, c, h, w] with n >= 2", "give two"
        )
    # Of other extremes and means, so that no two batches have the same.
    asked = torch.cat([images, 1 - images, 0.5 * images, 0.2 + 0.3 * images])
    together = ask(model, asked)
    if not together.isfinite().all():
        raise ModelError(
            "a score of the model",
            "NaN or infinite",
            "must be a number",
            "check the weights, the precision and the input range",
        )
    order = [*range(1, len(asked), 2), *range(0, len(asked), 2)]
    shuffled = torch.empty_like(together)
    shuffled[order] = ask(model, asked[order])
    answers = {
        "asked again": ask(model, asked),
        "asked one by one": torch.cat([ask(model, image[None]) for image in asked]),
        "asked in another order": shuffled,
    }
    if batch_size is not None and batch_size > len(asked):
        copies = -(-batch_size // len(asked))
        full = ask(model, asked.repeat(copies, 1, 1, 1)[:batch_size])
        answers["asked in a full batch"] = full[: len(asked)]
    allowed = _allowed(model, together, images.device)
    for name, scores in answers.items():
        moved = float((scores - together).abs().max())
        limit = allowed[0] if name == "asked again" else allowed[1]
        if not moved <= limit:
            raise ModelError(
                f"the change of a score, {name},",
                f"{moved:.3g}",
                f"must not exceed rounding ({limit:.3g} here): a certificate needs a fixed model",
                "switch off dropout, batch statistics and randomness (model.eval(), or export it "
                "in evaluation mode)",
            )


def ask(model: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The model's scores, in float64, or a ModelError that says what it did instead."""
    try:
        scores = model(images)
    except (ModelError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            "the model's answer",
            f"an error ({first_line(error)})",
            f"must be scores for images of shape {tuple(images.shape)} on {images.device}",
            "give it the channels and the size that it wants",
        ) from error
    if not isinstance(scores, Tensor) or scores.dim() != 2 or len(scores) != len(images):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ModelError(
            "the model's output", got, f"must be scores of shape ({len(images)}, K)", "wrap it"
        )
    return scores.double()


def _allowed(
    model: Callable[[Tensor], Tensor], scores: Tensor, device: torch.device
) -> tuple[float, float]:
    """What rounding may do to the same batch, and to a batch that is cut otherwise."""
    parts = model.parameters() if isinstance(model, nn.Module) else ()
    kinds = {part.dtype for part in parts} & _SPREAD.keys() or {torch.float32}
    spread = float(scores.max() - scores.min())
    largest = float(scores.abs().max())
    moves = [
        (_TF32 if kind == torch.float32 and device.type == "cuda" else _SPREAD[kind]) * spread
        + _ROUNDINGS * torch.finfo(kind).eps * largest
        for kind in kinds
    ]
    again = _AGAIN * spread + _ROUNDINGS * torch.finfo(torch.float32).eps * largest
    return again, max(moves)


def check_scores(spec: NetworkSpec, num_classes: int, images: Tensor) -> None:
    """Raise unless the network gives so many scores for these images, [n, c, h, w] in [0, 1].

    Its weights and its mode are left as they are.
    """
    modes = [(part, part.training) for part in spec.module.modules()]
    try:
        with torch.no_grad():
            scores = ask(Classifier(spec, torch.float32).eval().to(images.device), images)
    finally:
        for part, mode in modes:
            part.training = mode
    if scores.shape[1] != num_classes:
        raise InputError(
            "the number of scores of the network",
            scores.shape[1],
            f"must be {num_classes}, one for each class of the data",
            f"build it for {num_classes} classes",
        )
