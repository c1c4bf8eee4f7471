"""Where random numbers come from: named streams, never global state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    indices: Sequence[int],
    stage: Stage,
) -> Iterator[torch.Tensor]:
    """n draws of params for each picture, one picture after another: [at most batch_size, d].

    They are the same whatever the batch size and the other pictures. Draws of a smaller n are the
    first of a larger one.
    """
    generator = torch.Generator(device)
    waiting: list[torch.Tensor] = []
    count = 0
    for index in indices:
        for block in range(-(-n // BLOCK)):
            generator.manual_seed(block_seed(seed, index, stage, block))
            waiting.append(law.sample(BLOCK, space, generator)[: n - block * BLOCK])
            count += len(waiting[-1])
            while count >= batch_size:
                draws = torch.cat(waiting)
                yield draws[:batch_size]
                waiting, count = [draws[batch_size:]], count - batch_size
    if count:
        yield torch.cat(waiting)
