"""The memory of a process of its own: a command, or a worker. Needs no torch."""

from __future__ import annotations

import ctypes
import platform


def keep_freed_memory() -> None:
    """Keep large blocks of memory in the process instead of returning them after every batch.

    Page faults would cost more than the arithmetic of a small network. This must happen before
    torch allocates, and only glibc needs it.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        mmap_threshold, trim_threshold = -3, -1
        libc.mallopt(mmap_threshold, 2**30)
        libc.mallopt(trim_threshold, 2**31 - 1)
