"""ImageNet's thousand classes in their usual order."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files

CLASSES = files("deformrs.data") / "imagenet_classes.csv"
COUNT = 1000

_VALIDATION = re.compile(r"ILSVRC2012_val_[0-9]{8}\.JPEG", re.IGNORECASE)


@cache
def wnids() -> dict[str, int]:
    """Each class's WordNet id and its number.

    >>> wnids()["n01443537"]
    1
    """
    return {row["wnid"]: number for number, row in enumerate(_rows())}


@cache
def class_names() -> tuple[str, ...]:
    """One short name a class, no two the same.

    >>> class_names()[:2]
    ('tench', 'goldfish')
    """
    return tuple(row["name"] for row in _rows())


def is_validation_file(name: str) -> bool:
    """Is the file called as in ImageNet's validation set?

    >>> is_validation_file("ILSVRC2012_val_00000347.JPEG")
    True
    """
    return _VALIDATION.fullmatch(name) is not None


def _rows() -> list[dict[str, str]]:
    with CLASSES.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
