"""How the network is executed in a step: its precision, compiled or not, alone or with others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from deformrs.training.processes import Processes
from deformrs.training.recipes import TrainingPrecision

Forward = Callable[[Tensor], Tensor]


def execution(
    model: nn.Module,
    optimizer: Optimizer,
    processes: Processes,
    precision: TrainingPrecision,
    *,
    compiled: bool,
) -> tuple[Forward, Optimizer]:
    """What to call in place of the model, and what to step with in place of the optimizer.

    Compiled and alone on a GPU, the network runs as CUDA graphs: to launch its kernels one by one
    takes the processor longer than the GPU computes.
    """
    if not compiled:
        forward, stepped = processes.prepare(model, optimizer)
        return in_precision(forward, processes.device, precision), stepped
    graphs = processes.count == 1 and processes.device.type == "cuda"
    module = torch.compile(model, mode="reduce-overhead" if graphs else "default")
    assert isinstance(module, nn.Module)
    forward, stepped = processes.prepare(module, optimizer)
    forward = in_precision(forward, processes.device, precision)
    return _marked(forward) if graphs else forward, stepped


def in_precision(forward: Forward, device: torch.device, precision: TrainingPrecision) -> Forward:
    """The same in bfloat16 where that is asked for; weights and their updates stay in float32."""
    if precision == "float32":
        return forward

    def call(pictures: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return forward(pictures)

    return call


def _marked(forward: Forward) -> Forward:
    """Tell CUDA graphs where a step begins: what the last one returned may be overwritten then."""

    def call(pictures: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return forward(pictures)

    return call
