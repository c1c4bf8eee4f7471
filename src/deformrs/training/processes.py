"""What training asks of the processes that it runs in; one alone needs nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Processes(Protocol):
    """As many equal processes as there are devices, each with its own rows of every batch.

    All of them call the same methods in the same order. Only the one of rank 0 writes.
    """

    @property
    def rank(self) -> int:
        """Which of them this is, from 0."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def device(self) -> torch.device:
        """Where this one computes."""

    def prepare(
        self, model: nn.Module, optimizer: Optimizer
    ) -> tuple[Callable[[Tensor], Tensor], Optimizer]:
        """Move the model to the device; what to call in its place, and what to step with.

        Called in training, that acts on the rows of all processes together: statistics are of the
        whole batch. The model itself keeps its parameters and the names in its state.
        """

    def backward(self, loss: Tensor) -> None:
        """Add up the gradients of the mean over all processes of `loss`."""

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, in each of them; `values` stay as they are."""

    def wait(self) -> None:
        """Go on when all of them have come here."""


@dataclass(frozen=True)
class Alone:
    """The only process.

    >>> Alone(torch.device("cpu")).total(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    device: torch.device
    rank: int = 0
    count: int = 1

    def prepare(
        self, model: nn.Module, optimizer: Optimizer
    ) -> tuple[Callable[[Tensor], Tensor], Optimizer]:
        return model.to(self.device), optimizer

    def backward(self, loss: Tensor) -> None:
        torch.autograd.backward(loss)

    def total(self, values: Tensor) -> Tensor:
        return values

    def wait(self) -> None:
        """There is nobody to wait for."""
