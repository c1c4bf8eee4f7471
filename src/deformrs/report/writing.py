"""Writes a report: one page, the same as Markdown, and tables and figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deformrs.regions import Region
from deformrs.report.cards import ImagesOf
from deformrs.report.contents import tables_of
from deformrs.report.csvs import csv_tables
from deformrs.report.curves import draw_curves
from deformrs.report.document import to_document
from deformrs.report.groups import lookup, make_groups, slugs
from deformrs.report.layout import to_latex
from deformrs.report.page import render_page
from deformrs.report.radii import radii_of
from deformrs.report.section import Section, make_section
from deformrs.runs import StoredRun, write_atomically

PAGE, DOCUMENT = "report.html", "report.md"
TABLES, FIGURES = "tables", "figures"


def write_report(
    runs: Sequence[StoredRun],
    out: Path,
    *,
    radii: Sequence[str] = (),
    regions: Sequence[Region | str] = (),
    images: ImagesOf | None = None,
    title: str = "Certified robustness",
    note: str = "",
) -> dict[str, Path]:
    """Write report.html, report.md, tables/ and figures/ into `out`; files by their names there.

    Runs of one deformation on one data set are compared in one section. `radii` are texts such as
    "10deg", "5px", "20%" or "0.065", each used where its unit fits; without any, each section has
    radii of its own. `regions` may be given as text. `images` hands the image of a result to
    be shown in the page. `note` is what readers must know of these runs, beneath the title.

    Guarantee: no count, share, curve or radius in any of the files is above that of the results.
    """
    groups = make_groups(runs)
    if not regions and len(groups) == 1:
        regions = _settled(runs)
    asked = [region if isinstance(region, Region) else Region.parse(region) for region in regions]
    sections = [
        make_section(group, slug, own, radii[0] if radii else None, asked, images)
        for group, slug, own in zip(groups, slugs(groups), radii_of(groups, radii), strict=True)
    ]
    for folder in (TABLES, FIGURES):
        (out / folder).mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for section in sections:
        for name, text in _texts(section).items():
            written[name] = out / name
            _write(out / name, text)
        if section.group.block is not None:
            for kind in ("png", "svg"):
                name = f"{FIGURES}/{section.slug}.{kind}"
                written[name] = out / name
                draw_curves(section, section.group.block, out / name)
    # Last, so that whatever the page speaks of is there when it is.
    _write(out / DOCUMENT, to_document(sections, title, note))
    _write(out / PAGE, render_page(sections, title, note))
    return {PAGE: out / PAGE, DOCUMENT: out / DOCUMENT} | written


def _settled(runs: Sequence[StoredRun]) -> list[str]:
    """The regions at which sampling stopped, as they were typed, each once."""
    found = [lookup(run.config, "stopping", "regions") for run in runs]
    texts = [text for regions in found if isinstance(regions, list) for text in regions]
    made_in_python = ("Region(", "Patch(")
    return [t for t in dict.fromkeys(map(str, texts)) if not t.startswith(made_in_python)]


def _write(path: Path, text: str) -> None:
    """Names of files may hold bytes that are no text; they are shown as question marks."""
    write_atomically(path, text.encode("utf-8", "replace").decode("utf-8"))


def _texts(section: Section) -> dict[str, str]:
    csvs = {
        f"{TABLES}/{section.slug}-{name}.csv": text for name, text in csv_tables(section).items()
    }
    latex = {
        f"{TABLES}/{section.slug}-{name}.tex": to_latex(table, f"{section.slug}-{name}")
        for name, table in tables_of(section).items()
    }
    return csvs | latex
