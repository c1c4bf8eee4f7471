"""Who starts the processes of a training, and how many there are on each of how many machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import __main__
from deformrs.checks import check_whole
from deformrs.errors import InputError

Starter = Literal["itself", "torchrun", "Slurm"]


@dataclass(frozen=True)
class Layout:
    """How many processes (`devices`) run on each of how many machines (`nodes`)."""

    devices: int
    nodes: int
    starter: Starter = "itself"

    @property
    def count(self) -> int:
        """Over all machines."""
        return self.devices * self.nodes


def layout(devices: int, nodes: int, environment: Mapping[str, str] = os.environ) -> Layout:
    """What was asked for, or what torchrun or Slurm started where nothing else was asked for.

    >>> layout(1, 1, {"TORCHELASTIC_RUN_ID": "a", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"})
    Layout(devices=2, nodes=2, starter='torchrun')
    """
    check_whole("devices", devices, least=1)
    check_whole("nodes", nodes, least=1)
    asked = Layout(devices, nodes)
    there = _started(environment)
    if there is None:
        return asked
    if asked.count > 1 and (devices, nodes) != (there.devices, there.nodes):
        raise InputError(
            f"--devices {devices} --nodes {nodes}",
            f"not what {there.starter} started",
            "must agree with it",
            f"leave both out, or say --devices {there.devices} --nodes {there.nodes}",
        )
    return there


def check_launch(wanted: Layout, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse what would wait for ever: processes that nobody can start, machines nobody named."""
    if wanted.starter != "itself":
        return
    missing = [
        name for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if not environment.get(name)
    ]
    if wanted.nodes > 1 and missing:
        raise InputError(
            "nodes",
            wanted.nodes,
            f"needs {', '.join(missing)} in the environment of each machine",
            "set them there (NODE_RANK from 0), or start with torchrun or srun",
        )
    again = __main__.__spec__ is not None or Path(sys.argv[0]).is_file()
    if wanted.devices > 1 and (hasattr(sys, "ps1") or not again):
        raise InputError(
            "devices",
            wanted.devices,
            "needs a command or a script that the other processes can start again",
            "use deformrs train, or torchrun",
        )


def _started(environment: Mapping[str, str]) -> Layout | None:
    """Has someone else started several processes, of which this is one?"""
    if "TORCHELASTIC_RUN_ID" in environment:
        here, count = (int(environment[name]) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
        return Layout(here, count // here, "torchrun")
    # Of the step, not of the job: in a job without srun there is one process.
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    if tasks > 1:
        here = int(environment.get("SLURM_NTASKS_PER_NODE", "0"))
        if here == 0 or tasks % here:
            raise InputError(
                "the Slurm step",
                f"one of {tasks} tasks",
                "must have as many tasks on each machine as it has devices",
                "say --ntasks-per-node in place of --ntasks",
            )
        return Layout(here, tasks // here, "Slurm")
    return None
