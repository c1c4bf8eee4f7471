"""Opens the processes of a training: one, or several with Lightning Fabric."""

from __future__ import annotations

import difflib
from contextlib import AbstractContextManager, nullcontext

import torch

from deformrs.errors import InputError
from deformrs.models.extras import import_extra
from deformrs.training.launching import Layout, check_launch, layout
from deformrs.training.processes import Alone, Processes

STRATEGIES = ("ddp", "ddp_find_unused_parameters_true")
"""As Fabric names them. The second is for networks that leave some of their weights unused."""


def open_processes(
    device: torch.device | str, devices: int = 1, nodes: int = 1, strategy: str = "ddp"
) -> AbstractContextManager[Processes]:
    """The processes of a training on that kind of device, for as long as it is open.

    One process needs nothing but torch. Several run the same command from its beginning and meet
    here: started by this one, by torchrun or by Slurm. Those of other ranks print nothing while
    it is open, and end where it closes. If one fails, all end.
    """
    device = torch.device(device)
    wanted = layout(devices, nodes)
    if wanted.count == 1:
        return nullcontext(Alone(device))
    _check_strategy(strategy)
    _check_devices(device, wanted)
    check_launch(wanted)
    import_extra("lightning_fabric", "distributed", "several processes")
    from deformrs.training.several import open_several

    return open_several(device, wanted, unused=strategy != "ddp")


def _check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        near = difflib.get_close_matches(strategy, STRATEGIES, n=1)
        raise InputError(
            "strategy",
            repr(strategy),
            f"must be one of {', '.join(STRATEGIES)}",
            f"did you mean {(near or STRATEGIES)[0]!r}?",
        )


def _check_devices(device: torch.device, wanted: Layout) -> None:
    """Is there one for each process on this machine?"""
    if device not in (torch.device("cpu"), torch.device("cuda")):
        raise InputError(
            "device", device, "must be cpu or cuda where several processes train", "e.g. cuda"
        )
    if device.type == "cuda" and torch.cuda.device_count() < wanted.devices:
        raise InputError(
            "devices",
            wanted.devices,
            f"must be at most the number of GPUs in sight, {torch.cuda.device_count()}",
            "take fewer, or let each process see all of them",
        )
