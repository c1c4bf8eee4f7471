"""Only pages that this command wrote are written over."""

from __future__ import annotations

from pathlib import Path

from deformrs.errors import InputError

MARKER = "<!-- written by deformrs report --paper -->"
"""The first line of a page."""


def check_replaceable(path: Path, first_line: str) -> None:
    """Raise unless there is nothing at `path`, or a file that begins with that line."""
    if not path.exists() and not path.is_symlink():
        return
    if path.is_file():
        with path.open("rb") as file:
            # A checkout may have given it other line breaks.
            if file.readline(1000).rstrip(b"\r\n") == first_line.encode():
                return
    raise InputError(
        str(path),
        "there already",
        f"must not be replaced unless it begins with {first_line}",
        "choose another folder with --out, or move it away",
    )
