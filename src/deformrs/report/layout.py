"""A table as plain text, once, and the forms it is written in."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "°": r"\textdegree{}",
    "†": r"\textdagger{}",
    "–": "--",
    "−": r"\ensuremath{-}",
    "λ": r"\ensuremath{\lambda}",
    "σ": r"\ensuremath{\sigma}",
}


@dataclass(frozen=True)
class Cell:
    """What stands in a cell, and the smaller print below it."""

    text: str
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """Columns, rows of cells, and notes below.

    `align` has a letter for each column: l for words, r for numbers.
    """

    title: str
    align: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[str, ...]:
        """The alignment of each column, as style sheets name it."""
        return tuple("right" if letter == "r" else "left" for letter in self.align)


def to_markdown(table: Table) -> str:
    """A table for notes and repositories."""
    rules = ["---:" if letter == "r" else "---" for letter in table.align]
    lines = [_line(map(escape_markdown, table.columns)), _line(rules)]
    for row in table.rows:
        cells = (f"{c.text} ({c.detail})" if c.detail else c.text for c in row)
        lines.append(_line(map(escape_markdown, cells)))
    notes = [f"\n{escape_markdown(note)}" for note in table.notes]
    return "\n".join([*lines, *notes]) + "\n"


def to_latex(table: Table, label: str) -> str:
    """A table for papers; it needs the package booktabs. The small print is left to the CSV."""
    head = " & ".join(map(escape_latex, table.columns))
    rows = [" & ".join(escape_latex(cell.text) for cell in row) + r" \\" for row in table.rows]
    notes = [rf"\par\footnotesize {escape_latex(note)}" for note in table.notes]
    lines = [
        "% \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{table.align}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        *notes,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape_latex(text: str) -> str:
    r"""The text as LaTeX prints it.

    >>> print(escape_latex("50 % of class_1"))
    50 \% of class\_1
    """
    return "".join(_LATEX.get(letter, letter) for letter in one_line(text))


def escape_markdown(text: str) -> str:
    r"""The text as Markdown shows it: no markup, no cell of its own.

    >>> print(escape_markdown("a|b <i>"))
    a\|b \<i\>
    """
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", one_line(text))


def one_line(text: str) -> str:
    """Without line breaks and control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _line(cells: map[str] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
