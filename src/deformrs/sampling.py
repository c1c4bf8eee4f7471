"""From images to class counts: draw noise, deform, classify, count. All on the device."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.bars import Progress as Progress
from deformrs.checks import check_choice
from deformrs.deformations import Deformation
from deformrs.determinism import Replay, ShownBatch
from deformrs.errors import (
    DeformRSError,
    InputError,
    LogitError,
    ModelError,
    NoMemoryError,
    ScarcityWarning,
)
from deformrs.execution import Compiled, compiled, no_memory, scores_of
from deformrs.geometry import Padding, size_of, warp
from deformrs.noise import NoiseLaw
from deformrs.randomness import BLOCK, ROOM, Draws, Span, Stage, generator_for, in_batches
from deformrs.runs.tally import Table, Tally

Execution = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Maps raw draws, images and an optional shift to logits."""

Part = TypeVar("Part")
Output = TypeVar("Output")


class Rule(Protocol):
    """Decides from counts which images need no more samples, as `deformrs.rule.Rule` does."""

    @property
    def looks(self) -> Sequence[int]: ...

    @property
    def rounds(self) -> Sequence[int]: ...

    @property
    def first(self) -> int: ...

    def decided(self, selection: Table, counts: Table, /) -> NDArray[np.bool_]: ...

    def moves(self, selection: Table, counts: Table, /) -> NDArray[np.bool_]: ...


class _Fingerprint:
    """Keeps the sum of the largest logits for deformed images, which tells functions apart."""

    logits: Callable[[], float] = float

    def add(
        self, step: int, counts: Callable[[], Table], batch_size: int, logits: Callable[[], float]
    ) -> None:
        self.logits = logits


class Sampler:
    """Counts the classes that `model` predicts for deformed images.

    Neither the batch size nor compilation changes which noise is drawn. Batches that do not fit
    into memory are halved, and a model that cannot be compiled runs uncompiled; both raise a
    `ScarcityWarning`.
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
        compiled: Compiled = "no",
    ) -> None:
        check_choice("compiled", compiled, get_args(Compiled))
        # Private: the noise that is certified must be the noise that is sampled.
        self._model, self._deformation, self._noise = model, deformation, noise
        self._num_classes, self._padding = num_classes, padding
        self.batch_size, self.compiled = batch_size, compiled
        self._fitting = batch_size
        """The batch size that fits into memory."""
        self._programs: dict[bool, Execution] = {}
        """The compiled program for a single image that all samples share, and for several."""
        self._compiled_for: torch.Size | None = None

    @torch.inference_mode()
    def count(
        self,
        images: Tensor,
        spans: Iterable[Span],
        rows: int | None = None,
        *,
        seed: int,
        draws: Draws | None = None,
        shift: Tensor | None = None,
        progress: Progress | None = None,
        tally: Tally | _Fingerprint | None = None,
        replay: Replay | None = None,
        paired: bool = False,
    ) -> NDArray[np.int64]:
        """Return how often each class is predicted, for each row that the spans name: [rows, K].

        images: [k, c, h, w]; rows: k by default; shift: [1, d], added to all params; draws: cached
        noise of the same seed; tally: stores the counts of finished batches; replay: keeps some
        batches. With paired, two samples in a row are a pair, and for each class the number of
        pairs follows of which it is exactly one: [rows, 2 K]. The counts stay on the device until
        the end or until they are stored, and memory does not grow with the number of samples.
        """
        rows = len(images) if rows is None else rows
        self.warm_up(images)
        noise = self.draws(images, seed) if draws is None else draws
        device = images.device
        width = (2 if paired else 1) * self._num_classes
        counts = torch.zeros(rows * width, dtype=torch.int64, device=device)
        undefined = torch.zeros(rows, dtype=torch.int64, device=device)
        total = torch.zeros((), dtype=torch.float64, device=device)  # of the largest logits
        waiting = torch.zeros(2, 0, dtype=torch.int64, device=device)  # for the other of a pair

        def logits_of(batch: tuple[Span, ...]) -> tuple[Tensor, Tensor]:
            logits, row = self._logits(batch, noise, images, shift)
            if replay is not None:
                shown = partial(self._shown, batch, logits, images, seed=seed, shift=shift)
                replay.add(shown)
            return logits, row

        def table(counts: Tensor, undefined: Tensor) -> NDArray[np.int64]:
            # Not checked after every batch, which would make the device wait.
            if undefined.any():
                faulty = set(undefined.nonzero().flatten().tolist())
                index = next(span.index for span in spans if span.row in faulty)
                raise LogitError.of(index, deformed=True)
            found: NDArray[np.int64] = counts.view(rows, width).cpu().numpy()
            return found

        size, spans = self._fitting, [*spans]
        batches = enumerate(in_batches(spans, size), start=1)
        for number, batch in batches:
            for logits, row in self._in_memory(batch, _samples_of, in_batches, logits_of, images):
                best, classes = logits.max(dim=1)
                # Of a row with NaN, the max is NaN.
                undefined = undefined.scatter_add(0, row, (~best.isfinite()).long())
                # Into new memory: the tally holds the counts of the last whole batch.
                counts = counts.scatter_add(0, row * width + classes, torch.ones_like(classes))
                total = total + best.double().sum()
                if paired:
                    # A batch may end between the two.
                    waiting = torch.cat([waiting, torch.stack([row, classes])], dim=1)
                    whole = waiting.shape[1] // 2 * 2
                    row, classes = waiting[:, :whole]
                    differing = (classes[::2] != classes[1::2]).long().repeat_interleave(2)
                    places = row * width + self._num_classes + classes
                    counts = counts.scatter_add(0, places, differing)
                    waiting = waiting[:, whole:]
            if tally is not None and number == 1 and self._fitting != size:
                # Begun again in batches that fit, so that their counts can be stored.
                return self.count(
                    images,
                    spans,
                    rows,
                    seed=seed,
                    draws=draws,
                    shift=shift,
                    progress=progress,
                    tally=tally,
                    replay=replay,
                    paired=paired,
                )
            if progress is not None:
                progress.sampled(_samples_of(batch))
            if tally is None or self._fitting != size:  # other batches may round otherwise
                continue
            now = partial(table, counts, undefined)
            stored = tally.add(number, now, size, partial(float, total))
            if stored is not None:
                counts = torch.from_numpy(stored.counts).flatten().to(device)
                passed = sum(_samples_of(batch) for _, batch in islice(batches, stored.step - 1))
                if progress is not None:
                    progress.resumed(passed)
        return table(counts, undefined)

    def count_until(
        self,
        images: Tensor,
        indices: Sequence[int],
        selection: Table,
        rule: Rule,
        *,
        seed: int,
        progress: Progress | None = None,
        tally: Tally | None = None,
        replay: Replay | None = None,
    ) -> Table:
        """Return the class counts of each image, sampled until it is decided: [k, K].

        After each number of samples in `rule.looks`, the rule decides from the counts so far and
        those of the selection which images need no more, and which move on to the stratified
        samples of `rule.rounds`. These are counted in further columns: [k, 3 K] with the classes
        and their disagreements. tally: stores the counts at late looks; replay: keeps some batches.
        """
        classes, size, passed = self._num_classes, self._fitting, 0
        width = (3 if rule.rounds else 1) * classes
        counts = np.zeros((len(images), width), dtype=np.int64)
        # Looks lie close together at first, and use the same block of noise again and again.
        draws = self.draws(images, seed, room=ROOM)
        moved: NDArray[np.intp] = np.arange(len(images))
        undecided = len(images)
        stages = ((Stage.ESTIMATE, 0, rule.looks), (Stage.STRATIFY, rule.first, rule.rounds))
        for stage, first, ends in stages:
            paired, active, start = stage == Stage.STRATIFY, np.sort(moved), first
            columns = slice(classes, None) if paired else slice(classes)
            predicted = slice(classes, 2 * classes) if paired else columns
            moved, before = moved[:0], rule.looks[-1] if paired else 0
            for stop in ends:
                step = before + stop
                if step > passed:
                    if not len(active):
                        break
                    fingerprint = _Fingerprint()
                    counts = counts.copy()  # the tally may hold the last ones
                    counts[:, columns] += self.count(
                        images,
                        [Span(indices[i], stage, start, stop, i, i) for i in active.tolist()],
                        seed=seed,
                        draws=draws,
                        progress=progress,
                        tally=fingerprint,
                        replay=replay,
                        paired=paired,
                    )
                    # The first looks are too short to tell one model from another by.
                    if tally is not None and self._fitting == size and step >= BLOCK:
                        # The same counts would not tell: of most images all samples get one class.
                        stored = tally.add(step, counts.copy, size, fingerprint.logits)
                        if stored is not None:
                            taken = (stored.counts - counts)[:, : 2 * classes].sum()
                            if progress is not None:
                                progress.resumed(int(taken))
                            counts, passed = stored.counts, stored.step
                if step < passed:
                    continue
                if step == passed:  # stored by an earlier process
                    samples = first + counts[:, predicted].sum(axis=1)
                    active, others = np.flatnonzero(samples == stop), np.flatnonzero(samples < stop)
                    if not paired:
                        moved = others[~rule.decided(selection[others], counts[others])]
                left = active[~rule.decided(selection[active], counts[active])]
                moving = rule.moves(selection[left], counts[left])
                active, moved, start = left[~moving], np.append(moved, left[moving]), stop
                if progress is not None:
                    progress.decided(undecided - len(active) - len(moved))
                undecided = len(active) + len(moved)
        return counts

    def draws(self, images: Tensor, seed: int, room: int = 0) -> Draws:
        """Return the noise for these images, to be passed to several counts."""
        space = self._deformation.space(size_of(images))
        return Draws(self._noise, space, images.device, seed=seed, room=room)

    @torch.inference_mode()
    def warm_up(self, images: Tensor) -> None:
        """Compile for images of this shape, if requested and not done yet: [k, c, h, w].

        A single image is shared by all samples, while several are copied for each: these are two
        programs. Afterwards `compiled` says how the model really runs.
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
        if single in self._programs:
            return
        space = self._deformation.space(size_of(images))
        law = self._noise.resolved(space)  # text cannot be compiled
        while True:
            size = self._fitting
            places = torch.zeros(size, dtype=torch.int64, device=images.device)
            copies = _of_each(images, places)
            raw = self._noise.raw(size, space, generator_for(images.device, seed=0))
            try:
                program = compiled(partial(self._logits_under, law=law), self.compiled)
                program(raw, copies, None)
            except DeformRSError:
                raise
            except (Exception, SystemExit) as error:  # what a model raises is anyone's choice
                if _is_scarcity(error):
                    if size == 1:
                        raise no_memory(images[:1]) from error
                else:
                    # What fails uncompiled too is raised here, and is no fault of the compiler.
                    scores_of(self._model, self._deform(raw[:1], copies[:1], None))
                    _warn(
                        f"the model cannot be compiled here ({_reason(error)}); running uncompiled"
                    )
                    self.compiled, self._programs = "no", {}
                    return
            else:
                self._programs[single] = program
                self._compiled_for = images.shape[1:]
                return
            self._shrink(size, images)

    @torch.inference_mode()
    def classify(self, images: Tensor, indices: Sequence[int] | None = None) -> list[int]:
        """Return the classes that the model predicts without noise. images: [k, c, h, w]

        An error names an image by its index, by default its place.
        """

        def predicted(part: Tensor) -> list[tuple[float, int]]:
            best, classes = scores_of(self._model, part).max(dim=1)
            return [*zip(best.tolist(), classes.tolist(), strict=True)]

        parts = self._in_memory(images, len, Tensor.split, predicted, images)
        predictions = [prediction for part in parts for prediction in part]
        for index, (best, _) in zip(indices or range(len(images)), predictions, strict=True):
            if not math.isfinite(best):
                raise LogitError.of(index, deformed=False)
        return [label for _, label in predictions]

    def _in_memory(
        self,
        whole: Part,
        length: Callable[[Part], int],
        cut: Callable[[Part, int], Iterable[Part]],
        work: Callable[[Part], Output],
        images: Tensor,
    ) -> Iterator[Output]:
        """Yield `work` of all parts of the whole, which is cut until its parts fit into memory."""
        waiting = [whole]
        while waiting:
            part = waiting.pop(0)
            size = length(part)
            if size > self._fitting:
                waiting[:0] = cut(part, self._fitting)
                continue
            try:
                output = work(part)
            except RuntimeError as error:
                if not _is_scarcity(error):
                    raise
                # Compiled, a part was filled up.
                size = self._fitting if self._programs else size
                if size == 1:
                    raise no_memory(images[:1]) from error
                waiting.insert(0, part)
            else:
                yield output
                continue
            # Outside the handler, whose traceback keeps the tensors alive that did not fit.
            self._shrink(size, images)

    def _shrink(self, size: int, images: Tensor) -> None:
        self._fitting = size // 2
        _warn(
            f"{size} images of {' x '.join(map(str, images.shape[1:]))} do not fit into the memory "
            f"of the device: continuing with batches of {self._fitting}"
        )
        if images.is_cuda:
            torch.cuda.empty_cache()

    def _logits(
        self,
        batch: tuple[Span, ...],
        draws: Draws,
        images: Tensor,
        shift: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of a batch, and the row of each sample."""
        program = self._programs.get(len(images) == 1)
        raw = draws.of(batch)
        size = samples = len(raw)
        if program is not None:  # compiled for one shape: fill up to it
            filling = raw[-1:].expand(self._fitting - size, -1)
            raw, size = torch.cat([raw, filling]), self._fitting
        places, row = _places(batch, size, images.device)
        copies = _of_each(images, places)
        if program is None:
            logits = scores_of(self._model, self._deform(raw, copies, shift))
        else:
            logits = scores_of(lambda inputs: program(raw, inputs, shift), copies)
        if logits.shape[1] != self._num_classes:
            raise ModelError(
                "the model's output",
                f"of shape {tuple(logits.shape)}",
                f"must be floating-point logits of shape {(size, self._num_classes)}",
                "set num_classes to what the model returns, or wrap the model",
            )
        return logits[:samples], row[:samples]

    def _shown(
        self,
        batch: tuple[Span, ...],
        logits: Tensor,
        images: Tensor,
        *,
        seed: int,
        shift: Tensor | None,
    ) -> ShownBatch:
        """Return a batch that can be shown to the model again, in the very same way."""
        size, used = self._fitting, sorted({span.image for span in batch})
        if len(images) > 1:  # a single image has another program
            used += used[: max(0, 2 - len(used))]
        own = images[used]
        spans = tuple(replace(span, image=used.index(span.image)) for span in batch)

        @torch.inference_mode()
        def predict() -> Tensor | None:
            if self._fitting != size:  # other batches may round otherwise
                return None
            again, _ = self._logits(spans, self.draws(own, seed), own, shift)
            return again.argmax(dim=1)

        return ShownBatch(batch, logits.argmax(dim=1), predict)

    def _logits_under(
        self, raw: Tensor, images: Tensor, shift: Tensor | None, law: NoiseLaw | None = None
    ) -> Tensor:
        return self._model(self._deform(raw, images, shift, law))

    def _deform(
        self, raw: Tensor, images: Tensor, shift: Tensor | None, law: NoiseLaw | None = None
    ) -> Tensor:
        """Return each image deformed by its own draw."""
        size = size_of(images)
        params = (law or self._noise).params(raw, self._deformation.space(size))
        field = self._deformation.field(params if shift is None else params + shift, size)
        return warp(images, field, self._padding)


def _of_each(images: Tensor, places: Tensor) -> Tensor:
    """Return the image of every sample: [k, c, h, w] and [n] -> [n, c, h, w]."""
    if len(images) == 1:  # shared, not copied
        return images.expand(len(places), *images.shape[1:])
    return images.index_select(0, places)


def _places(batch: Sequence[Span], size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the place of every sample's image and the row of its count; filled up with zeros."""
    lengths = [*map(len, batch), size - _samples_of(batch)]
    both = np.array([[*(s.image for s in batch), 0], [*(s.row for s in batch), 0]])
    places = torch.from_numpy(np.repeat(both, lengths, axis=1))
    if device.type == "cuda":  # from pinned memory the copy does not wait for the device
        places = places.pin_memory()
    places = places.to(device, non_blocking=True)
    return places[0], places[1]


def _samples_of(batch: Sequence[Span]) -> int:
    return sum(map(len, batch))


def _is_scarcity(error: BaseException) -> bool:
    """Return whether memory ran out. On a CPU there is no exception of its own for it."""
    known = isinstance(error, torch.OutOfMemoryError | NoMemoryError)
    return known or "allocate memory" in str(error)


def _reason(error: BaseException) -> str:
    """Return the first informative line; torch begins with the backend that raised."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.endswith("raised:")), repr(error))


def _warn(message: str) -> None:
    warnings.warn(message, ScarcityWarning, stacklevel=3)
