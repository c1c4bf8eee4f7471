"""Batches under noise: each follows from the seed and its number, whoever makes which part."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from deformrs.errors import InputError
from deformrs.geometry import warp
from deformrs.training.pictures import Source
from deformrs.training.plan import Plan
from deformrs.training.processes import Processes
from deformrs.training.streams import Use, order_of, seed_generator


class NoisyBatches:
    """What the steps of a plan see of a source: shuffled, augmented and deformed.

    All processes draw for the whole batch and keep their own rows, so that the number of
    processes does not change what a step sees.
    """

    def __init__(self, source: Source, plan: Plan, processes: Processes) -> None:
        self.source, self.plan = source, plan
        self.size = plan.augmentation.size or source.size
        self.space = plan.deformation.space(self.size)
        plan.noise.check(self.space)
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
        """The batches of an epoch but for the first `skip`: pictures and labels of own rows.

        There are `copies` deformed copies of all pictures, one after another.
        """
        order = order_of(len(self.source), self.plan.seed, number)
        used = order[: self.steps_per_epoch * self.batch_size].view(-1, self.batch_size)
        step = number * self.steps_per_epoch + skip
        augmentation = self.plan.augmentation
        for pictures, labels in self.source.batches(used[skip:, self._rows]):
            seed_generator(self._generator, self.plan.seed, Use.NOISE, step)
            draws = augmentation.draw(self.batch_size, self._generator)[self._rows]
            augmented = augmentation.apply(pictures, draws)
            copies = self.plan.recipe.copies
            yield self._deformed(augmented, copies, self.batch_size, self._rows), labels
            step += 1

    def still(self, held_out: Source) -> Iterator[tuple[Tensor, Tensor]]:
        """All pictures of another source in order, under the same noise every time."""
        seed_generator(self._generator, self.plan.seed, Use.HELD_OUT, 0)
        rows = torch.split(torch.arange(len(held_out)), self.batch_size)
        for pictures, labels in held_out.batches(rows):
            centre = self.plan.augmentation.centre(pictures)
            yield self._deformed(centre, 1, len(labels), slice(None)), labels

    def _deformed(self, pictures: Tensor, copies: int, drawn: int, rows: slice) -> Tensor:
        params = self.plan.noise.sample(copies * drawn, self.space, self._generator)
        own = params.view(copies, drawn, -1)[:, rows].flatten(0, 1)
        field = self.plan.deformation.field(own, self.size)
        return warp(pictures.repeat(copies, 1, 1, 1), field, self.plan.padding)
