"""Random numbers from named streams, never from global state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from deformrs.checks import check_seed
from deformrs.errors import InputError
from deformrs.noise import NoiseLaw
from deformrs.noise.law import Generator
from deformrs.space import Space
from deformrs.strata import BLOCK as BLOCK
from deformrs.strata import strata

ROOM = 2**24
"""The most numbers that are cached: 64 MiB."""


class Stage(IntEnum):
    """The purpose of samples. No two stages share noise."""

    SELECT = 0
    ESTIMATE = 1
    PREDICT = 2
    STRATIFY = 3
    """Estimation that goes on with stratified noise: see `deformrs.strata`."""


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


class Blocks(Generator, Protocol):
    """A generator that can be set to the beginning of any block."""

    name: str
    """What a run records: its noise comes from this generator."""

    def begin(self, index: int, stage: Stage, block: int) -> None:
        """Go on with the first number of a block."""


class Philox:
    """Philox 4x64: numbers on the CPU, as a fixed function of a key and a counter.

    Guarantee: two blocks of one seed never share a number of the underlying stream. The seed is the
    key, and each block has 2**64 steps of the 256-bit counter of its own; for a fixed key, Philox
    maps counters to outputs one to one.
    """

    name = "philox"

    def __init__(self, seed: int) -> None:
        check_seed("seed", seed)
        self.device = torch.device("cpu")
        # Of numpy.random, but with no state that anybody else can reach.
        self._bits = np.random.Philox(key=int(seed))
        self._numbers = np.random.Generator(self._bits)
        self._state = self._bits.state

    def begin(self, index: int, stage: Stage, block: int) -> None:
        self._state["state"]["counter"] = np.array([0, block, stage, index], dtype=np.uint64)
        self._bits.state = self._state

    def uniform(self, n: int, d: int) -> Tensor:
        return torch.from_numpy(self._numbers.random((n, d), dtype=np.float32))

    def normal(self, n: int, d: int) -> Tensor:
        return torch.from_numpy(self._numbers.standard_normal((n, d), dtype=np.float32))


class TorchGenerator:
    """A generator of torch on its device, with a 64-bit seed for each block.

    A GPU's generator uses all of these bits: of 50,000 images with 100,000 samples each, any two
    share noise with probability 2e-7.
    """

    name = "torch"

    def __init__(self, generator: torch.Generator, seed: int = 0) -> None:
        self.device, self._generator, self._seed = generator.device, generator, int(seed)

    def begin(self, index: int, stage: Stage, block: int) -> None:
        # The first three stages take turns; one that came later goes the other way.
        place = -1 - block if stage == Stage.STRATIFY else 3 * block + stage
        self._generator.manual_seed((_start(self._seed, int(index)) + place) % 2**64)

    # All of it is named: the defaults of torch can be set by anybody.
    def uniform(self, n: int, d: int) -> Tensor:
        return torch.rand(n, d, generator=self._generator, device=self.device, dtype=torch.float32)

    def normal(self, n: int, d: int) -> Tensor:
        return torch.randn(n, d, generator=self._generator, device=self.device, dtype=torch.float32)


@lru_cache(maxsize=4096)
def _start(seed: int, index: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1, np.uint64)[0])


def generator_for(device: torch.device, seed: int) -> Blocks:
    """Return the generator of noise on a device."""
    if device.type == "cpu":
        return Philox(seed)
    return TorchGenerator(torch.Generator(device), seed)


def stratified(generator: Generator, dim: int, first: int, total: int) -> Tensor:
    """Return a block of numbers in (0, 1) of which each stratum has two: [BLOCK, dim], float64.

    `total` strata divide the unit interval or square into equal cells, of which the block has those
    from number `first`. Guarantee: over all strata, each of 2**48 numbers is equally probable, up
    to the rounding of the generator.
    """
    numbers = torch.arange(BLOCK, device=generator.device) // 2 + first
    steps = (generator.uniform(BLOCK, 2 * dim).double() * 2**24).floor()
    within = steps[:, :dim] * 2**24 + steps[:, dim:]
    columns, below = [], total.bit_length() - 1
    for axis in range(dim):
        # The number of a cell has the bits of its row first, then those of its column.
        bits = -(-below // (dim - axis))
        below -= bits
        cell = (numbers >> below) % 2**bits
        inside = (within[:, axis] / 2**bits).floor()
        columns.append((cell * 2 ** (48 - bits) + inside + 0.5) / 2**48)
    return torch.stack(columns, dim=1)


class Draws:
    """Blocks of noise on a device, each a stream of its own. Not thread-safe.

    Blocks that are not used up are cached, up to `room` numbers and at least one block: frequent
    looks and small batches would otherwise draw the same block again and again.
    """

    def __init__(
        self, law: NoiseLaw, space: Space, device: torch.device, *, seed: int, room: int = 0
    ) -> None:
        self.law, self.space, self.seed = law, space, seed
        self._generator = generator_for(device, seed)
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
            self._generator.begin(index, stage, block)
            if stage == Stage.STRATIFY:
                uniform = stratified(self._generator, self.space.dim, *strata(block))
                drawn = self.law.quantiles(uniform, self.space)
            else:
                drawn = self.law.raw(BLOCK, self.space, self._generator)
            self._check(drawn)
        if again:
            self._kept[name] = drawn
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]  # the least recently used
        return drawn

    def _check(self, drawn: Tensor) -> None:
        """Raise for draws of another shape, precision or device: they are another law."""
        found = tuple(drawn.shape), drawn.dtype, drawn.device.type
        expected = (BLOCK, self.space.dim), torch.float32, self._generator.device.type
        if found != expected:
            raise InputError(
                f"a block of raw draws of {type(self.law).__name__}",
                f"{found[0]} of {found[1]} on {found[2]}",
                f"must be {expected[0]} of {expected[1]} on {expected[2]}",
                "return what generator.uniform or generator.normal draws",
            )
