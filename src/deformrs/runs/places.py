"""Where the files lie that a run's options name: relative to where it was started from."""

from __future__ import annotations

import os
from pathlib import Path

from deformrs.config import Config

RELATIVE_TO = "relative_to"
"""The option that says how to get from the run folder to where the run was started from."""

_PREFIXES = ("mnist:", "cifar10:", "hf:")
_WORDS = ("digits", "mnist", "cifar10")
"""Data sets by name, whatever folders there are."""


def start_of(folder: Path) -> str:
    """How to get from a run folder to the working directory; it may be moved with all around it."""
    return Path(os.path.relpath(Path.cwd(), folder)).as_posix()


def located(text: str, folder: Path, options: Config) -> str:
    """A file or folder that an option names, as it is found from here.

    What is no relative path, or cannot be found from the run folder, stays as it is.
    """
    prefix = next((p for p in _PREFIXES if text.startswith(p)), "")
    path, code, name = text.removeprefix(prefix).partition(".py:")
    path += ".py" if code else ""
    start = options.get(RELATIVE_TO)
    if text in _WORDS or not path or not isinstance(start, str) or Path(path).is_absolute():
        return text
    found = Path(os.path.normpath(folder / start / path))
    if not found.exists():
        return text
    # The shorter way to say it, where it is the same from here.
    shown = path if Path(path).exists() and Path(path).samefile(found) else str(found)
    return f"{prefix}{shown}{':' + name if code else ''}"


def located_code(text: str, folder: Path, options: Config) -> str:
    """The same for a deformation: only its parts in Python files are paths.

    >>> located_code("rotation+shear", Path("runs/first"), {"relative_to": "../.."})
    'rotation+shear'
    """
    parts = text.split("+")
    return "+".join(located(part, folder, options) if ".py:" in part else part for part in parts)
