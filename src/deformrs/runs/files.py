"""Atomic writes, locks, digests and packed files."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from deformrs.errors import InputError
from deformrs.limits import RUN_BYTES, open_file, read_file, unpack_xz


def write_atomically(path: Path, content: str | bytes) -> None:
    """Guarantee: the file holds either its old content or all of the new one, never a part."""
    with naming(path), replacement(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of `path` when the block ends, unless it raises.

    Guarantee: nothing is written through a link: one of that name is replaced, not followed.
    """
    partial, file = _new_file(path.parent)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "posix":  # still locked: otherwise it could be removed as a leftover
                partial.replace(path)
        if os.name != "posix":  # where an open file cannot be renamed
            partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def open_for_appending(path: Path) -> IO[str]:
    """Open a text file to append to, made if it is missing; links and devices are refused."""
    check_not_linked(path)
    # Without O_NONBLOCK, opening a named pipe would wait for a reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = open(  # noqa: SIM115 (it is returned)
        path,
        "a",
        encoding="utf-8",
        newline="\n",
        opener=lambda name, _: os.open(name, flags, 0o666),
    )
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(str(path), "a device or a pipe", "must be a file", "remove it")
    return file


def append(file: IO[str], text: str) -> None:
    """Guarantee: when this returns, the text is on the disk."""
    left = text.encode()
    with naming(Path(file.name)):
        while left:  # past the buffer, which closing the file would write again
            left = left[os.write(file.fileno(), left) :]
        os.fsync(file.fileno())


def make_folder(path: Path) -> Path:
    """Return the folder, made with its parents where they are missing.

    Guarantee: when this returns, the names of all of them are on the disk.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(made):
        sync_folder(folder.parent)
    return path


def below(folder: Path, name: str) -> Path:
    """Return the path of a file or folder inside of a folder; raise if it is a link.

    The folder itself may be one, as its user named it. What lies inside may come from others.
    """
    check_not_linked(folder / name)
    return folder / name


def check_not_linked(path: Path) -> None:
    """Raise if the path is a link, which could lead out of a folder that came from others."""
    if path.is_symlink():
        raise InputError(
            str(path),
            "a link",
            "is not followed when something is written inside of a folder",
            "remove the link, or name another folder",
        )


_PREFIX, _SUFFIX = ".deformrs-", ".partial"
"""Around a random number, the name of a file that is being written."""


def _new_file(folder: Path) -> tuple[Path, BinaryIO]:
    """Return a new file under a random name, locked for as long as it is open."""
    _remove_leftovers(folder)
    while True:
        path = folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        file = path.open("xb")  # O_EXCL: never through a link
        _locked(file, wait=True)  # a file system without locks has no leftovers removed
        if path.exists():
            return path, file
        file.close()  # taken for a leftover before it was locked


def _remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files of processes that were killed, and of no living process."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        # Gone meanwhile: its writer has finished. Not permitted: it is another user's.
        with suppress(FileNotFoundError, PermissionError):
            if stat.S_ISREG(path.lstat().st_mode):
                with path.open("r+b") as file:
                    if _locked(file):
                        path.unlink()


def _locked(file: BinaryIO, *, wait: bool = False) -> bool:
    """Return whether the file is locked for this process now."""
    if os.name != "posix":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the operating system name the file, which those of a write do not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_folder(folder: Path) -> None:
    """Make the names of new files survive a power cut, on POSIX systems."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with naming(folder):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_digest(path: Path, *, links: bool = True) -> str:
    """Return the SHA-256 of a file, as `sha256sum` prints it; without `links` not of a link."""
    with open_file(path, links=links) as file:
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
    plain = read_file(path, RUN_BYTES, links=False) if os.path.lexists(path) else None
    packed = packed_name(path)
    if not os.path.lexists(packed):
        return plain
    content = unpack_xz(packed, read_file(packed, RUN_BYTES, links=False))
    if plain is not None and plain != content:
        raise InputError(
            str(path),
            f"different from {packed.name} in the same folder",
            "must hold the same, or be alone",
            "keep the one you want, and move the other away",
        )
    return content


def lock(file: IO[str] | IO[bytes], path: Path) -> None:
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
