"""Several processes that train one network together, with Lightning Fabric."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from deformrs.errors import InputError
from deformrs.models.extras import quiet
from deformrs.training.batch_norm import synchronised
from deformrs.training.ending import end_together, end_with_parent, environment_kept
from deformrs.training.launching import Layout

PATIENCE = timedelta(minutes=30)
"""How long one waits for another. What the first does alone, such as saving, must take less."""

_first = threading.Lock()
"""Held from the first opening on: only then do all processes come to the same one."""


@dataclass(frozen=True)
class Several:
    """One of several processes; `Processes` says what its methods promise."""

    rank: int
    count: int
    device: torch.device
    _fabric: Fabric
    _until_closed: ExitStack

    def prepare(
        self, model: nn.Module, optimizer: Optimizer
    ) -> tuple[Callable[[Tensor], Tensor], Optimizer]:
        self._until_closed.enter_context(synchronised(model))
        # A compiled model stays inside: compiled around, the graph breaks and warnings come.
        call = _Call(self._fabric.setup_module(model, _reapply_compile=False))
        self._until_closed.callback(call.close)
        return call, optimizer

    def backward(self, loss: Tensor) -> None:
        self._fabric.backward(loss)

    def total(self, values: Tensor) -> Tensor:
        summed = values.detach().clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(summed)
        return summed

    def wait(self) -> None:
        self._fabric.barrier()


class _Call:
    """Calls what Fabric made of a model, and lets go of it and its connections when closed."""

    def __init__(self, module: nn.Module) -> None:
        self._module: nn.Module | None = module

    def __call__(self, pictures: Tensor) -> Tensor:
        assert self._module is not None, "called after the processes parted"
        scores: Tensor = self._module(pictures)
        return scores

    def close(self) -> None:
        self._module = None


@contextmanager
def open_several(device: torch.device, wanted: Layout, unused: bool) -> Iterator[Several]:
    """Start the others or meet them; `open_processes` says what is promised."""
    if not _first.acquire(blocking=False):
        raise InputError(
            f"a second training in {wanted.count} processes",
            "one in the same command",
            "must have its own, which all of them can start from the beginning",
            "call deformrs train for each",
        )
    with environment_kept():
        end_with_parent()
        fabric = Fabric(
            accelerator=device.type,
            devices=wanted.devices,
            num_nodes=wanted.nodes,
            strategy=_strategy(unused),
            precision="32-true",  # the loop chooses its own
            # Left to itself, Fabric takes every job of Slurm for one of srun, and waits.
            plugins=[LightningEnvironment()] if wanted.starter == "itself" else None,
        )
        with end_together(fabric), ExitStack() as until_closed:
            with quiet("lightning_fabric"):
                fabric.launch()
            if fabric.global_rank:
                nowhere = until_closed.enter_context(open(os.devnull, "w"))
                until_closed.enter_context(redirect_stdout(nowhere))
                until_closed.enter_context(redirect_stderr(nowhere))
            yield Several(
                fabric.global_rank, fabric.world_size, fabric.device, fabric, until_closed
            )
            fabric.barrier()
    if fabric.global_rank:
        sys.exit(0)


def _strategy(unused: bool) -> DDPStrategy:
    # All processes compute the same buffers: none need be sent. torch has renamed that option.
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters:
        return DDPStrategy(
            timeout=PATIENCE, find_unused_parameters=unused, forward_sync_buffers=False
        )
    return DDPStrategy(timeout=PATIENCE, find_unused_parameters=unused, broadcast_buffers=False)
