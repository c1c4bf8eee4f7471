"""Seconds and bytes, measured the same way for everything that is compared."""

from __future__ import annotations

import ctypes
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

Work = Callable[[], object]

_RESET_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def seconds_of(work: Work, device: torch.device) -> float:
    """How long it takes until the device is done with it."""
    _finish(device)
    began = time.perf_counter()
    work()
    _finish(device)
    return time.perf_counter() - began


def seconds_in_turns(
    works: Sequence[Work], repeats: int, device: torch.device
) -> list[list[float]]:
    """The seconds of each, measured in turns: a machine that slows down slows all alike."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for own, work in zip(taken, works, strict=True):
            own.append(seconds_of(work, device))
    return taken


def medians_in_turns(works: Sequence[Work], repeats: int, device: torch.device) -> list[float]:
    """Their medians."""
    return [statistics.median(own) for own in seconds_in_turns(works, repeats, device)]


def peak_bytes(work: Work, device: torch.device) -> int:
    """The most memory in use while it runs.

    On a GPU what torch has allocated there; on a CPU the resident size of the process, which on
    Linux is that of this moment, and elsewhere the largest since it began.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        work()
        _finish(device)
        return torch.cuda.max_memory_allocated(device)
    forgotten = _forget_peak()
    work()
    if forgotten:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource  # absent on Windows, where Linux's way is too

    kept = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kept if sys.platform == "darwin" else kept * 1024


def _forget_peak() -> bool:
    """Have Linux count the peak of this process anew; False where it cannot be asked to."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)  # what is freed but kept would count
    try:
        _RESET_PEAK.write_text("5")
    except OSError:
        return False
    return _STATUS.is_file()


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
