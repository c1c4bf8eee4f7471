"""Where random numbers come from: named streams, never global state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from deformrs.noise import NoiseLaw
from deformrs.space import Space

BLOCK = 256
"""Samples drawn from one generator. Changing it changes every result."""

ROOM = 2**24
"""Numbers that are kept at most of blocks that are not used up: 64 MiB."""


class Stage(IntEnum):
    """What samples are for. No two stages share noise."""

    SELECT = 0
    ESTIMATE = 1
    PREDICT = 2


@dataclass(frozen=True, slots=True)
class Span:
    """Samples `start` to `stop` - 1 that an image gets in a stage, and where they are counted."""

    index: int
    """The image's number in its data set: with seed, stage and sample it names the noise."""
    stage: Stage
    start: int
    stop: int
    image: int = 0
    """The image's place among those at hand."""
    row: int = 0
    """The row of counts that its answers go to."""

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Span:
        """Some of the samples."""
        return Span(self.index, self.stage, start, stop, self.image, self.row)


def in_batches(spans: Iterable[Span], size: int) -> Iterator[tuple[Span, ...]]:
    """The samples of all spans in batches of that size, but for the last.

    >>> twice = [Span(0, Stage.SELECT, 0, 7)] * 2
    >>> [[len(part) for part in batch] for batch in in_batches(twice, 5)]
    [[5], [2, 3], [4]]
    """
    pieces: list[Span] = []
    room = size
    for span in spans:
        at = span.start
        while at < span.stop:
            end = min(span.stop, at + room)
            pieces.append(span.part(at, end))
            room -= end - at
            at = end
            if not room:
                yield tuple(pieces)
                pieces, room = [], size
    if pieces:
        yield tuple(pieces)


def block_seed(seed: int, index: int, stage: Stage, block: int) -> int:
    """The seed of one block of noise: 64 bits.

    Guarantee: the blocks of one image, over all stages, have different seeds even in the low 32
    bits, which is all that torch's CPU generator looks at. A hash of the four numbers would let
    two blocks of an image coincide once in 50,000 certificates of 100,000 samples.
    """
    return (_start(int(seed), int(index)) + block * len(Stage) + stage) % 2**64


@lru_cache(maxsize=4096)
def _start(seed: int, index: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1, np.uint64)[0])


class Draws:
    """Blocks of noise on a device, each from its own seed. For one thread.

    Of a block that is not used up the draws are kept while there is `room` for so many numbers, and
    those of the last one in any case: who looks every few samples, or takes small batches, would
    otherwise draw it again each time.
    """

    def __init__(
        self, law: NoiseLaw, space: Space, device: torch.device, *, seed: int, room: int = 0
    ) -> None:
        self.law, self.space, self.seed = law, space, seed
        self._generator = torch.Generator(device)
        self._most = max(1, room // (BLOCK * space.dim))
        self._kept: dict[tuple[int, Stage, int], Tensor] = {}

    def of(self, spans: Iterable[Span]) -> Tensor:
        """The draws of all samples of the spans, in their order: [n, d].

        A draw follows from the seed and from the index, the stage and the number of its sample:
        whatever the other spans, and whatever was drawn before.
        """
        rows = []
        for span in spans:
            at = span.start
            while at < span.stop:
                block, inside = divmod(at, BLOCK)
                end = min(span.stop, (block + 1) * BLOCK)
                drawn = self._block(span.index, span.stage, block, again=end % BLOCK > 0)
                rows.append(drawn[inside : inside + end - at])
                at = end
        return torch.cat(rows)

    def _block(self, index: int, stage: Stage, block: int, *, again: bool) -> Tensor:
        """The draws of a block: [BLOCK, d]. `again` says that it may be asked for again."""
        name = (index, stage, block)
        drawn = self._kept.pop(name, None)
        if drawn is None:
            self._generator.manual_seed(block_seed(self.seed, index, stage, block))
            drawn = self.law.raw(BLOCK, self.space, self._generator)
        if again:
            self._kept[name] = drawn
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]  # the one that was asked for longest ago
        return drawn
