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
    """Samples `start` to `stop` - 1 that a picture gets in a stage, and where they are counted."""

    index: int
    """The picture's number in its data set: with seed, stage and sample it names the noise."""
    stage: Stage
    start: int
    stop: int
    picture: int = 0
    """The picture's place among those at hand."""
    row: int = 0
    """The row of counts that its answers go to."""

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Span:
        """Some of the samples."""
        return Span(self.index, self.stage, start, stop, self.picture, self.row)


@dataclass(frozen=True, eq=False)
class Batch:
    """Draws of several spans, one after another."""

    raw: Tensor
    """[n, d], to be made params by the law."""
    pieces: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.raw)

    def cut(self, size: int) -> Iterator[Batch]:
        """The same draws in batches of at most that size."""
        if len(self) <= size:
            yield self
            return
        pieces, start = list(self.pieces), 0
        while pieces:
            taken: list[Span] = []
            room = size
            while pieces and room:
                piece = pieces.pop(0)
                middle = min(piece.stop, piece.start + room)
                taken.append(piece.part(piece.start, middle))
                if middle < piece.stop:
                    pieces.insert(0, piece.part(middle, piece.stop))
                room -= len(taken[-1])
            end = start + size - room
            yield Batch(self.raw[start:end], tuple(taken))
            start = end


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

    Of a block that is not used up the draws are kept while there is `room` for so many numbers:
    who looks every few samples would otherwise draw it again each time.
    """

    def __init__(
        self, law: NoiseLaw, space: Space, device: torch.device, *, seed: int, room: int = 0
    ) -> None:
        self.law, self.space, self.seed = law, space, seed
        self._generator = torch.Generator(device)
        self._most = room // (BLOCK * space.dim)
        self._kept: dict[tuple[int, Stage, int], Tensor] = {}

    def block(self, index: int, stage: Stage, block: int, *, again: bool) -> Tensor:
        """The draws of a block: [BLOCK, d]. `again` says that it will be asked for again."""
        name = (index, stage, block)
        drawn = self._kept.pop(name, None)
        if drawn is None:
            self._generator.manual_seed(block_seed(self.seed, index, stage, block))
            drawn = self.law.raw(BLOCK, self.space, self._generator)
        if again and self._most:
            self._kept[name] = drawn
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]  # the one that was asked for longest ago
        return drawn


def raw_batches(draws: Draws, spans: Iterable[Span], batch_size: int) -> Iterator[Batch]:
    """The draws of all spans in batches of that size, but for the last.

    A draw follows from the seed and from the index, the stage and the number of its sample:
    whatever the batch size and the other spans.
    """
    rows: list[Tensor] = []
    pieces: list[Span] = []
    room = batch_size
    for span in spans:
        at = span.start
        while at < span.stop:
            block, inside = divmod(at, BLOCK)
            end = min(span.stop, (block + 1) * BLOCK)
            drawn = draws.block(span.index, span.stage, block, again=end % BLOCK > 0)
            while at < end:
                taken = min(end - at, room)
                rows.append(drawn[inside : inside + taken])
                pieces.append(span.part(at, at + taken))
                at, inside, room = at + taken, inside + taken, room - taken
                if not room:
                    yield Batch(torch.cat(rows), tuple(pieces))
                    rows, pieces, room = [], [], batch_size
    if rows:
        yield Batch(torch.cat(rows), tuple(pieces))
