"""Writing a figure so that no half of it is ever seen."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Guarantee: the file holds either its old content or the whole new picture."""
    partial = path.with_name(path.name + ".partial")
    kind = path.suffix.removeprefix(".")
    # Some formats carry the date and random names unless told not to; equal figures, equal files.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with matplotlib.rc_context({"svg.hashsalt": "deformrs"}):
        figure.savefig(partial, dpi=dpi, format=kind, metadata=metadata)
    partial.replace(path)
