"""Tables and the formats they are written in: Markdown, LaTeX and CSV; YAML for model cards."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from deformrs.errors import printable
from deformrs.rounding import format_down

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
    # At the start of a row these would be arguments of the line break above it.
    "[": "{[}",
    "*": "{*}",
}


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and a detail and an interval in small print."""

    text: str
    detail: str = ""
    interval: str = ""


@dataclass(frozen=True)
class Table:
    """Columns, rows of cells, and notes below.

    `align` has one letter per column: l for words, r for numbers.
    """

    title: str
    align: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[str, ...]:
        """The alignment of each column as a CSS class."""
        return tuple("right" if letter == "r" else "left" for letter in self.align)


def to_markdown(table: Table) -> str:
    """Return the table in Markdown, details in parentheses."""
    rules = ["---:" if letter == "r" else "---" for letter in table.align]
    lines = [_line(map(escape_markdown, table.columns)), _line(rules)]
    for row in table.rows:
        lines.append(_line(map(escape_markdown, map(_text, row))))
    notes = [f"\n{escape_markdown(note)}" for note in table.notes]
    return "\n".join([*lines, *notes]) + "\n"


def titled_markdown(table: Table) -> list[str]:
    """Return the lines of the table in Markdown, below its title as a heading."""
    return ["", f"### {escape_markdown(table.title)}", "", to_markdown(table).rstrip()]


def to_text(table: Table, width: int) -> list[str]:
    """Return the lines of the table for a terminal, in several parts if it is wider than that."""
    cells = [table.columns, *((_text(cell) for cell in row) for row in table.rows)]
    columns = [[one_line(text) for text in column] for column in zip(*cells, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    parts: list[list[int]] = [[]]
    for k in range(1, len(columns)):
        if parts[-1] and widths[0] + sum(2 + widths[i] for i in [*parts[-1], k]) > width:
            parts.append([])
        parts[-1].append(k)
    lines: list[str] = []
    for part in parts:
        lines += [""] if lines else []
        for row in zip(*(columns[k] for k in [0, *part]), strict=True):
            first, *others = (
                text.ljust(widths[k]) if table.align[k] == "l" else text.rjust(widths[k])
                for text, k in zip(row, [0, *part], strict=True)
            )
            lines.append("  ".join([first, *others]).rstrip())
    return lines


def _text(cell: Cell) -> str:
    details = "; ".join(text for text in (cell.detail, cell.interval) if text)
    return f"{cell.text} ({details})" if details else cell.text


def to_latex(table: Table, label: str) -> str:
    """Return the table in LaTeX, for the package booktabs, without the details."""
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


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]) -> str:
    """Return rows as CSV below a line of column names; None becomes an empty field.

    Guarantee: no text is a formula to a spreadsheet. One that begins like a formula gets an
    apostrophe before it, which spreadsheets take as the sign of text; numbers stay as they are.

    >>> to_csv(["a", "b"], [[-1, None], ["=1+1", "-1"]])
    "a,b\\n-1,\\n'=1+1,-1\\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(_csv_cell, row) for row in (columns, *rows))
    return text.getvalue()


# Also after quotes and spaces, which some spreadsheets drop, and in their full-width forms.
_FORMULA = re.compile(r"""[\s"']*[=+\-@＝＋－＠]""")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?", re.IGNORECASE)


def _csv_cell(value: str | int | float | None) -> str | int | float | None:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


YAMLValue = str | int | float | Decimal | Sequence["YAMLValue"] | Mapping[str, "YAMLValue"]
"""What `to_yaml` writes: keys are words of this package, texts may be anything."""

# Quotes keep a text from being YAML; this, from being HTML or a link where YAML is not read.
_OF_MARKUP = re.compile(r"[<>&`\[\]]")


def to_yaml(values: Mapping[str, YAMLValue]) -> str:
    """Return a mapping as YAML 1.1 and 1.2, its texts in quotes.

    Guarantee: a text is read back as it is printed, and as nothing but text, whatever it holds.

    >>> print(to_yaml({"name": "yes: #1 <b>", "alpha": 1e-5, "tags": ["a", "b"]}), end="")
    name: "yes: #1 \\u003cb\\u003e"
    alpha: 1.0e-05
    tags:
      - "a"
      - "b"
    """
    return "".join(f"{line}\n" for line in _yaml_lines(values))


def _yaml_lines(value: YAMLValue) -> list[str]:
    lines = []
    if isinstance(value, Mapping):
        for key, part in value.items():
            first, *others = _yaml_lines(part)
            if isinstance(part, str | int | float | Decimal):
                lines.append(f"{key}: {first}")
            else:
                lines += [f"{key}:", *(f"  {line}" for line in (first, *others))]
    elif isinstance(value, str):
        text = json.dumps(printable(value), ensure_ascii=False)
        lines.append(_OF_MARKUP.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
    elif isinstance(value, Sequence):
        for part in value:
            first, *others = _yaml_lines(part)
            lines += [f"- {first}", *(f"  {line}" for line in others)]
    else:
        # Without a point, YAML 1.1 takes 1e-05 for a text.
        lines.append(re.sub(r"^(-?\d+)e", r"\1.0e", str(value)))
    return lines


def signed(value: Fraction, decimals: int) -> str:
    """Return a difference rounded down, with its sign.

    >>> signed(Fraction(-1, 3), 1)
    '−0.4'
    """
    text = format_down(value, decimals)
    return text.replace("-", "−") if text.startswith("-") else f"+{text}"


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    >>> print(escape_latex("50 % of class_1"))
    50 \% of class\_1
    """
    return "".join(_LATEX.get(letter, letter) for letter in one_line(text))


# Underscores do nothing within a word; headings and lists begin a line.
_MARKDOWN = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)|^(?:#+|[+-])(?= )")


def escape_markdown(text: str) -> str:
    r"""Return text that Markdown shows as it is, also inside a table.

    >>> print(escape_markdown("a|b <i>"))
    a\|b \<i\>
    """
    return _MARKDOWN.sub(r"\\\g<0>", one_line(text))


def one_line(text: str) -> str:
    """Return text without line breaks and control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _line(cells: map[str] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
