"""Processes that train together end together, whatever ends one of them."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from lightning_fabric import Fabric
from torch import distributed

from deformrs.errors import DeformRSError, ModelError

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
