"""Reference certified accuracies for comparison with runs, read from a CSV file.

One line per number, with the columns

    dataset,deformation,radius,accuracy,name
    cifar10,rotation,10deg,93.07,best of the paper

`dataset` and `deformation` are the names in a run's configuration, `radius` is text such as
10deg, 5px, 20% or 0.1 (the l2 norm where a deformation has several parameters), `accuracy` is in
per cent. `name` is optional; each name is a column and a curve of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from deformrs.errors import InputError
from deformrs.limits import JSON_BYTES, read_text
from deformrs.report.radii import parse_radii
from deformrs.space import Block
from deformrs.units import Size

REQUIRED, OPTIONAL = ("dataset", "deformation", "radius", "accuracy"), ("name",)


@dataclass(frozen=True)
class ReferenceNumber:
    """One line of the file."""

    dataset: str
    deformation: str
    radius: str
    accuracy: Fraction
    name: str
    line: str
    """The line and the file, for messages."""


@dataclass(frozen=True)
class Reference:
    """The numbers of one name for one deformation on one dataset, by rising radius."""

    name: str
    points: tuple[tuple[Fraction, Fraction], ...]
    """Radii in the displayed unit, and accuracies in per cent."""

    def at(self, radius: Fraction) -> Fraction | None:
        """Return the accuracy at that radius, None if there is none."""
        return next((accuracy for x, accuracy in self.points if abs(x - radius) < 1e-9), None)


def read_reference(path: Path) -> list[ReferenceNumber]:
    """Return the numbers of a CSV file of reference accuracies."""
    try:
        text = read_text(path, JSON_BYTES, encoding="utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        columns, rows = tuple(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            str(path), f"unreadable ({error})", "must be a CSV file", "check the path"
        ) from None
    if not set(REQUIRED) <= set(columns) <= {*REQUIRED, *OPTIONAL}:
        rule = f"must have the columns {', '.join(REQUIRED)} and may have {', '.join(OPTIONAL)}"
        raise InputError(f"the header of {path}", ",".join(columns), rule, "rename the columns")
    return [_number(row, f"line {k} of {path}") for k, row in enumerate(rows, start=2)]


def references_for(
    numbers: Sequence[ReferenceNumber],
    dataset: str | None,
    deformation: str,
    block: Block,
    size: Size,
) -> tuple[Reference, ...]:
    """Return the references for one deformation on one dataset, a name each."""
    points: dict[str, dict[Fraction, Fraction]] = {}
    own = (n for n in numbers if (n.dataset, n.deformation) == (dataset, deformation))
    for number in own:
        radii = parse_radii([number.radius], block, size)
        if not radii:
            raise InputError(
                f"the radius in {number.line}",
                repr(number.radius),
                f"must be a radius of {deformation}",
                f"e.g. {block.unit.example}",
            )
        of_name, radius = points.setdefault(number.name, {}), radii[0].displayed(size)
        if of_name.setdefault(radius, number.accuracy) != number.accuracy:
            raise InputError(
                number.line, "another accuracy", "must not contradict a line above", "remove one"
            )
    return tuple(Reference(name, tuple(sorted(some.items()))) for name, some in points.items())


def _number(row: dict[str, str], line: str) -> ReferenceNumber:
    try:
        accuracy = Fraction(row["accuracy"])
    except (ValueError, TypeError, ZeroDivisionError):
        accuracy = Fraction(-1)
    if None in row or not 0 <= accuracy <= 100:
        raise InputError(
            f"the accuracy in {line}",
            repr(row["accuracy"]),
            "must be a number in [0, 100]",
            "e.g. 93.07",
        )
    name = row.get("name") or "reference"
    return ReferenceNumber(row["dataset"], row["deformation"], row["radius"], accuracy, name, line)
