"""Print the tables of docs/choosing.md from the committed runs, and draw its figures.

    python results/choosing.py
    python results/choosing.py --figures docs/images

The figures need CIFAR-10.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from deformrs import VectorField, gallery
from deformrs.regions import Enclosed, Patch, Region
from deformrs.report.summary import count_certified, count_region
from deformrs.rounding import percent_down
from deformrs.runs import Result, StoredRun, read_run
from deformrs.space import Space

HERE = Path(__file__).resolve().parent
SIZE = 32, 32
HALF = 16
"""Pixels in half a side of a CIFAR-10 image."""
IMAGES = 1, 8
FIGURES = {"choosing-dct.png": "dct-0.3", "choosing-vector-field.png": "vector-field-0.2"}

TRANSLATIONS = "translation-0.4", "translation-0.6"
AFFINES = "affine-0.2", "affine-0.3", "affine-0.5"
COSINES = "dct-0.1", "dct-0.3", "dct-0.7"
FIELDS = "vector-field-0.1", "vector-field-0.2", "vector-field-0.4", "vector-field-2"


@cache
def run_of(name: str) -> StoredRun:
    """Return a run on CIFAR-10."""
    return read_run(HERE / "cifar10" / name)


def results(name: str) -> list[Result]:
    """Return the results of a run on CIFAR-10."""
    return run_of(name).results


def share(name: str, radius: float) -> str:
    """Return the share of images that are correct and certified at a radius, rounded down."""
    some = results(name)
    return percent_down(count_certified(some, radius), len(some))


def best(names: Sequence[str], radius: float) -> str:
    """Return the largest share of several runs."""
    return max((share(name, radius) for name in names), key=float) + " %"


def needed(part: Enclosed, space: Space) -> float:
    """Return the radius that covers a set of transformations, in half sides."""
    return part.radius_needed(space)


def routes() -> list[list[str]]:
    """Return how many images are certified for one threat by families of more parameters."""
    free = VectorField().space(SIZE)
    rows = [["the image is shifted by up to", "translation, 2", "DCT, 8", "vector field, 2,048"]]
    for px in (0.5, 1, 2):
        length = px / HALF
        field = needed(Region.parse(f"shift<={px:g}px"), free)
        rows.append(
            [
                f"{px:g} px",
                best(TRANSLATIONS, length),
                best(COSINES, length),  # the constant waves alone
                best(FIELDS, field),
            ]
        )
    return rows


def composed() -> list[list[str]]:
    """Return how many images are certified for a composition, by affine noise and by its own."""
    rows = [["certified for", "affine noise, 6", "noise of each family"]]
    for words, text, affine, own in (
        (
            "rotation by up to 2°, shear 0 to 2 %",
            "rotation<=2deg, shear=0%..2%",
            AFFINES[0],
            "rotation-shear",
        ),
        (  # as in the paper
            "shift by up to 0.316, rotation by up to 10°, scale 0.8 to 1.2",
            "shift<=0.3162277661, rotation<=10deg, scale=0.8..1.2",
            AFFINES[1],
            "shift-rotation-zoom",
        ),
    ):
        cells = [words]
        for name in (affine, own):
            some = results(name)
            count = count_region(some, Region.parse(text)).count
            assert count is not None
            cells.append(f"{percent_down(count, len(some))} %")
        rows.append(cells)
    return rows


def patches() -> list[list[str]]:
    """Return how many images are certified if a patch of them is moved."""
    space = VectorField().space(SIZE)
    moves = {
        "shifted by up to 1 px": "shift<=1px",
        "shifted by up to 2 px": "shift<=2px",
        "rotated by up to 45°": "rotation<=45deg",
        "rotated by any angle": "rotation<=180deg",
    }
    rows = [["patch", *moves]]
    for side in (2, 4, 8):
        ends = (HALF - side // 2, HALF + side // 2)
        cells = [f"{side} x {side} px"]
        for text in moves.values():
            radius = needed(Patch(Region.parse(text), ends, ends), space)
            cells.append(best(FIELDS, radius))
        rows.append(cells)
    return rows


def scales(names: Sequence[str], radii: Sequence[float], word: str) -> list[list[str]]:
    """Return the certified accuracy of several noise scales, the best at each radius in bold.

    Where sampling stops early, other radii than the requested ones are left out.
    """
    rows = [["noise", *(f"{radius:g}{word}" for radius in radii)]]
    unit = HALF if word else 1
    values = [
        [share(name, r / unit) if _decided(name, f"{r:g}{word}") else "" for r in radii]
        for name in names
    ]
    most = [max(float(own[place] or 0) for own in values) for place in range(len(radii))]
    for name, own in zip(names, values, strict=True):
        cells = [
            f"**{value}**" if value and float(value) == largest else value or "–"
            for value, largest in zip(own, most, strict=True)
        ]
        rows.append([name.rpartition("-")[2], *cells])
    return rows


def _decided(name: str, radius: str) -> bool:
    """Return whether each image of a run had its samples for a radius."""
    config: Any = run_of(name).config
    stopping = config.get("stopping")
    return stopping is None or radius.replace(" ", "") in stopping["radii"]


def tables() -> dict[str, list[str]]:
    """Return all tables in Markdown, by name."""
    rows = {
        "routes": routes(),
        "composed": composed(),
        "patches": patches(),
        "translation": scales(TRANSLATIONS, (2, 5, 8, 10, 13, 16, 19, 22), " px"),
        "affine": scales(AFFINES, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1), ""),
        "dct": scales(COSINES, (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1), ""),
        "fields": scales(FIELDS, (1, 2, 3, 5, 7, 10, 20, 40), " px"),
    }
    return {name: _markdown(some) for name, some in rows.items()}


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]]


def draw(folder: Path) -> None:
    """Draw images under deformations that their certificates cover, with their fields."""
    for file, name in FIGURES.items():
        gallery(HERE / "cifar10" / name, indices=IMAGES, columns=3, fields=True, path=folder / file)


def main() -> None:
    """Print the tables, and draw the figures where --figures says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--figures", type=Path, help="folder of the figures")
    options = parser.parse_args()
    for name, lines in tables().items():
        print(f"\n{name}\n", *lines, sep="\n")
    if options.figures:
        draw(options.figures)


if __name__ == "__main__":
    main()
