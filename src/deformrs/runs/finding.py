"""Folders that hold runs side by side."""

from __future__ import annotations

from pathlib import Path

from deformrs.runs.folder import CERTIFICATES, CONFIG


def runs_in(folder: Path) -> list[Path]:
    """The runs that a folder holds, sorted, as a sweep lays them side by side.

    A folder that is a run itself, or that holds none, stands for itself.
    """
    parts = (CONFIG, CERTIFICATES)
    if not folder.is_dir() or any((folder / part).exists() for part in parts):
        return [folder]
    inside = sorted(folder.iterdir())
    found = [place for place in inside if all((place / part).is_file() for part in parts)]
    return found or [folder]
