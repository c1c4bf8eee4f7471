"""Opens the processes of a training: one, or several with Lightning Fabric."""

from __future__ import annotations

import difflib
import gc
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, Protocol

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import __main__
from deformrs.checks import check_integer
from deformrs.errors import DeformRSError, InputError, ModelError
from deformrs.models.optional_dependencies import import_extra, quiet
from deformrs.training.batch_norm import synchronised


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
    check_integer("devices", devices, least=1)
    check_integer("nodes", nodes, least=1)
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


GRACE_SECONDS = 5.0
ECHO_SECONDS = 2.0
LEAVING_SECONDS = 15.0
LAUNCHER = "DEFORMRS_LAUNCHER"
"""A variable of the environment: the number of the process that starts the others."""

_SET_BY_LAUNCHING = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "OMP_NUM_THREADS",
    LAUNCHER,
)


@contextmanager
def environment_kept() -> Iterator[None]:
    """Launching sets variables and the number of threads; put the old ones back."""
    before = {name: os.environ.get(name) for name in _SET_BY_LAUNCHING}
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end_with_parent() -> None:
    """Let this process end when the one that started it does; that one notes its own number.

    However it ended: one that is killed cannot tell the others, who may wait for it on a GPU.
    """
    launcher = os.environ.get(LAUNCHER)
    if launcher is None:
        os.environ[LAUNCHER] = str(os.getpid())
    elif os.name == "posix":  # elsewhere another process may stand between the two
        threading.Thread(target=_watch, args=(int(launcher),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


@contextmanager
def end_together(fabric: Fabric) -> Iterator[None]:
    """Close the connections at the end. After an error, end the processes this one started.

    Fabric itself ends all processes when one that it started fails, but not when this one does.
    """
    try:
        yield
    except BaseException as error:
        if fabric.global_rank:
            # What went wrong everywhere is said once: the first process ends this one meanwhile.
            time.sleep(GRACE_SECONDS)
        failed = _end(_taken(fabric), _is_echo(error))
        _disconnect()
        if failed is not None:
            raise failed from error
        raise
    others = _taken(fabric)
    _disconnect()
    until = time.monotonic() + LEAVING_SECONDS
    for process in others:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        process.kill()  # it has done its part; most have ended


def _disconnect() -> None:
    # Without this, processes abort at their end now and then; and what still holds a connection
    # would close it while Python ends, which can wait for ever.
    gc.collect()
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _taken(fabric: Fabric) -> list[subprocess.Popen[bytes]]:
    """The processes that were started here, in the order of their ranks, now ours alone to end."""
    shared: list[subprocess.Popen[bytes]] = getattr(fabric.strategy.launcher, "procs", [])
    taken = shared[:]
    shared.clear()  # Fabric watches these, and would kill this process for ending them
    return taken


def _is_echo(error: BaseException) -> bool:
    """May it come from the end of another process? Lost connections are RuntimeErrors."""
    return isinstance(error, RuntimeError) and not isinstance(error, DeformRSError)


def _end(processes: list[subprocess.Popen[bytes]], echo: bool) -> ModelError | None:
    """End them all; an error that names the first that had failed by itself."""
    until = time.monotonic() + ECHO_SECONDS
    while echo and time.monotonic() < until and all(p.poll() is None for p in processes):
        time.sleep(0.05)  # it may be about to say why
    codes = [process.poll() for process in processes]
    for process in processes:
        process.kill()
        process.wait()
    failed = [(number, code) for number, code in enumerate(codes, start=1) if code]
    if not failed:
        return None
    number, code = failed[0]
    return ModelError(
        f"process {number} of the training on this machine",
        f"gone ({f'signal {-code}' if code < 0 else f'exit code {code}'})",
        "must live as long as the others",
        "see what it said above, and that there is memory for each",
    )


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

    def __call__(self, images: Tensor) -> Tensor:
        assert self._module is not None, "called after the processes parted"
        scores: Tensor = self._module(images)
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
