"""How much memory there is for pictures, and how much a set of them takes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import torch

from deformrs.errors import InputError

_UNKNOWN = 4 * 2**30
"""What is taken for free where a system does not tell."""


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        # What holds copies of files can be had too, which sysconf does not count.
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def check_room(what: str, size: int, device: torch.device) -> None:
    """Raise unless so many bytes are free on the device."""
    free = free_bytes(device)
    if size > free:
        raise InputError(
            what,
            size_words(size),
            f"must fit into the memory of {device}, where {size_words(free)} are free",
            "--hold no reads them from the disk as they are needed",
        )


def is_light(pictures: object, most: int) -> bool:
    """Can the set be sent to other processes in at most that many bytes?"""
    scale = _Scale(most)
    try:
        pickle.Pickler(scale, protocol=5, buffer_callback=scale.weigh).dump(pictures)
    # What cannot be pickled says so in many ways.
    except Exception:
        return False
    return True


def size_words(size: int) -> str:
    """Bytes as people say them.

    >>> size_words(47_040_000), size_words(2_500_000_000), size_words(784)
    ('47 MB', '2.5 GB', '784 bytes')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.{0 if size >= 10 * factor else 1}f} {unit}"
    return f"{size} bytes"


class _Scale:
    """A file that keeps nothing, and stops when too much was written."""

    def __init__(self, most: int) -> None:
        self._left = most

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise OverflowError("too much")
        return size

    def weigh(self, buffer: pickle.PickleBuffer) -> None:
        self.write(buffer.raw())
