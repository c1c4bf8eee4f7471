"""Folders that hold runs side by side."""

from __future__ import annotations

from pathlib import Path

from deformrs.runs.files import packed_name
from deformrs.runs.folder import CERTIFICATES, CONFIG


def runs_in(folder: Path) -> list[Path]:
    """The runs that a folder holds, sorted, as a sweep lays them side by side.

    A folder that is a run itself, or that holds none, stands for itself.
    """
    if not folder.is_dir() or (folder / CONFIG).exists() or _certified(folder):
        return [folder]
    inside = sorted(folder.iterdir())
    found = [place for place in inside if (place / CONFIG).is_file() and _certified(place)]
    return found or [folder]


def _certified(folder: Path) -> bool:
    path = folder / CERTIFICATES
    return path.is_file() or packed_name(path).is_file()
