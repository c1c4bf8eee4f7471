"""Where random numbers come from: named streams, never global state."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import torch

from deformrs.noise import NoiseLaw
from deformrs.space import Space

BLOCK = 256
"""Samples drawn from one generator. Changing it changes every result."""


class Stage(IntEnum):
    """What samples are for. No two stages share noise."""

    SELECT = 0
    ESTIMATE = 1
    PREDICT = 2


def block_seed(seed: int, index: int, stage: Stage, block: int) -> int:
    """The seed of one block of noise: 64 bits.

    Guarantee: the blocks of one image, over all stages, have different seeds even in the low 32
    bits, which is all that torch's CPU generator looks at. A hash of the four numbers would let
    two blocks of an image coincide once in 50,000 certificates of 100,000 samples.
    """
    start = np.random.SeedSequence(int(seed), spawn_key=(int(index),)).generate_state(1, np.uint64)[
        0
    ]
    return (int(start) + block * len(Stage) + stage) % 2**64


def noise_batches(
    law: NoiseLaw,
    space: Space,
    n: int,
    batch_size: int,
    device: torch.device,
    *,
    seed: int,
    index: int,
    stage: Stage,
) -> Iterator[torch.Tensor]:
    """n draws of params: [at most batch_size, d], the same whatever the batch size.

    Draws of a smaller n are the first of a larger one.
    """
    generator = torch.Generator(device)
    waiting: list[torch.Tensor] = []
    for block in range(-(-n // BLOCK)):
        generator.manual_seed(block_seed(seed, index, stage, block))
        draws = law.sample(BLOCK, space, generator)[: n - block * BLOCK]
        waiting = [torch.cat([*waiting, draws])] if waiting else [draws]
        while waiting and len(waiting[0]) >= batch_size:
            yield waiting[0][:batch_size]
            waiting = [waiting[0][batch_size:]]
    if waiting and len(waiting[0]):
        yield waiting[0]
