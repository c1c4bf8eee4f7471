"""Which tables a section has."""

from __future__ import annotations

from deformrs.report.comparison import best_table, same_scale_table
from deformrs.report.layout import Table
from deformrs.report.section import Section
from deformrs.report.tabulate import accuracy_table, regions_table, runs_table


def tables_of(section: Section) -> dict[str, Table]:
    """The tables of a section by the names of their files."""
    found = {
        "accuracy": accuracy_table(section),
        "regions": regions_table(section),
        "published": best_table(section),
        "same-scale": same_scale_table(section),
        "runs": runs_table(section),
    }
    return {name: table for name, table in found.items() if table is not None}
