"""Compression of finished runs."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

from deformrs.errors import InputError
from deformrs.limits import open_file
from deformrs.runs.files import lock, packed_name, stored_bytes, sync_folder, write_atomically
from deformrs.runs.folder import CERTIFICATES, TIMES, read_run

_PARTS = (CERTIFICATES, TIMES)


@dataclass(frozen=True)
class Packed:
    """The size of a run's files before and after, in bytes."""

    before: int
    after: int


def pack_run(folder: Path) -> Packed:
    """Compress the certificates and times of a run, which can then be read but not written.

    Guarantee: the lines read or unpacked are the same bytes, and at no moment absent from the disk.
    """
    if not read_run(folder).results:  # which also checks that every line is complete
        raise InputError(f"the run in {folder}", "empty", "has nothing to pack", "certify first")
    return _changed(folder, pack=True)


def unpack_run(folder: Path) -> Packed:
    """Decompress a packed run, to resume it."""
    read_run(folder)
    return _changed(folder, pack=False)


def _changed(folder: Path, *, pack: bool) -> Packed:
    before = after = 0
    for part in _PARTS:
        plain = folder / part
        source, target = (plain, packed_name(plain)) if pack else (packed_name(plain), plain)
        if not source.exists():
            found = target.stat().st_size if target.exists() else 0
            before, after = before + found, after + found
            continue
        with open_file(source, links=False) as file:
            lock(file, source)  # against a process that still certifies
            before += source.stat().st_size
            content = stored_bytes(source if pack else plain)
            assert content is not None
            write_atomically(
                target, lzma.compress(content, preset=9 | lzma.PRESET_EXTREME) if pack else content
            )
            source.unlink()
            sync_folder(folder)
        after += target.stat().st_size
    return Packed(before, after)
