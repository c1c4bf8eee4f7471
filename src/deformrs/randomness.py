"""Random numbers from named streams, never from global state."""

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
"""The most numbers that are cached: 64 MiB."""


class Stage(IntEnum):
    """The purpose of samples. No two stages share noise."""

    SELECT = 0
    ESTIMATE = 1
    PREDICT = 2


@dataclass(frozen=True, slots=True)
class Span:
    """Samples `start` to `stop` - 1 of an image in a stage, and the row that counts them."""

    index: int
    """The image's number in its data set: with seed, stage and sample it names the noise."""
    stage: Stage
    start: int
    stop: int
    image: int = 0
    """The position of the image in the batch."""
    row: int = 0
    """The row of counts for its predictions."""

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Span:
        """Return some of the samples as a span."""
        return Span(self.index, self.stage, start, stop, self.image, self.row)


def in_batches(spans: Iterable[Span], size: int) -> Iterator[tuple[Span, ...]]:
    """Yield the samples of all spans in batches of equal size; only the last may be smaller.

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
    """Return the 64-bit seed of one block of noise.

    Guarantee: the blocks of one image, over all stages, have different seeds even in the low 32
    bits, which is all that torch's CPU generator uses. A hash of the four numbers would let
    two blocks of an image coincide once in 50,000 certificates of 100,000 samples.
    """
    return (_start(int(seed), int(index)) + block * len(Stage) + stage) % 2**64


@lru_cache(maxsize=4096)
def _start(seed: int, index: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1, np.uint64)[0])


class Draws:
    """Blocks of noise on a device, each from its own seed. Not thread-safe.

    Blocks that are not used up are cached, up to `room` numbers and at least one block: frequent
    looks and small batches would otherwise draw the same block again and again.
    """

    def __init__(
        self, law: NoiseLaw, space: Space, device: torch.device, *, seed: int, room: int = 0
    ) -> None:
        self.law, self.space, self.seed = law, space, seed
        self._generator = torch.Generator(device)
        self._most = max(1, room // (BLOCK * space.dim))
        self._kept: dict[tuple[int, Stage, int], Tensor] = {}

    def of(self, spans: Iterable[Span]) -> Tensor:
        """Return the draws of all samples of the spans, in order: [n, d].

        A draw depends on the seed, the index, the stage and the number of its sample only: not on
        other spans or on earlier draws.
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
        """Return the draws of a block: [BLOCK, d]. `again` says that it may be needed again."""
        name = (index, stage, block)
        drawn = self._kept.pop(name, None)
        if drawn is None:
            self._generator.manual_seed(block_seed(self.seed, index, stage, block))
            drawn = self.law.raw(BLOCK, self.space, self._generator)
        if again:
            self._kept[name] = drawn
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]  # the least recently used
        return drawn
