"""The numbers of the paper's tables, from numbers.csv.

The file has one line per number: radii in degrees, pixels and fractions, and beside a number that
cannot be right the reason, as `misprint`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from deformrs.config import Config
from deformrs.units import Size, Unit

NUMBERS = Path(__file__).with_name("numbers.csv")
COLUMNS = (
    *("table", "dataset", "deformation", "region", "noise", "scale", "scale_unit", "radius"),
    *("unit", "method", "certified_accuracy", "average_radius", "note", "misprint"),
)
METHOD = "DeformRS"
ABLATION, HEADLINE = "ablation", "headline"
SIZES: dict[str, Size] = {"mnist": (28, 28), "cifar10": (32, 32), "imagenet": (224, 224)}
FAMILIES = ("rotation", "scaling", "translation", "affine", "dct", "vector_field")
"""The paper's tables, in the order of its figures."""
UNITS = {"deg": Unit.ANGLE, "px": Unit.LENGTH, "fraction": Unit.FRACTION, "1": Unit.COEFFICIENT}
"""The units of the file."""
OTHER_THREAT_MODELS = ("LI", "BAL", "FBV")
"""The methods of the file that the paper calls not directly comparable."""
THREAT_MODEL = (
    "LI, BAL and FBV have another threat model, so that the paper calls them not directly "
    "comparable: they certify the answer to an image that was deformed before it arrived, while "
    "here, as in MOH, an adversary only sets the parameters by which a stored image is deformed, "
    "which is less."
)
ALPHA = 0.001
"""The paper's failure probability of each certificate."""
_PROTOCOL = f"with n0 = 100, n = 100,000 and alpha = {ALPHA}"
_SMALL = (
    f"a ResNet-18 trained for each noise scale, {_PROTOCOL}; its figures are multiples of 0.01 %, "
    "as for 10,000 test images"
)
SETTINGS = {
    "mnist": _SMALL,
    "cifar10": _SMALL,
    "imagenet": f"a pretrained ResNet-50 fine-tuned for each noise scale, {_PROTOCOL}; its figures "
    "are multiples of 0.2 %, as for 500 validation images",
}
# The DCT tables were made with k = 2 and a basis of twice the frequency of the paper's text.
DCT: Config = {"k": 2, "basis": "cosine"}


@dataclass(frozen=True)
class Number:
    """One number of the paper. `radius` and `average` are in degrees, pixels or per cent."""

    table: str
    region: str
    noise: str | None
    scale: float | None
    """In the package's own unit: radians, half sides, fractions."""
    scale_label: str
    radius: Fraction | None
    method: str
    accuracy: Fraction
    average: Fraction | None
    note: str
    misprint: str
    unit: str
    """The unit of the radius in the file: deg, px, fraction or 1."""

    def is_at(self, radius: Fraction) -> bool:
        """Return whether the number is an accuracy at that radius."""
        return self.radius is not None and math.isclose(
            self.radius, radius, rel_tol=1e-9, abs_tol=1e-12
        )

    @property
    def dagger(self) -> str:
        """The mark of a number that cannot be right."""
        return " †" if self.misprint else ""

    @property
    def value(self) -> str:
        """The certified accuracy as printed."""
        return f"{float(self.accuracy):.2f} %"

    @property
    def label(self) -> str:
        """The certified accuracy, marked where it cannot be right."""
        return self.value + self.dagger


@dataclass(frozen=True)
class PaperTable:
    """All numbers for one family on one dataset."""

    dataset: str
    deformation: str
    numbers: tuple[Number, ...]

    @property
    def unit(self) -> str:
        """The unit of its radii in the file: deg, px, fraction or 1."""
        return self.numbers[0].unit

    @property
    def table_radii(self) -> tuple[Fraction, ...]:
        """The radii of the ablation table, which has one row per noise scale."""
        return self._radii(n for n in self.numbers if n.table == ABLATION)

    @property
    def headline_radii(self) -> tuple[Fraction, ...]:
        """The radii of this family in the headline table, of whatever method."""
        return self._radii(n for n in self.numbers if n.table == HEADLINE and not n.region)

    @property
    def radii(self) -> tuple[Fraction, ...]:
        """The radii of both tables, without those of compositions."""
        return tuple(sorted({*self.table_radii, *self.headline_radii}))

    def of_region(self, region: str) -> list[Number]:
        """Return the numbers for a composition, of whatever method."""
        return [number for number in self.numbers if number.region == region]

    def at(self, radius: Fraction) -> list[Number]:
        """Return the paper's own numbers at that radius, one per scale."""
        return [n for n in self.numbers if n.is_at(radius) and n.method == METHOD]

    def others(self, radius: Fraction) -> list[Number]:
        """Return the numbers of other methods at that radius."""
        return [n for n in self.numbers if n.is_at(radius) and n.method != METHOD]

    def best(self, radius: Fraction) -> Number | None:
        """Return the best over the noise scales; a misprint only if there is no other.

        >>> paper_table("imagenet", {"name": "rotation"}).best(Fraction(10)).label
        '39.00 %'
        """
        return max(self.at(radius), key=lambda n: (not n.misprint, n.accuracy), default=None)

    def best_average(self) -> Number | None:
        """Return the largest average radius over the noise scales, chosen like `best`.

        >>> paper_table("cifar10", {"name": "rotation"}).best_average().average
        Fraction(1323, 10)
        """
        return max(
            (number for number in self.numbers if number.average is not None),
            key=lambda number: (not number.misprint, number.average or 0),
            default=None,
        )

    @staticmethod
    def _radii(numbers: Iterable[Number]) -> tuple[Fraction, ...]:
        return tuple(sorted({n.radius for n in numbers if n.radius is not None}))


def paper_table(dataset: str | None, deformation: Config) -> PaperTable | None:
    """Return the paper's numbers on a deformation (as in a configuration), None if it has none."""
    name = str(deformation.get("name"))
    if name == "dct" and any(deformation.get(key) != value for key, value in DCT.items()):
        return None
    numbers = _read().get((str(dataset), name))
    return None if numbers is None else PaperTable(str(dataset), name, tuple(numbers))


def explained(numbers: Iterable[Number]) -> list[str]:
    """Return one line per note or misprint, with the numbers it is about.

    >>> table = paper_table("mnist", {"name": "rotation"})
    >>> explained([table.best(Fraction(180))])[0][:47]
    "Note: DeformRS: 0.00 %: the paper's formula sto"
    """
    about: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for number in numbers:
        sign, why = ("†", number.misprint) if number.misprint else ("Note:", number.note)
        if why:
            of = number.method
            # No scale gave a number of 0, so none is named with it.
            if number.scale_label and (number.average or number.accuracy):
                of += f" at scale {number.scale_label}"
            value = "the average radius" if number.average is not None else number.value
            about.setdefault((sign, why), {}).setdefault(of, {})[value] = None
    lines = []
    for (sign, why), rows in about.items():
        listed = "; ".join(f"{of}: {', '.join(values)}" for of, values in rows.items())
        lines.append(f"{sign} {listed}: {why}.")
    return lines


def threat_model_notes(numbers: Iterable[Number]) -> list[str]:
    """Return the paper's caveat where any of the numbers is of another threat model."""
    others = any(number.method in OTHER_THREAT_MODELS for number in numbers)
    return [THREAT_MODEL] if others else []


def listed(numbers: Sequence[Number]) -> str:
    """Return numbers of other methods in one line."""
    return "; ".join(f"{number.method} {number.label}" for number in numbers) or "–"


@cache
def _read() -> dict[tuple[str, str], list[Number]]:
    numbers: dict[tuple[str, str], list[Number]] = {}
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers.setdefault((row["dataset"], row["deformation"]), []).append(_number(row))
    return numbers


def _number(row: dict[str, str]) -> Number:
    per = 100 if row["unit"] == "fraction" else 1
    scale = float(row["scale"]) if row["scale"] else None
    return Number(
        table=row["table"],
        region=row["region"],
        noise=row["noise"] or None,
        scale=math.radians(scale) if scale and row["scale_unit"] == "deg" else scale,
        scale_label=_scale_label(row["scale"], row["scale_unit"]),
        radius=Fraction(row["radius"]) * per if row["radius"] else None,
        method=row["method"],
        accuracy=Fraction(row["certified_accuracy"] or 0),
        average=Fraction(row["average_radius"]) * per if row["average_radius"] else None,
        note=row["note"],
        misprint=row["misprint"],
        unit=row["unit"],
    )


def _scale_label(scale: str, unit: str) -> str:
    if unit == "fraction":
        return f"{float(scale) * 100:g} %"
    return {"deg": f"{scale}°", "half side": f"{scale} half sides"}.get(unit, scale)
