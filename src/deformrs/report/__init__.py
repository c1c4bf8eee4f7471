"""Reports, tables and figures from the certificates of runs. Needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deformrs.report.document import write_report
    from deformrs.report.export import export_tsv, results_frame
    from deformrs.report.figures import curve, draw_curve
    from deformrs.report.summary import count_certified, summarise

_HOMES = {
    "count_certified": "summary",
    "curve": "figures",
    "draw_curve": "figures",
    "export_tsv": "export",
    "results_frame": "export",
    "summarise": "summary",
    "write_report": "document",
}

__all__ = [
    "count_certified",
    "curve",
    "draw_curve",
    "export_tsv",
    "results_frame",
    "summarise",
    "write_report",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: most need no matplotlib."""
    if name not in _HOMES:
        raise AttributeError(f"module 'deformrs.report' has no attribute {name!r}")
    return getattr(import_module(f"deformrs.report.{_HOMES[name]}"), name)
