"""The report: an HTML page, the same in Markdown, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deformrs.regions import Region
from deformrs.report.captions import (
    READING,
    axis_words,
    ending_words,
    headline_words,
    legend_label,
    limits,
)
from deformrs.report.curves import save_figure
from deformrs.report.figures import figure_of
from deformrs.report.formats import Cell, Table, escape_markdown, titled_markdown, to_latex
from deformrs.report.groups import Section, make_groups, make_sections
from deformrs.report.page import render_page
from deformrs.report.reference import read_reference
from deformrs.report.tables import FEW_CLASSES, classes_tables, csv_tables, tables_of
from deformrs.report.thumbnails import Cards, ImageReader, cards_of, thumbnails_of
from deformrs.runs import StoredRun, write_atomically
from deformrs.runs.files import below, make_folder
from deformrs.space import Block

PAGE, DOCUMENT = "report.html", "report.md"
TABLES, FIGURES = "tables", "figures"


def write_report(
    runs: Sequence[StoredRun],
    out: Path,
    *,
    radii: Sequence[str] = (),
    regions: Sequence[Region | str] = (),
    reference: Path | None = None,
    images: ImageReader | None = None,
    thumbnails: int | None = None,
    title: str = "Certified robustness",
    note: str = "",
) -> dict[str, Path]:
    """Write report.html, report.md, tables/ and figures/ into `out`; return files by their names.

    Runs of one deformation on one dataset are compared in one section. `radii` are texts such as
    "10deg", "5px", "20%" or "0.065", each used where its unit fits; without any, each section has
    radii of its own. `regions` may be given as text. `reference` is a CSV file of accuracies to
    compare with (see `deformrs.report.reference`). `images` returns the image of a result, to
    be shown in the page; `thumbnails` is how many of a run are embedded there, as many as fit about
    8 MB by default. `note` stands beneath the title.

    Guarantee: no count, share, curve or radius in any of the files is above that of the results.
    """
    sections = sections_of(runs, radii=radii, regions=regions, reference=reference)
    return write_sections(
        sections, out, images=images, thumbnails=thumbnails, title=title, note=note
    )


def sections_of(
    runs: Sequence[StoredRun],
    *,
    radii: Sequence[str] = (),
    regions: Sequence[Region | str] = (),
    reference: Path | None = None,
) -> list[Section]:
    """Return the sections of a report with their counts. Arguments as for `write_report`."""
    groups = make_groups(runs)
    parsed = [region if isinstance(region, Region) else Region.parse(region) for region in regions]
    numbers = [] if reference is None else read_reference(reference)
    return make_sections(groups, radii, parsed, numbers)


def write_sections(
    sections: Sequence[Section],
    out: Path,
    *,
    images: ImageReader | None = None,
    thumbnails: int | None = None,
    title: str = "Certified robustness",
    note: str = "",
) -> dict[str, Path]:
    """Write the files of a report. Arguments and result as for `write_report`."""
    members = [entry.member for section in sections for entry in section.entries]
    copies = thumbnails_of(members, images, thumbnails)
    cards = {member.name: cards_of(member, copies[member.name]) for member in members}
    for folder in (TABLES, FIGURES):
        make_folder(below(out, folder))
    names: list[str] = []
    for section in sections:
        stem = f"{TABLES}/{section.slug}"
        texts = {f"{stem}-{name}.csv": text for name, text in csv_tables(section).items()}
        for name, table in tables_of(section).items():
            texts[f"{stem}-{name}.tex"] = to_latex(table, f"{section.slug}-{name}")
        for name, text in texts.items():
            _write(out / name, text)
        names += texts
        if section.group.block is not None and section.curves:
            figures = [f"{FIGURES}/{section.slug}.{kind}" for kind in ("png", "svg")]
            for name in figures:
                _draw(section, section.group.block, out / name)
            names += figures
    # Last, so that the files a page refers to exist before it does.
    _write(out / DOCUMENT, to_document(sections, cards, title, note))
    _write(out / PAGE, render_page(sections, copies, title, note))
    return {name: out / name for name in (PAGE, DOCUMENT, *names)}


def to_document(
    sections: Sequence[Section], cards: Mapping[str, Cards], title: str, note: str
) -> str:
    """Return the content of the page in Markdown."""
    lines = [f"# {escape_markdown(title)}", "", READING]
    lines += ["", escape_markdown(note)] if note else []
    for section in sections:
        lines += ["", f"## {escape_markdown(section.group.title)}", ""]
        lines += [
            f"- **{escape_markdown(entry.member.name)}** "
            f"({escape_markdown(entry.member.noise)}): "
            f"{escape_markdown(headline_words(section, entry))}"
            for entry in section.entries
        ]
        if section.curves:
            lines += ["", f"![Certified accuracy against radius](figures/{section.slug}.png)"]
        if ending := ending_words(section):
            lines += ["", escape_markdown(ending)]
        for table in [*tables_of(section).values(), *classes_tables(section)]:
            lines += titled_markdown(table)
        if any(len(entry.classes) > FEW_CLASSES for entry in section.entries):
            lines += ["", f"All classes: `tables/{section.slug}-classes.csv`."]
        for entry in section.entries:
            lines += titled_markdown(_cards_table(entry.member.name, cards[entry.member.name]))
    lines += ["", "## Limits of the certificates", ""]
    lines += [f"- {escape_markdown(limit)}" for limit in limits([s.group for s in sections])]
    return "\n".join(lines) + "\n"


def _draw(section: Section, block: Block, path: Path) -> None:
    figure = figure_of(
        {legend_label(member): curve for member, curve in section.curves},
        best=section.best,
        references={reference.name: reference.points for reference in section.references},
        title=section.group.title,
        radius=axis_words(section.group, block),
    )
    save_figure(figure, path)


def _cards_table(name: str, cards: Cards) -> Table:
    kinds = (("correct", cards.right), ("not correct", cards.wrong))
    return Table(
        title=f"The least robust images: {name}",
        align="lllllr",
        columns=("", "image", "label", "prediction", "radius", "probability at least"),
        rows=tuple(
            tuple(map(Cell, (kind, c.source, c.label, c.prediction, c.radius, c.probability)))
            for kind, some in kinds
            for c in some
        ),
    )


def _write(path: Path, text: str) -> None:
    # File names may hold bytes that are not UTF-8; they are shown as question marks.
    write_atomically(path, text.encode("utf-8", "replace").decode("utf-8"))
