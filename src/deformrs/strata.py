"""The order of samples: blocks of noise, and the rounds of strata that they make up."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK = 256
"""Samples drawn from one generator. Changing it changes every result."""


def strata(block: int) -> tuple[int, int]:
    """Return the first stratum of a block of stratified noise, and the number in its round.

    Two samples in a row share a stratum. The first two rounds have one block each, the next two
    have two, then four, and so on.

    >>> [strata(block) for block in range(6)]
    [(0, 128), (0, 128), (0, 256), (128, 256), (0, 256), (128, 256)]
    """
    blocks = 1 << ((block + 2) // 2).bit_length() - 1  # in the round
    return (block - 2 * (blocks - 1)) % blocks * BLOCK // 2, blocks * BLOCK // 2


def rounds(most: int, first: int = 0) -> Iterator[int]:
    """Yield where each round ends if up to `most` samples are drawn, the first of them in the block
    that begins with sample `first`.

    >>> [*rounds(2000)], [*rounds(2000, first_of(1024))]
    ([256, 512, 1024, 1536], [2560])
    """
    end = first
    while (end := end + 2 * strata(end // BLOCK)[1]) <= first + most:
        yield end


def first_of(size: int) -> int:
    """Return the first sample of the first round that has at least `size` samples.

    >>> first_of(1), first_of(256), first_of(257)
    (0, 0, 512)
    """
    block = 0
    while 2 * (number := strata(block)[1]) < size:
        block += number * 4 // BLOCK  # two rounds of this size
    return block * BLOCK
