"""Random numbers of training: each step and each epoch has a stream of its own."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch


class Use(IntEnum):
    """What random numbers are for."""

    ORDER = 0
    NOISE = 1
    HELD_OUT = 2


def seed_generator(generator: torch.Generator, seed: int, use: Use, number: int) -> None:
    """Set a generator to the stream of that number: nothing that was drawn before matters.

    Numbers count up from a start that depends on the seed and the use, so streams of one use
    differ in the low bits, which is all that torch's generator on the CPU looks at.
    """
    start = np.random.SeedSequence(seed, spawn_key=(2**31 + use,)).generate_state(1, np.uint64)[0]
    generator.manual_seed((int(start) + number) % 2**64)


def order_of(count: int, seed: int, epoch: int) -> torch.Tensor:
    """In which order an epoch sees its pictures: [count] on the CPU, the same on every machine."""
    generator = torch.Generator()
    seed_generator(generator, seed, Use.ORDER, epoch)
    return torch.randperm(count, generator=generator)
