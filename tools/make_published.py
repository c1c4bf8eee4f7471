"""Make the published numbers shipped with the package from the paper's two tables.

    python tools/make_published.py FOLDER

FOLDER holds ablations.csv (the appendix: every noise scale) and headline.csv (the tables of the
main text, with other methods). Written is src/deformrs/report/published.csv: one line a number,
radii in degrees, pixels and fractions, and beside a number that cannot be right, why not.
"""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from pathlib import Path

from deformrs.report.published import COLUMNS, PUBLISHED
from deformrs.runs import write_atomically

OURS = "DeformRS"
# The paper gives the scale of a length in half sides of the image, its radius in pixels.
SCALE_UNITS = {"deg": "deg", "fraction": "fraction", "px": "half side", "1": "1"}


@dataclass(frozen=True)
class Doubt:
    """Numbers that cannot be right. None stands for any."""

    table: str
    dataset: str
    deformation: str
    scale: str | None
    radius: str | None
    method: str
    why: str

    def meets(self, row: dict[str, str]) -> bool:
        asked = {
            "table": self.table,
            "dataset": self.dataset,
            "deformation": self.deformation,
            "method": self.method,
            "scale": self.scale,
            "radius": self.radius,
        }
        return all(value is None or row[key] == value for key, value in asked.items())


SWAPPED = (
    "the average radii of 126° and 144° are swapped: each is outside what the accuracies of its "
    "own row allow"
)
DOUBTS = (
    Doubt(
        *("ablation", "imagenet", "rotation", "90", None, OURS),
        "its row certifies angles beyond its own noise scale of 90°, which uniform noise cannot: "
        "the row is not what its label says",
    ),
    Doubt("ablation", "cifar10", "rotation", "126", "", OURS, SWAPPED),
    Doubt("ablation", "cifar10", "rotation", "144", "", OURS, SWAPPED),
    Doubt(
        *("ablation", "cifar10", "rotation", "180", None, OURS),
        "a failed run: 43.28 % right where the scale before it has 88.11 %",
    ),
    Doubt(
        *("headline", "mnist", "translation", None, "5", OURS),
        "above the 99.06 % of the paper's own ablation table at the smaller radius of 2 px",
    ),
    Doubt(
        *("headline", "imagenet", "translation", None, "5", OURS),
        "above the 47.6 % of the paper's own ablation table at the smaller radius of 4 px",
    ),
    Doubt(
        *("headline", "cifar10", "rotation", None, "10", "BAL"),
        "the MNIST figure, printed again: BAL itself reports 62.5 %",
    ),
)
REGIONS = {
    "rotation+shear": "rotations up to 2° with shears from 0 to 2 %",
    "rotation+scaling+translation": "rotations up to 10° with zooms from 0.8 to 1.2 and shifts of "
    "a squared length up to 0.1",
}
CIRCLE = (
    "the paper's formula stops short of the half turn; on the circle, uniform noise over all "
    "angles certifies every angle"
)


def ablation(row: dict[str, str]) -> dict[str, str]:
    average = row["radius"] == "ACR"
    return {
        **{key: row[key] for key in ("dataset", "deformation", "noise", "scale", "unit")},
        "table": "ablation",
        "scale_unit": SCALE_UNITS[row["unit"]],
        "radius": "" if average else row["radius"],
        "method": OURS,
        "certified_accuracy": "" if average else row["certified_accuracy"],
        "average_radius": row["certified_accuracy"] if average else "",
        "note": CIRCLE if row["unit"] == "deg" and row["radius"] == "180" else "",
    }


def headline(row: dict[str, str]) -> dict[str, str]:
    """A composition was certified as an affine map; `region` says what it stands for."""
    affine = row["unit"] == "affine"
    return {
        **{key: row[key] for key in ("dataset", "radius", "method", "certified_accuracy")},
        "table": "headline",
        "note": "" if affine or row["note"] == "best over lambda" else row["note"],
        "deformation": "affine" if affine else row["deformation"],
        "region": REGIONS[row["deformation"]] if affine else "",
        "unit": "1" if affine else row["unit"],
    }


def marked(row: dict[str, str]) -> dict[str, str]:
    row = {column: row.get(column, "") for column in COLUMNS}
    whys = [doubt.why for doubt in DOUBTS if doubt.meets(row)]
    # What a misprint is said to be need not be said twice.
    return row | {"misprint": whys[0], "note": ""} if whys else row


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main(folder: Path, out: Path = PUBLISHED) -> None:
    rows = [marked(ablation(row)) for row in read(folder / "ablations.csv")]
    rows += [marked(headline(row)) for row in read(folder / "headline.csv")]
    for doubt in DOUBTS:
        if not any(doubt.meets(row) for row in rows):
            raise SystemExit(f"no number meets {doubt}")
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(out, text.getvalue())
    print(f"{out}: {len(rows)} numbers, {sum(bool(row['misprint']) for row in rows)} doubtful")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
