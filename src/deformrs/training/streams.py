"""Random numbers of training: each step and each epoch has a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Use(IntEnum):
    """What random numbers are for."""

    ORDER = 0
    NOISE = 1
    HELD_OUT = 2
    NETWORK = 3


def seed_generator(generator: torch.Generator, seed: int, use: Use, number: int) -> None:
    """Set a generator to the stream of that number: nothing that was drawn before matters.

    Numbers count up from a start that depends on the seed and the use, so streams of one use
    differ in the low bits, which is all that torch's generator on the CPU looks at.
    """
    generator.manual_seed(_seed(seed, use, number))


def order_of(count: int, seed: int, epoch: int) -> torch.Tensor:
    """In which order an epoch sees its pictures: [count] on the CPU, the same on every machine."""
    generator = torch.Generator()
    seed_generator(generator, seed, Use.ORDER, epoch)
    return torch.randperm(count, generator=generator)


@contextmanager
def network_randomness(seed: int, number: int, device: torch.device) -> Iterator[None]:
    """Let dropout and its like, which draw from torch's global state, draw from a stream as well.

    The global state is afterwards what it was before.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(_seed(seed, Use.NETWORK, number))
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def _seed(seed: int, use: Use, number: int) -> int:
    start = np.random.SeedSequence(seed, spawn_key=(2**31 + use,)).generate_state(1, np.uint64)[0]
    return (int(start) + number) % 2**64
