"""Whether a model is a fixed function of one image: checked before it is sampled, and meanwhile."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType

import numpy as np
import torch
from torch import Tensor, nn

from deformrs.errors import InputError, ModelError
from deformrs.execution import scores_of
from deformrs.randomness import Span

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.03, torch.bfloat16: 0.03}
"""Largest change of a logit between batches, as a fraction of the range of all logits."""

_TF32_TOLERANCE = 0.01
"""For float32 on a GPU, which may multiply with ten bits of mantissa."""

_REPEAT_TOLERANCE = 1e-6
"""For the very same batch, which is rounded in the same way."""

_ROUNDINGS = 4
"""How many roundings of the largest logit are allowed in addition."""


def modules_in(model: object, depth: int = 4) -> Iterator[nn.Module]:
    """Yield the modules that a callable runs, as far as they can be found without calling it.

    It may be one, or a method of one; a partial, a closure or an object that holds one; a function
    that names a global one.
    """
    held: Sequence[object] = ()
    if isinstance(model, nn.Module):
        yield model
    elif isinstance(model, functools.partial):
        held = [model.func, *model.args, *model.keywords.values()]
    elif isinstance(model, MethodType):
        held = [model.__self__]
    elif isinstance(model, FunctionType):
        loads = [i.argval for i in dis.get_instructions(model) if i.opname == "LOAD_GLOBAL"]
        values = [model.__globals__.get(name) for name in loads]
        held = [value for value in values if isinstance(value, nn.Module)]
        for cell in model.__closure__ or ():
            try:
                held = [*held, cell.cell_contents]
            except ValueError:  # not assigned yet
                continue
    elif callable(model) and not isinstance(model, type):
        held = [*getattr(model, "__dict__", {}).values()]
    if depth:
        for value in held:
            yield from modules_in(value, depth - 1)


def check_evaluating(model: Callable[[Tensor], Tensor]) -> None:
    """Raise if a module that the model runs is in training mode."""
    if any(part.training for module in modules_in(model) for part in module.modules()):
        raise ModelError(
            "the model",
            "in training mode",
            "must be fixed: dropout and batch statistics would change it from sample to sample",
            "call model.eval()",
        )


@torch.inference_mode()
def check_fixed(
    model: Callable[[Tensor], Tensor], images: Tensor, batch_size: int | None = None
) -> None:
    """Raise ModelError unless an image's logits depend on that image alone.

    images: [n, c, h, w] in [0, 1], n >= 2. The images, their negatives and paler copies are
    classified together, together again, one by one, in another order and, if `batch_size` is
    given, in a batch of that size. Dropout, randomness or batch statistics inside a model change
    its logits, and no certificate would hold. Rounding is allowed for, in the precision of the
    model's weights and logits.
    """
    if images.dim() != 4 or len(images) < 2:
        raise InputError(
            "images", tuple(images.shape), "must be [n, c, h, w] with n >= 2", "pass two images"
        )
    # Copies of other extremes and means, so that no two batches have the same statistics.
    images = torch.cat([images, 1 - images, 0.5 * images, 0.2 + 0.3 * images])
    before, logits = images.clone(), scores_of(model, images)
    if not torch.equal(images, before):
        raise ModelError(
            "the model's input",
            "changed by the model",
            "must stay as it is: images would change from call to call",
            "begin with images = images.clone(), or leave out operations in place such as sub_",
        )
    reference = logits.double()
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
    repeated, batched = _tolerances(model, logits)
    for name, logits in batches.items():
        change = float((logits - reference).abs().max())
        limit = repeated if name == "on a repeated call" else batched
        if not change <= limit:
            raise ModelError(
                f"the change of a logit {name}",
                f"{change:.3g}",
                f"must not exceed rounding ({limit:.3g} here): a certificate needs a fixed model",
                "switch off dropout, batch statistics and randomness (model.eval(), or export it "
                "in evaluation mode); check_model=False if you know that it is only rounding",
            )


def _tolerances(model: Callable[[Tensor], Tensor], logits: Tensor) -> tuple[float, float]:
    """Return what rounding may change in the same batch, and in another batch."""
    parameters = [part.dtype for module in modules_in(model) for part in module.parameters()]
    dtypes = {logits.dtype, *parameters} & _TOLERANCE.keys() or {torch.float32}
    device, logits = logits.device, logits.double()
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


@dataclass(frozen=True)
class Difference:
    """Predictions that a model did not repeat."""

    index: int
    """The first image with another prediction."""
    changed: int
    total: int


@dataclass(frozen=True)
class ShownBatch:
    """Samples, the classes predicted for them, and what predicts them again (None: it cannot)."""

    spans: Sequence[Span]
    classes: Tensor
    predict: Callable[[], Tensor | None]

    def difference(self) -> Difference | None:
        """Show the samples again; return what has changed, None if nothing has."""
        classes = self.predict()
        if classes is None:
            return None
        changed = (classes != self.classes).nonzero().flatten().tolist()
        # Kernels of a GPU may choose another order of summation, which matters near ties.
        if len(changed) <= (len(classes) // 1000 if classes.is_cuda else 0):
            return None
        ends = np.cumsum([len(span) for span in self.spans])
        span = self.spans[int(np.searchsorted(ends, changed[0], side="right"))]
        return Difference(span.index, len(changed), len(classes))


class Replay:
    """Shows some batches of a run to the model again, whose predictions a fixed function repeats.

    It keeps the first batch, which a model that changes after a while repeats no longer, and a few
    others, chosen at random so that nothing can prepare for them.
    """

    KEPT = 4
    FIRST_LOOK = 64
    """Batches until the first replay; until each other, twice as many."""

    def __init__(self) -> None:
        self._kept: list[ShownBatch] = []
        self._seen, self._due = 0, self.FIRST_LOOK
        self._choice = np.random.default_rng()  # of the operating system's entropy

    def add(self, shown: Callable[[], ShownBatch]) -> None:
        """Note a batch that was shown. Each but the first is kept with the same probability."""
        self._seen += 1
        if self._seen <= self.KEPT:
            self._kept.append(shown())
            return
        place = int(self._choice.integers(1, self._seen))
        if place < self.KEPT:
            self._kept[place] = shown()

    def difference(self, *, end: bool = False) -> Difference | None:
        """Return what the model did not repeat, if batches are due, or at the `end` of a run.

        At the end of a short run only the first batch is shown again.
        """
        if not self._kept or (not end and self._seen < self._due):
            return None
        self._due = 2 * self._seen
        some = self._kept[: 1 + self._seen // (self.FIRST_LOOK // 2)]
        return next(filter(None, (batch.difference() for batch in some)), None)
