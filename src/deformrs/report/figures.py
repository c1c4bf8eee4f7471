"""Writing a figure so that no half of it is ever seen."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Guarantee: the file holds either its old content or the whole new picture."""
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, dpi=dpi, format=path.suffix.removeprefix("."))
    partial.replace(path)
