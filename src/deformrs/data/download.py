"""Published files: found in a folder, or fetched into it once, and always checked."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.request import urlopen

from deformrs.data.base import one_line
from deformrs.errors import InputError

Report = Callable[[str, int, int | None], None]
"""Told of a download as it goes: the file's name, bytes so far, bytes in all if known."""

VARIABLE = "DEFORMRS_DATA"
_CHUNK = 1 << 20
_PATIENCE_S = 30.0


def default_root() -> Path:
    """Where downloads are kept: the folder that DEFORMRS_DATA names, or the user's cache."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "deformrs"


def fetch(url: str, path: Path, md5: str, instead: str, report: Report | None = None) -> None:
    """Guarantee: when this returns, the file is there with that checksum; else it is not there.

    `instead` says what to do where there is no network.
    """
    # With the process's number, so that two that begin at once do not write the same file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    digest, done = hashlib.md5(usedforsecurity=False), 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urlopen(url, timeout=_PATIENCE_S) as answer, partial.open("wb") as file:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdecimal() else None
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if report is not None:
                    report(path.name, done, total)
            file.flush()
            os.fsync(file.fileno())
        _compare(url, digest.hexdigest(), md5, instead)
        partial.replace(path)
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"the download of {url}",
            f"not possible ({one_line(str(error)) or type(error).__name__})",
            f"must succeed once, into {path.parent}",
            instead,
        ) from None
    finally:
        if partial.exists():
            partial.unlink()


def read_checked(path: Path, md5: str) -> bytes:
    """What is in the file, if it is what was published."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            str(path),
            f"not readable ({error.strerror})",
            "must be open to you",
            "change its permissions",
        ) from None
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    _compare(str(path), found, md5, "remove the file and fetch it again")
    return data


def find(folder: Path, places: Sequence[str], names: Sequence[str]) -> Path | None:
    """The first of these files that lies in one of these places under the folder."""
    candidates = (folder / place / name for place in places for name in names)
    return next((path for path in candidates if path.is_file()), None)


def missing(folder: Path, what: str, names: Sequence[str]) -> InputError:
    """The error for a folder that does not hold what it should."""
    state = "without it" if folder.is_dir() else "a file" if folder.exists() else "not there"
    return InputError(
        f"the folder {one_line(str(folder))} of {what}",
        state,
        "must hold " + " or ".join(names),
        "give the folder that holds the published files",
    )


def _compare(name: str, found: str, md5: str, remedy: str) -> None:
    if found != md5:
        raise InputError(
            f"the md5 checksum of {name}", found, f"must be {md5}, as published", remedy
        )
