"""Batches under noise, each determined by the seed and its number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from deformrs.errors import InputError
from deformrs.geometry import warp
from deformrs.randomness import TorchGenerator
from deformrs.training.distributed import Processes
from deformrs.training.images import Source
from deformrs.training.recipes import Plan


class Use(IntEnum):
    """The purpose of random numbers: each has streams of its own."""

    ORDER = 0
    NOISE = 1
    HELD_OUT = 2
    NETWORK = 3


def seed_generator(generator: torch.Generator, seed: int, use: Use, number: int) -> None:
    """Set a generator to the stream of that number, whatever was drawn before.

    Numbers count up from a start that depends on the seed and the use, so streams of one use
    differ in the low bits, which is all that torch's generator on the CPU looks at.
    """
    generator.manual_seed(_seed(seed, use, number))


def order_of(count: int, seed: int, epoch: int) -> torch.Tensor:
    """Return the order of the images in an epoch: [count] on the CPU, the same on every machine."""
    generator = torch.Generator()
    seed_generator(generator, seed, Use.ORDER, epoch)
    return torch.randperm(count, generator=generator, device="cpu", dtype=torch.int64)


@contextmanager
def network_randomness(seed: int, number: int, device: torch.device) -> Iterator[None]:
    """Let dropout and the like, which draw from torch's global state, draw from a stream.

    The global state is restored afterwards.
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


class NoisyBatches:
    """The batches of a plan from a source: shuffled, augmented and deformed.

    All processes draw for the whole batch and keep their own rows, so that the number of
    processes does not change what a step sees.
    """

    def __init__(self, source: Source, plan: Plan, processes: Processes) -> None:
        self.source, self.plan = source, plan
        self.size = plan.augmentation.size or source.size
        self.space = plan.deformation.space(self.size)
        plan.noise.check_for_sampling(self.space)
        self.batch_size = min(plan.recipe.batch_size, len(source))
        # The last, smaller batch of an epoch is left out; the order changes with every epoch.
        self.steps_per_epoch = len(source) // self.batch_size
        if self.batch_size % processes.count:
            raise InputError(
                "the batch size",
                self.batch_size,
                f"must be divisible by the number of processes, {processes.count}",
                f"e.g. {max(1, self.batch_size // processes.count) * processes.count}",
            )
        own = self.batch_size // processes.count
        self._rows = slice(processes.rank * own, (processes.rank + 1) * own)
        self._generator = torch.Generator(processes.device)

    def epoch(self, number: int, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels of this process for each batch of an epoch but the first `skip`.

        There are `copies` deformed copies of all images, one after another.
        """
        order = order_of(len(self.source), self.plan.seed, number)
        used = order[: self.steps_per_epoch * self.batch_size].view(-1, self.batch_size)
        step = number * self.steps_per_epoch + skip
        augmentation = self.plan.augmentation
        for images, labels in self.source.batches(used[skip:, self._rows].unbind()):
            seed_generator(self._generator, self.plan.seed, Use.NOISE, step)
            draws = augmentation.draw(self.batch_size, self._generator)[self._rows]
            augmented = augmentation.apply(images, draws)
            copies = self.plan.recipe.copies
            yield self._deformed(augmented, copies, self.batch_size, self._rows), labels
            step += 1

    def evaluation(self, held_out: Source) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all images of another source in order, under the same noise every time."""
        seed_generator(self._generator, self.plan.seed, Use.HELD_OUT, 0)
        rows = torch.split(torch.arange(len(held_out)), self.batch_size)
        for images, labels in held_out.batches(rows):
            centre = self.plan.augmentation.centre(images)
            yield self._deformed(centre, 1, len(labels), slice(None)), labels

    def _deformed(self, images: Tensor, copies: int, drawn: int, rows: slice) -> Tensor:
        params = self.plan.noise.sample(copies * drawn, self.space, TorchGenerator(self._generator))
        own = params.view(copies, drawn, -1)[:, rows].flatten(0, 1)
        field = self.plan.deformation.field(own, self.size)
        return warp(images.repeat(copies, 1, 1, 1), field, self.plan.padding)
