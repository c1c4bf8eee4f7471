"""Trains a small network in however many processes: `python together.py FOLDER [TROUBLE]`.

Started as a command, because that is what processes that train together start again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from deformrs.errors import InputError
from deformrs.training.distributed import Processes, open_processes

BATCH = 12
STEPS = 8


def network(momentum: float | None = 0.1) -> nn.Sequential:
    """Both kinds of batch normalisation; its weights are drawn here, the same everywhere."""
    layers = nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=False),
        nn.BatchNorm2d(6, momentum=momentum),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.BatchNorm2d(8, momentum=momentum, affine=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 5),
        nn.BatchNorm1d(5, momentum=momentum),
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layers.parameters():
            # torch's own first weights come from the state that all programs share.
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return layers


def batches() -> list[tuple[Tensor, Tensor]]:
    """For each step all rows of the batch: images far from zero, halves that differ."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.linspace(0, 3, BATCH).view(-1, 1, 1, 1)
    return [
        (
            5 + rows * torch.randn(BATCH, 2, 7, 7, generator=generator),
            torch.randint(0, 5, (BATCH,), generator=generator),
        )
        for _ in range(STEPS)
    ]


def trained(
    processes: Processes,
    compiled: bool = False,
    momentum: float | None = 0.1,
    trouble: str = "",
    backend: str = "aot_eager",
) -> dict[str, Tensor]:
    """The state of the network after all steps, its momentum, and the sum of all losses."""
    device = processes.device
    model = network(momentum).to(device)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3
    )
    # The whole graph: batch normalisation over processes must not break it.
    module = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
    call, optimizer = processes.prepare(cast(nn.Module, module), optimizer)
    own = BATCH // processes.count
    rows = slice(processes.rank * own, (processes.rank + 1) * own)
    losses = torch.zeros((), device=device)
    model.train()
    for step, (images, labels) in enumerate(batches()):
        if step == STEPS // 2:
            get_into(trouble, processes.rank)
        loss = cross_entropy(call(images[rows].to(device)), labels[rows].to(device))
        optimizer.zero_grad(set_to_none=True)
        processes.backward(loss)
        optimizer.step()
        losses += loss.detach()
    before = losses.clone()
    total = processes.total(losses)
    assert torch.equal(losses, before)
    model.eval()
    with torch.no_grad():
        scores = model(batches()[0][0].to(device))  # by each process alone
    processes.wait()
    state = {
        f"momentum.{i}": v["momentum_buffer"] for i, v in optimizer.state_dict()["state"].items()
    }
    return state | model.state_dict() | {"loss": total / processes.count, "scores": scores}


def get_into(trouble: str, rank: int) -> None:
    if trouble == "first fails" and rank == 0:
        raise InputError("trouble", trouble, "must not happen", "that is all")
    if trouble == "second is killed" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "first is killed":
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # a lost connection is not noticed here


def main() -> None:
    folder = Path(sys.argv[1])
    trouble = sys.argv[2] if len(sys.argv) > 2 else ""
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ  # then it says how many there are
    try:
        with open_processes("cpu", devices=1 if by_torchrun else 2) as processes:
            (folder / f"process_{processes.rank}").write_text(str(os.getpid()))
            print(f"rank {processes.rank} of {processes.count}")
            found = {"plain": trained(processes, trouble=trouble)}
            if not by_torchrun:
                found["compiled"] = trained(processes, compiled=True)
                found["cumulative"] = trained(processes, momentum=None)
        assert processes.rank == 0, "only the first comes out"
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    for name, state in found.items():
        save_file(state, folder / f"{name}.safetensors")
    print("done")


if __name__ == "__main__":
    main()
