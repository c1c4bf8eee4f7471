"""The numbers of the paper, as shipped in published.csv (made by tools/make_published.py)."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from deformrs.units import Size

PUBLISHED = Path(__file__).with_name("published.csv")
COLUMNS = (
    "table",
    "dataset",
    "deformation",
    "region",
    "noise",
    "scale",
    "scale_unit",
    "radius",
    "unit",
    "method",
    "certified_accuracy",
    "average_radius",
    "note",
    "misprint",
)
METHOD = "DeformRS"
ABLATION, HEADLINE = "ablation", "headline"
SIZES: dict[str, Size] = {"mnist": (28, 28), "cifar10": (32, 32), "imagenet": (224, 224)}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imagenet": "ImageNet"}
ALPHA = 0.001
"""At which all its certificates are."""
_PROTOCOL = f"with n0 = 100, n = 100,000 and alpha = {ALPHA}"
SETTINGS = {
    "mnist": f"a ResNet-18 trained for each noise scale, {_PROTOCOL}; its figures are multiples "
    "of 0.01 %, as 10,000 test images give",
    "cifar10": f"a ResNet-18 trained for each noise scale, {_PROTOCOL}; its figures are multiples "
    "of 0.01 %, as 10,000 test images give",
    "imagenet": f"a pretrained ResNet-50 fine-tuned for each noise scale, {_PROTOCOL}; its figures "
    "are multiples of 0.2 %: 500 validation images",
}
# The DCT tables were made with k = 2 and a basis of twice the frequency of the paper's text.
_ONLY = {"dct": {"k": 2, "basis": "cosine"}}


@dataclass(frozen=True)
class Number:
    """One published number. `radius` and `average` are in degrees, pixels or per cent."""

    table: str
    region: str
    noise: str | None
    scale: float | None
    """In the package's own unit: radians, half sides, fractions."""
    scale_shown: str
    radius: Fraction | None
    method: str
    accuracy: Fraction | None
    average: Fraction | None
    note: str
    misprint: str
    unit: str
    """What the file has its radius in: deg, px, fraction or 1."""

    def is_at(self, radius: Fraction) -> bool:
        """Does it speak of that radius?"""
        return self.radius is not None and math.isclose(
            self.radius, radius, rel_tol=1e-9, abs_tol=1e-12
        )

    @property
    def dagger(self) -> str:
        """What stands beside a number that cannot be right."""
        return " †" if self.misprint else ""

    @property
    def value(self) -> str:
        """The certified accuracy as printed."""
        return f"{float(self.accuracy or 0):.2f} %"

    @property
    def shown(self) -> str:
        """The certified accuracy, marked where it cannot be right."""
        return self.value + self.dagger


@dataclass(frozen=True)
class Paper:
    """All numbers for one family on one data set."""

    dataset: str
    deformation: str
    numbers: tuple[Number, ...]

    @property
    def radii(self) -> tuple[Fraction, ...]:
        """The radii of its tables."""
        ours = {n.radius for n in self.numbers if n.radius is not None and n.method == METHOD}
        return tuple(sorted(ours))

    @property
    def unit(self) -> str:
        """What the file has the radii of its tables in: deg, px, fraction or 1."""
        return self.numbers[0].unit

    @property
    def table_radii(self) -> tuple[Fraction, ...]:
        """The radii of its ablation table, one row a noise scale."""
        found = {n.radius for n in self.numbers if n.radius is not None and n.table == ABLATION}
        return tuple(sorted(found))

    @property
    def headline_radii(self) -> tuple[Fraction, ...]:
        """The radii of this family in the headline table, of whatever method."""
        return tuple(
            sorted(
                {
                    number.radius
                    for number in self.numbers
                    if number.radius is not None and number.table == HEADLINE and not number.region
                }
            )
        )

    def of_region(self, region: str) -> list[Number]:
        """What is published about that set of transformations, of whatever method."""
        return [number for number in self.numbers if number.region == region]

    def best_average(self) -> Number | None:
        """The largest average radius over the noise scales, chosen like `best`.

        >>> paper = paper_for("cifar10", {"name": "rotation"})
        >>> paper.best_average().average
        Fraction(1323, 10)
        """
        return max(
            (number for number in self.numbers if number.average is not None),
            key=lambda number: (not number.misprint, number.average or 0),
            default=None,
        )

    def at(self, radius: Fraction) -> list[Number]:
        """The paper's own numbers at that radius, of whatever scale."""
        return [n for n in self.numbers if n.is_at(radius) and n.method == METHOD]

    def others(self, radius: Fraction) -> list[Number]:
        """What other methods are reported to have at that radius."""
        return [n for n in self.numbers if n.is_at(radius) and n.method != METHOD]

    def best(self, radius: Fraction) -> Number | None:
        """The best over the noise scales; a number that cannot be right only if there is no other.

        >>> paper = paper_for("imagenet", {"name": "rotation"})
        >>> paper.best(Fraction(10)).shown
        '39.00 %'
        """
        return max(
            self.at(radius),
            key=lambda number: (not number.misprint, number.accuracy or 0),
            default=None,
        )

    def of_scale(self, noise: str, scale: float) -> list[Number]:
        """The row of that noise law and scale: its accuracies and its average radius."""
        return [
            number
            for number in self.numbers
            if number.noise == noise
            and number.scale is not None
            and math.isclose(number.scale, scale, rel_tol=1e-6)
        ]


def paper_for(dataset: str | None, deformation: dict[str, object]) -> Paper | None:
    """What the paper has on that deformation (as in a configuration), if anything."""
    name = str(deformation.get("name"))
    if any(deformation.get(key) != value for key, value in _ONLY.get(name, {}).items()):
        return None
    numbers = _published().get((str(dataset), name))
    return None if numbers is None else Paper(str(dataset), name, tuple(numbers))


def explained(numbers: Iterable[Number]) -> list[str]:
    """One line for each thing to know of published numbers, with the numbers it speaks of.

    No scale gave a number of 0, so none is named with it.

    >>> paper = paper_for("mnist", {"name": "rotation"})
    >>> explained([paper.best(Fraction(180))])[0][:47]
    "Note: DeformRS: 0.00 %: the paper's formula sto"
    """
    about: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for number in numbers:
        sign, why = ("†", number.misprint) if number.misprint else ("Note:", number.note)
        if why:
            of = number.method
            if number.scale_shown and (number.average or number.accuracy):
                of += f" at scale {number.scale_shown}"
            value = "the average radius" if number.average is not None else number.value
            about.setdefault((sign, why), {}).setdefault(of, {})[value] = None
    lines = []
    for (sign, why), rows in about.items():
        listed = "; ".join(f"{of}: {', '.join(values)}" for of, values in rows.items())
        lines.append(f"{sign} {listed}: {why}.")
    return lines


@cache
def _published() -> dict[tuple[str, str], list[Number]]:
    found: dict[tuple[str, str], list[Number]] = {}
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["dataset"], row["deformation"]), []).append(_number(row))
    return found


def _number(row: dict[str, str]) -> Number:
    per = 100 if row["unit"] == "fraction" else 1
    scale = float(row["scale"]) if row["scale"] else None
    return Number(
        table=row["table"],
        region=row["region"],
        noise=row["noise"] or None,
        scale=math.radians(scale) if scale and row["scale_unit"] == "deg" else scale,
        scale_shown=_scale_shown(row["scale"], row["scale_unit"]),
        radius=Fraction(row["radius"]) * per if row["radius"] else None,
        method=row["method"],
        accuracy=Fraction(row["certified_accuracy"]) if row["certified_accuracy"] else None,
        average=Fraction(row["average_radius"]) * per if row["average_radius"] else None,
        note=row["note"],
        misprint=row["misprint"],
        unit=row["unit"],
    )


def _scale_shown(scale: str, unit: str) -> str:
    if unit == "fraction":
        return f"{float(scale) * 100:g} %"
    return {"deg": f"{scale}°", "half side": f"{scale} half sides"}.get(unit, scale)
