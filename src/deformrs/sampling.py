"""The one way from images to counts: draw, deform, ask the model, count. All on the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.deformations import Deformation
from deformrs.errors import (
    DeformRSError,
    InputError,
    ModelError,
    NoMemoryError,
    ScarcityWarning,
)
from deformrs.execution import Compiled, check_compiled, compiled, no_memory, scores_of
from deformrs.geometry import Padding, size_of, warp
from deformrs.noise import NoiseLaw
from deformrs.randomness import Draws, Span, in_batches

Watch = Callable[[int], None]
"""Called after every batch with the number of samples in it."""

Execution = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""From raw draws, images and perhaps a shift to scores."""

Part = TypeVar("Part")
Done = TypeVar("Done")


class Sampler:
    """Counts what `model` answers to deformed images.

    How samples are cut into batches never changes which noise is drawn, nor does compilation.
    Batches that do not fit the memory are halved, and a model that cannot be compiled is run as
    it is; both say so by a `ScarcityWarning`.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        deformation: Deformation,
        noise: NoiseLaw,
        num_classes: int,
        *,
        padding: Padding,
        batch_size: int,
        how: Compiled = "no",
    ) -> None:
        check_compiled(how)
        self.model, self.deformation, self.noise = model, deformation, noise
        self.num_classes, self.padding = num_classes, padding
        self.batch_size, self.compiled = batch_size, how
        self._fitting = batch_size
        self._executed: dict[bool, Execution] = {}
        """Compiled for a single image that all samples share, and for several."""
        self._compiled_for: torch.Size | None = None

    @torch.inference_mode()
    def count(
        self,
        images: Tensor,
        spans: Iterable[Span],
        rows: int,
        *,
        seed: int,
        draws: Draws | None = None,
        shift: Tensor | None = None,
        watch: Watch | None = None,
    ) -> NDArray[np.int64]:
        """How often each class is answered, for each row that the spans name: [rows, K].

        images: [k, c, h, w]; shift: [1, d], added to all params; draws: those of the same seed,
        if some were kept for this. The counts stay on the device until the end, and memory does not
        grow with the number of samples.
        """
        device = images.device
        # One row more takes what fills up batches.
        counts = torch.zeros((rows + 1) * self.num_classes, dtype=torch.int64, device=device)
        undefined = torch.zeros((), dtype=torch.bool, device=device)
        for best, answers, own in self._answered(images, spans, rows, seed, draws, shift, watch):
            undefined |= ~best.isfinite().all()  # the largest of a row with NaN is NaN
            counts.scatter_add_(0, own * self.num_classes + answers, torch.ones_like(answers))
        # The one look at the results: asking after every batch would make the device wait.
        if undefined:
            raise ModelError(
                "a score of the model",
                "NaN or infinite",
                "must be a number",
                "check the weights, the precision and the input range",
            )
        found: NDArray[np.int64] = counts.view(rows + 1, self.num_classes)[:rows].cpu().numpy()
        return found

    def draws(self, images: Tensor, seed: int, room: int = 0) -> Draws:
        """The noise for such images, to be given to several counts."""
        space = self.deformation.space(size_of(images))
        return Draws(self.noise, space, images.device, seed=seed, room=room)

    @torch.inference_mode()
    def answers(self, images: Tensor, spans: Iterable[Span], *, seed: int) -> Tensor:
        """What is answered to every sample of the spans, whose row is 0, in their order: [n]."""
        found = self._answered(images, spans, 1, seed)
        return torch.cat([answers[own == 0] for _, answers, own in found])

    @torch.inference_mode()
    def warm_up(self, images: Tensor) -> None:
        """Compile for such images, if that was asked for and is not done: [k, c, h, w].

        Of several images each sample has a copy of its own: that is another program than the
        one for a single image. Afterwards `compiled` says how it really runs.
        """
        if self.compiled == "no":
            return
        shape, single = self._compiled_for, len(images) == 1
        if shape is not None and shape != images.shape[1:]:
            raise InputError(
                "the image",
                f"of shape {tuple(images.shape[1:])}",
                f"must have the shape compiled for, {tuple(shape)}",
                "resize and crop all images to one size, or do not compile",
            )
        if single in self._executed:
            return
        space = self.deformation.space(size_of(images))
        while True:
            size = self._fitting
            places = torch.zeros(size, dtype=torch.int64, device=images.device)
            some = _of_each(images, places)
            raw = self.noise.raw(size, space, torch.Generator(images.device))
            try:
                execution = compiled(self._executing, self.compiled)
                execution(raw, some, None)
            except DeformRSError:
                raise
            except (RuntimeError, OSError, TypeError, ValueError) as error:
                if _is_scarcity(error):
                    if size == 1:
                        raise no_memory(images[:1]) from error
                else:
                    # What fails uncompiled too is raised here, and is no fault of the compiler.
                    scores_of(self.model, self._moved(raw[:1], some[:1], None))
                    _say(f"the model cannot be compiled here ({_reason(error)}): it runs as it is")
                    self.compiled, self._executed = "no", {}
                    return
            else:
                self._executed[single] = execution
                self._compiled_for = images.shape[1:]
                return
            self._shrink(size, images)

    def _answered(
        self,
        images: Tensor,
        spans: Iterable[Span],
        rows: int,
        seed: int,
        draws: Draws | None = None,
        shift: Tensor | None = None,
        watch: Watch | None = None,
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The largest score of every sample, the class that has it, and the row it belongs to."""
        self.warm_up(images)
        draws = self.draws(images, seed) if draws is None else draws

        def answered(batch: tuple[Span, ...]) -> tuple[Tensor, Tensor, Tensor]:
            scores, own = self._scores(batch, draws, images, rows, shift)
            best, answers = scores.max(dim=1)
            return best, answers, own

        for batch in in_batches(spans, self._fitting):
            yield from self._fitted(batch, _samples_of, in_batches, answered, images)
            if watch is not None:
                watch(_samples_of(batch))

    @torch.inference_mode()
    def plain(self, images: Tensor) -> list[int]:
        """What the model answers to images as they are: [k, c, h, w]. No noise is drawn."""

        def answered(part: Tensor) -> list[int]:
            answers: list[int] = scores_of(self.model, part).argmax(dim=1).tolist()
            return answers

        found = self._fitted(images, len, Tensor.split, answered, images)
        return [answer for part in found for answer in part]

    def _fitted(
        self,
        whole: Part,
        length: Callable[[Part], int],
        cut: Callable[[Part, int], Iterable[Part]],
        work: Callable[[Part], Done],
        images: Tensor,
    ) -> Iterator[Done]:
        """`work` of all parts of the whole, which are cut until they fit the memory."""
        waiting = [whole]
        while waiting:
            part = waiting.pop(0)
            size = length(part)
            if size > self._fitting:
                waiting[:0] = cut(part, self._fitting)
                continue
            try:
                done = work(part)
            except RuntimeError as error:
                if not _is_scarcity(error):
                    raise
                # Compiled, a part was filled up.
                size = self._fitting if self._executed else size
                if size == 1:
                    raise no_memory(images[:1]) from error
                waiting.insert(0, part)
            else:
                yield done
                continue
            # Out of the handler, whose traceback holds on to what did not fit.
            self._shrink(size, images)

    def _shrink(self, size: int, images: Tensor) -> None:
        self._fitting = size // 2
        _say(
            f"{size} images of {' x '.join(map(str, images.shape[1:]))} do not fit the memory "
            f"of the device: it goes on with batches of {self._fitting}"
        )
        if images.is_cuda:
            torch.cuda.empty_cache()

    def _scores(
        self,
        batch: tuple[Span, ...],
        draws: Draws,
        images: Tensor,
        rows: int,
        shift: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Scores of a batch, and the row that each belongs to."""
        execution = self._executed.get(len(images) == 1)
        raw = draws.of(batch)
        size = len(raw)
        if execution is not None:  # compiled for one shape: filled up to it
            filling = raw[-1:].expand(self._fitting - size, -1)
            raw, size = torch.cat([raw, filling]), self._fitting
        places, own = _where(batch, size, rows, images.device)
        of_each = _of_each(images, places)
        if execution is None:
            scores = scores_of(self.model, self._moved(raw, of_each, shift))
        else:
            scores = scores_of(lambda some: execution(raw, some, shift), of_each)
        if scores.shape[1] != self.num_classes:
            raise ModelError(
                "the model's output",
                f"of shape {tuple(scores.shape)}",
                f"must be floating-point scores of shape {(size, self.num_classes)}",
                "set num_classes to what the model returns, or wrap the model",
            )
        return scores, own

    def _executing(self, raw: Tensor, images: Tensor, shift: Tensor | None) -> Tensor:
        return self.model(self._moved(raw, images, shift))

    def _moved(self, raw: Tensor, images: Tensor, shift: Tensor | None) -> Tensor:
        """Images under draws, each under its own."""
        size = size_of(images)
        params = self.noise.params(raw, self.deformation.space(size))
        field = self.deformation.field(params if shift is None else params + shift, size)
        return warp(images, field, self.padding)


def _of_each(images: Tensor, places: Tensor) -> Tensor:
    """The image of every sample: [k, c, h, w] and [n] -> [n, c, h, w]. A single one is shared."""
    if len(images) == 1:
        return images.expand(len(places), *images.shape[1:])
    return images.index_select(0, places)


def _where(
    batch: Sequence[Span], size: int, filling: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The place of the image of every sample, and the row of its count; `filling` at the end."""
    lengths = [*map(len, batch), size - _samples_of(batch)]
    both = np.array([[*(s.image for s in batch), 0], [*(s.row for s in batch), filling]])
    places = torch.from_numpy(np.repeat(both, lengths, axis=1))
    if device.type == "cuda":  # from pinned memory the copy does not wait for the device
        places = places.pin_memory()
    own = places.to(device, non_blocking=True)
    return own[0], own[1]


def _samples_of(batch: Sequence[Span]) -> int:
    return sum(map(len, batch))


def _is_scarcity(error: Exception) -> bool:
    """Is there too little memory? What a CPU runs out of has no exception of its own."""
    known = isinstance(error, torch.OutOfMemoryError | NoMemoryError)
    return known or "allocate memory" in str(error)


def _reason(error: Exception) -> str:
    """The first line that says something; torch begins with which backend raised."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.endswith("raised:")), repr(error))


def _say(message: str) -> None:
    warnings.warn(message, ScarcityWarning, stacklevel=3)
