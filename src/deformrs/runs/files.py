"""Atomic writes, locks, digests and packed files."""

from __future__ import annotations

import hashlib
import lzma
import os
from pathlib import Path
from typing import IO

from deformrs.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Guarantee: the file holds either its old content or all of the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names of new files survive a power cut, on POSIX systems."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def packed_name(path: Path) -> Path:
    """Return the name of a file when it is packed.

    >>> packed_name(Path("run/times.tsv")).name
    'times.tsv.xz'
    """
    return path.with_name(path.name + ".xz")


def stored_bytes(path: Path) -> bytes | None:
    """Return the content of a file, packed or not; None if there is neither.

    Both exist if packing was interrupted; they must then hold the same.
    """
    plain = path.read_bytes() if path.exists() else None
    packed = packed_name(path)
    if not packed.exists():
        return plain
    try:
        content = lzma.decompress(packed.read_bytes(), format=lzma.FORMAT_XZ)
    except lzma.LZMAError as error:
        raise InputError(
            str(packed), f"damaged ({error})", "must be as deformrs packed it", "restore it"
        ) from None
    if plain is not None and plain != content:
        raise InputError(
            str(path),
            f"different from {packed.name} in the same folder",
            "must hold the same, or be alone",
            "keep the one you want, and move the other away",
        )
    return content


def lock(file: IO[str], path: Path) -> None:
    """Keep other processes from writing the same file, for as long as it is open."""
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            str(path),
            "being written by another process",
            "must have one writer",
            "wait for it, or choose another folder",
        ) from None
