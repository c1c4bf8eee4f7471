"""Pictures listed with their labels in a labels.csv."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from deformrs.data.base import Wanted, one_line
from deformrs.data.labels import BY_WORDS, number_words, own_words, unknown_class
from deformrs.errors import InputError

LABELS = "labels.csv"
HEADER = ["file", "label"]


@dataclass(frozen=True)
class Listed:
    """Files and labels in the order of the list, and the rule that gave the labels.

    `class_names` are those that the list itself brings, None where it brings none.
    """

    files: tuple[str, ...]
    labels: tuple[int, ...]
    rule: str
    class_names: tuple[str, ...] | None


def read_list(folder: Path, wanted: Wanted) -> Listed:
    """The list in that folder.

    A label is a whole number, a class name of the model, or a WordNet id or a class name of
    ImageNet; all labels of a list are of one kind. To train a model whose classes are not known
    yet, words of one's own will do: they are numbered in sorted order.
    """
    rows = _rows(folder / LABELS)
    lines: dict[str, int] = {}
    for line, file, _ in rows:
        path = _inside(folder, file, f"the file on line {line} of {LABELS}")
        if path in lines:
            raise InputError(
                f"the file on line {line} of {LABELS}",
                repr(file),
                f"must be listed once, but is on line {lines[path]} too",
                "remove one of the two",
            )
        lines[path] = line
    words = list(dict.fromkeys(word for _, _, word in rows))
    numbers, rule = number_words(words, wanted.class_names, wanted.num_classes)
    own = None
    if rule is None and wanted.split == "train" and wanted.num_classes is None:
        own = own_words(words)
    if own is not None:
        numbers, rule = {word: number for number, word in enumerate(own)}, BY_WORDS
    if rule is None:
        line, word = next((line, word) for line, _, word in rows if word not in numbers)
        what = f"the label on line {line} of {LABELS}"
        raise unknown_class(what, word, numbers, wanted.class_names)
    labels = tuple(numbers[word] for _, _, word in rows)
    return Listed(tuple(lines), labels, f"{LABELS}: {rule}", own)


def _rows(path: Path) -> list[tuple[int, str, str]]:
    """Line number, file and label."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            one_line(str(path)),
            f"not readable ({one_line(str(error))})",
            "must be a text of lines file,label in UTF-8",
            "save it as CSV",
        ) from None
    if [cell.strip() for cell in header] != HEADER:
        raise InputError(
            f"line 1 of {one_line(str(path))}",
            repr(",".join(header)),
            "must be the header file,label",
            "write it above the list",
        )
    for line, row in rows:
        if len(row) != len(HEADER):
            raise InputError(
                f"line {line} of {LABELS}",
                f"of {len(row)} value{'s' * (len(row) != 1)}",
                "must be a file and its label",
                "put quotes around a name that has commas",
            )
    if not rows:
        raise InputError(one_line(str(path)), "empty", "must list pictures", "add one a line")
    return [(line, file, label.strip()) for line, (file, label) in rows]


def _inside(folder: Path, file: str, what: str) -> str:
    """The file's path relative to the folder, in which it must lie."""
    path = Path(os.path.normpath(file))
    if not file.strip() or path.is_absolute() or path.drive or ".." in path.parts:
        raise InputError(
            what,
            repr(file),
            "must be the name of a file in that folder or below",
            f"give it relative to the folder of {LABELS}",
        )
    try:
        there = (folder / path).is_file()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if not there:
        raise InputError(what, repr(file), "must be there", "add the file, or remove the line")
    return path.as_posix()
