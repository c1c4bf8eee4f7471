"""Checks that a model is a fixed function of one image, with one logit per class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deformrs.errors import InputError, ModelError
from deformrs.execution import scores_of
from deformrs.models.types import Classifier, NetworkSpec

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.03, torch.bfloat16: 0.03}
"""Largest change of a logit between batches, as a fraction of the range of all logits."""

_TF32_TOLERANCE = 0.01
"""For float32 on a GPU, which may multiply with ten bits of mantissa."""

_REPEAT_TOLERANCE = 1e-6
"""For the very same batch, which is rounded in the same way."""

_ROUNDINGS = 4
"""How many roundings of the largest logit are allowed in addition."""


@torch.inference_mode()
def check_fixed(
    model: Callable[[Tensor], Tensor], images: Tensor, batch_size: int | None = None
) -> None:
    """Raise ModelError unless an image's logits depend on that image alone.

    images: [n, c, h, w] in [0, 1], n >= 2. The images, their negatives and paler copies are
    classified together, together again, one by one, in another order and, if `batch_size` is
    given, in a batch of that size. Dropout, randomness or batch statistics inside a model change
    its logits, and no certificate would hold. Rounding is allowed for, in the precision of the
    model's weights.
    """
    if images.dim() != 4 or len(images) < 2:
        raise InputError(
            "images", tuple(images.shape), "must be [n, c, h, w] with n >= 2", "pass two images"
        )
    # Copies of other extremes and means, so that no two batches have the same statistics.
    images = torch.cat([images, 1 - images, 0.5 * images, 0.2 + 0.3 * images])
    reference = scores_of(model, images).double()
    if not reference.isfinite().all():
        raise ModelError(
            "a logit of the model",
            "NaN or infinite",
            "must be a number",
            "check the weights, the precision and the input range",
        )
    order = [*range(1, len(images), 2), *range(0, len(images), 2)]
    reordered = torch.empty_like(reference)
    reordered[order] = scores_of(model, images[order]).double()
    batches = {
        "on a repeated call": scores_of(model, images),
        "one by one": torch.cat([scores_of(model, image[None]) for image in images]),
        "in another order of the batch": reordered,
    }
    if batch_size is not None and batch_size > len(images):
        copies = -(-batch_size // len(images))
        full = scores_of(model, images.repeat(copies, 1, 1, 1)[:batch_size])
        batches["in a full batch"] = full[: len(images)]
    repeated, batched = _tolerances(model, reference, images.device)
    for name, logits in batches.items():
        change = float((logits - reference).abs().max())
        limit = repeated if name == "on a repeated call" else batched
        if not change <= limit:
            raise ModelError(
                f"the change of a logit {name}",
                f"{change:.3g}",
                f"must not exceed rounding ({limit:.3g} here): a certificate needs a fixed model",
                "switch off dropout, batch statistics and randomness (model.eval(), or export it "
                "in evaluation mode)",
            )


def _tolerances(
    model: Callable[[Tensor], Tensor], logits: Tensor, device: torch.device
) -> tuple[float, float]:
    """Return what rounding may change in the same batch, and in another batch."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    dtypes = {part.dtype for part in parameters} & _TOLERANCE.keys() or {torch.float32}
    spread = float(logits.max() - logits.min())
    largest = float(logits.abs().max())
    batched = [
        (_TF32_TOLERANCE if dtype == torch.float32 and device.type == "cuda" else _TOLERANCE[dtype])
        * spread
        + _ROUNDINGS * torch.finfo(dtype).eps * largest
        for dtype in dtypes
    ]
    repeated = _REPEAT_TOLERANCE * spread + _ROUNDINGS * torch.finfo(torch.float32).eps * largest
    return repeated, max(batched)


def check_num_classes(spec: NetworkSpec, num_classes: int, images: Tensor) -> None:
    """Raise unless the network returns `num_classes` logits for images [n, c, h, w] in [0, 1].

    Its weights and its mode are left unchanged.
    """
    modes = [(part, part.training) for part in spec.module.modules()]
    try:
        with torch.no_grad():
            logits = scores_of(Classifier(spec, torch.float32).eval().to(images.device), images)
    finally:
        for part, mode in modes:
            part.training = mode
    if logits.shape[1] != num_classes:
        raise InputError(
            "the number of logits of the network",
            logits.shape[1],
            f"must be {num_classes}, one for each class of the data",
            f"build it for {num_classes} classes",
        )
