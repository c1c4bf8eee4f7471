"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from deformrs.report.cards import Card
from deformrs.report.contents import tables_of
from deformrs.report.layout import Cell, Table, escape_markdown, to_markdown
from deformrs.report.section import Entry, Section
from deformrs.report.tabulate import FEW_CLASSES, classes_tables
from deformrs.report.words import READING, limits


def to_document(sections: Sequence[Section], title: str, note: str) -> str:
    """Everything that the page says, in Markdown; files are named beside it."""
    lines = [f"# {escape_markdown(title)}", "", READING]
    lines += ["", escape_markdown(note)] if note else []
    for section in sections:
        lines += ["", f"## {escape_markdown(section.group.title)}", ""]
        lines += [
            f"- **{escape_markdown(entry.member.name)}** "
            f"({escape_markdown(entry.member.noise)}): {escape_markdown(entry.headline)}"
            for entry in section.entries
        ]
        if section.group.block is not None:
            lines += ["", f"![Certified accuracy against radius](figures/{section.slug}.png)"]
        for table in [*tables_of(section).values(), *classes_tables(section)]:
            lines += _titled(table)
        if any(len(entry.classes) > FEW_CLASSES for entry in section.entries):
            lines += ["", f"All classes: `tables/{section.slug}-classes.csv`."]
        for entry in section.entries:
            lines += _least_robust(entry)
    lines += ["", "## What a certificate does not say", ""]
    lines += [f"- {escape_markdown(limit)}" for limit in limits([s.group for s in sections])]
    return "\n".join(lines) + "\n"


def _least_robust(entry: Entry) -> list[str]:
    rows = [
        (kind, card)
        for kind, cards in (("right", entry.cards.barely), ("not right", entry.cards.failed))
        for card in cards
    ]
    table = Table(
        title=f"The least robust images: {entry.member.name}",
        align="lllllr",
        columns=("", "picture", "label", "answer", "radius", "probability at least"),
        rows=tuple(_row(kind, card) for kind, card in rows),
    )
    return _titled(table)


def _row(kind: str, card: Card) -> tuple[Cell, ...]:
    texts = (kind, card.source, card.label, card.answer, card.reach, card.probability)
    return tuple(map(Cell, texts))


def _titled(table: Table) -> list[str]:
    return ["", f"### {escape_markdown(table.title)}", "", to_markdown(table).rstrip()]
