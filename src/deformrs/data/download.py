"""Published files: found in a folder or downloaded into it, and always verified."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

from deformrs.errors import InputError
from deformrs.limits import PUBLISHED_BYTES, read_file
from deformrs.runs.files import make_folder, replacement

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes so far, and the bytes in total if known."""

VARIABLE = "DEFORMRS_DATA"
_CHUNK = 1 << 20
_TIMEOUT_S = 30.0


def default_root() -> Path:
    """Return the folder of downloads: what DEFORMRS_DATA names, or the user's cache."""
    try:
        if os.environ.get(VARIABLE):
            return Path(os.environ[VARIABLE]).expanduser()
        if sys.platform == "win32":
            cache = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            cache = Path.home() / "Library" / "Caches"
        else:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # a user without a home
        raise InputError(
            "the home folder",
            f"not known ({error})",
            "must be known, to keep what is downloaded",
            f"let {VARIABLE} name a folder",
        ) from None
    return cache / "deformrs"


def fetch(
    url: str, path: Path, md5: str, remedy: str, progress: DownloadProgress | None = None
) -> None:
    """Download a file and verify its checksum; `remedy` is for users without a network.

    Guarantee: when this returns, the file is there with that checksum; if it raises, it is not.
    """
    digest, done = hashlib.md5(usedforsecurity=False), 0
    try:
        make_folder(path.parent)
        with urlopen(url, timeout=_TIMEOUT_S) as response, replacement(path) as file:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdecimal() else None
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(path.name, done, total)
            _check_md5(url, digest.hexdigest(), md5, remedy)
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"the download of {url}",
            f"not possible ({str(error) or type(error).__name__})",
            f"must succeed once, into {path.parent}",
            remedy,
        ) from None


def find_published(folder: Path, places: Sequence[str], names: Sequence[str]) -> Path | None:
    """Return the first of these files in one of these subfolders, or None."""
    candidates = (folder / place / name for place in places for name in names)
    return next((path for path in candidates if path.is_file()), None)


def read_published(
    dataset: str, folder: Path, places: Sequence[str], md5s: Mapping[str, str]
) -> tuple[str, bytes]:
    """Return the name and the content of the first published file that a folder holds.

    `md5s` maps the names of the forms in which the file was published to their checksums.
    """
    path = find_published(folder, places, tuple(md5s))
    if path is None:
        state = "without it" if folder.is_dir() else "a file" if folder.exists() else "not there"
        raise InputError(
            f"the folder {folder} of {dataset}",
            state,
            "must hold " + " or ".join(md5s),
            "give the folder that holds the published files",
        )
    try:
        data = read_file(path, PUBLISHED_BYTES)
    except OSError as error:
        raise InputError(
            str(path), f"not readable ({error.strerror})", "must be readable", "check permissions"
        ) from None
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    _check_md5(str(path), md5, md5s[path.name], "remove the file and fetch it again")
    return path.name, data


def _check_md5(name: str, md5: str, published: str, remedy: str) -> None:
    if md5 != published:
        raise InputError(
            f"the md5 checksum of {name}", md5, f"must be {published}, as published", remedy
        )
