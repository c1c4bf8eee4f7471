"""Training in several processes: torch.distributed, started and ended by torchrun."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, TypeVarTuple

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from deformrs.errors import DeformRSError, InputError, ModelError
from deformrs.training.batch_norm import synchronise_batch_norm

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

Args = TypeVarTuple("Args")

PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others, for example while the first one downloads data."""
SECONDS_BEFORE_ECHO = 2.0
"""How long a lost connection is kept back, so that the process that failed is reported first."""


@dataclass(frozen=True)
class Processes:
    """The processes of a training, each with a device and with its own rows of every batch.

    All of them call the same methods in the same order. Only the one of rank 0 prints and writes.

    >>> Processes(torch.device("cpu")).total(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    device: torch.device
    rank: int = 0
    count: int = 1

    def wrap(self, model: nn.Module, module: nn.Module) -> Callable[[Tensor], Tensor]:
        """Return `module`, which runs `model`, so that gradients are averaged over processes.

        Batch normalisation in `model` uses the statistics of the whole batch from then on.
        """
        if self.count == 1:
            return module
        synchronise_batch_norm(model)
        # A static graph may leave weights unused, as some networks do.
        return DistributedDataParallel(module, static_graph=True)

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over all processes."""
        if self.count == 1:
            return values
        summed = values.detach().clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(summed)
        return summed

    def any(self, *flags: bool) -> list[bool]:
        """Return, for each flag, whether it is set in any process."""
        return [bool(flag) for flag in self.total(torch.tensor(flags).int().to(self.device))]

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.count > 1:
            distributed.barrier()


def started_processes() -> int:
    """Return how many processes torchrun has started, of which this is one; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


@contextmanager
def open_processes(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun has started, or yield the only one.

    Each process gets the GPU of its local rank.
    """
    if started_processes() == 1:
        yield Processes(device)
        return
    gpu = device.type == "cuda"
    if gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    elif "OMP_NUM_THREADS" not in os.environ:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        torch.set_num_threads(max(1, torch.get_num_threads() // here))
    distributed.init_process_group(
        "nccl" if gpu else "gloo", timeout=PATIENCE, device_id=device if gpu else None
    )
    try:
        yield Processes(device, distributed.get_rank(), distributed.get_world_size())
    except KeyboardInterrupt:
        raise  # in the middle of an exchange, leaving the group would abort the process
    except BaseException:
        distributed.destroy_process_group()
        raise
    distributed.destroy_process_group()


def launch(devices: int, device: str, function: Callable[[*Args], None], *args: *Args) -> None:
    """Call `function` in `devices` processes on this machine, as torchrun does.

    The function and its arguments are pickled. If a process fails, the others are ended and its
    error is raised here. An interrupt is passed on to all of them, then raised.
    """
    # Imported here: it takes a while, and most trainings run in one process.
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _check_devices(devices, device)
    with tempfile.TemporaryDirectory() as logs, _restored():
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=devices,
            run_id=str(os.getpid()),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, _worker)(function, *args)
        except SignalException:
            raise KeyboardInterrupt from None
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            raise ModelError(
                f"process {rank} of the training",
                f"not finished ({_reason(failure)})",
                "must run to its end, as all others",
                "fix that; the same command resumes the training",
            ) from None


def end_process(code: int) -> NoReturn:
    """End one of several processes without exit handlers.

    Those of torch's threads, which may still exchange data, abort the process now and then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _worker(function: Callable[[*Args], None], *args: *Args) -> None:
    try:
        function(*args)
    except KeyboardInterrupt:
        end_process(130)
    except RuntimeError as error:
        if not isinstance(error, DeformRSError):
            time.sleep(SECONDS_BEFORE_ECHO)
        raise


def _reason(failure: ProcessFailure) -> str:
    """Return why a process ended, in one line."""
    message: object = failure.message  # text, or a mapping where the process raised an error
    if isinstance(message, dict):
        message = message["message"]
    elif failure.exitcode > 0 and not os.path.isfile(failure.error_file):
        # torchrun only says how to see a traceback, but there is none.
        message = f"it ended with exit code {failure.exitcode}"
    return " ".join(str(message).split())[:300]


def _check_devices(devices: int, device: str) -> None:
    kind = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if kind not in ("cpu", "cuda"):
        raise InputError(
            "device", device, "must be auto, cpu or cuda with several processes", "e.g. cuda"
        )
    if kind == "cuda" and torch.cuda.device_count() < devices:
        raise InputError(
            "devices",
            devices,
            f"must be at most the number of visible GPUs, {torch.cuda.device_count()}",
            "use fewer, or make more visible by CUDA_VISIBLE_DEVICES",
        )


@contextmanager
def _restored() -> Iterator[None]:
    """Silence torchrun's agent, and restore the signal handlers that it replaces."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # what goes wrong is raised
    try:
        yield
    finally:
        logging.disable(disabled)
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)
