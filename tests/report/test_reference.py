"""Reference accuracies from a CSV file beside the runs of a report."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from pathlib import Path

import pytest

from deformrs import Gaussian, Translation, Uniform
from deformrs.errors import InputError
from deformrs.report.document import write_report
from deformrs.report.reference import read_reference
from made_runs import Page, many, stored

HEADER = "dataset,deformation,radius,accuracy,name\n"
NUMBERS = (
    "photos,rotation,30deg,87.8,other\nphotos,rotation,10deg,96.85,paper\n"
    "photos,rotation,0.5235987755982988rad,90,paper\nothers,rotation,10deg,1,paper\n"
)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_reference_numbers_have_a_column_and_a_curve_each(tmp_path: Path) -> None:
    runs = [stored(tmp_path / "a"), stored(tmp_path / "b", many(33), law=Uniform(0.6))]
    path = written(tmp_path / "r.csv", HEADER + NUMBERS)
    files = write_report(runs, tmp_path / "out", reference=path, radii=["10deg", "30deg"])
    held = [sum(r.holds(0.5235987755982988) for r in run.results) for run in runs]
    best = max(Fraction(100 * count, len(r.results)) for count, r in zip(held, runs, strict=True))
    difference = float(best - Fraction("87.8"))
    text = files["report.md"].read_text(encoding="utf-8")
    (line,) = [row for row in text.splitlines() if row.startswith("| 30° | ") and "87.8 %" in row]
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert cells[2].startswith("87.8 % (")
    shown = float(cells[2].split("(")[1].rstrip(")").replace("−", "-"))
    assert difference - 0.1 <= shown <= difference, "rounded down"
    assert cells[3].startswith("90 % (")
    assert "| 10° |" in text
    (chart,) = Page(files["report.html"].read_text(encoding="utf-8")).data["charts"].values()
    assert [reference["name"] for reference in chart["references"]] == ["other", "paper"]
    assert chart["references"][1]["points"] == [[10.0, 96.85], [pytest.approx(30), 90.0]]
    assert "other" in files["figures/photos-rotation.svg"].read_text(encoding="utf-8")
    table = files["tables/photos-rotation-reference.csv"].read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert len(rows) == 3 * 2
    for row in rows:
        counts = {"10deg": 0.17453292519943295, "30deg": 0.5235987755982988}
        run = next(run for run in runs if run.folder.name == row["run"])
        assert int(row["certified"]) == sum(r.holds(counts[row["radius"]]) for r in run.results)


@pytest.mark.usefixtures("no_figures")
def test_without_radii_those_of_the_reference_are_used(tmp_path: Path) -> None:
    """The largest certified radius is 56.5 degrees."""
    lines = "".join(f"photos,rotation,{r}deg,50,\n" for r in (0, 10, 30, 38.24, 45, 60))
    path = written(tmp_path / "r.csv", HEADER + lines)
    files = write_report([stored(tmp_path / "a")], tmp_path / "out", reference=path)
    text = files["report.md"].read_text(encoding="utf-8")
    assert "| run | noise | 0° | 10° | 30° | 38.24° | 45° | average radius |" in text
    assert "| radius | run | reference |" in text


@pytest.mark.usefixtures("no_figures")
def test_a_report_without_a_reference_has_no_such_table(tmp_path: Path) -> None:
    files = write_report([stored(tmp_path / "a", data="mnist")], tmp_path / "out")
    assert not [name for name in files if "reference" in name]
    for name in ("report.md", "report.html"):
        assert "Reference numbers" not in files[name].read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_figures")
def test_l1_radii_have_no_reference(tmp_path: Path) -> None:
    """The radii of the file are in the l2 norm."""
    runs = [
        stored(tmp_path / name, deformation=Translation(), law=law)
        for name, law in (("l2", Gaussian(0.2)), ("l1", Uniform(0.2)))
    ]
    path = written(tmp_path / "r.csv", HEADER + "photos,translation,1px,50,paper\n")
    files = write_report(runs, tmp_path / "out", reference=path)
    assert [name for name in files if name.endswith("reference.csv")] == [
        "tables/photos-translation-reference.csv"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset,radius,accuracy\n", "must have the columns dataset, deformation, radius"),
        (HEADER.replace("name", "method"), "may have name"),
        (HEADER + "photos,rotation,10deg,101,x\n", r"accuracy in line 2 .* in \[0, 100\]"),
        (HEADER + "photos,rotation,10deg,nan,x\n", "accuracy in line 2"),
        (HEADER + "photos,rotation,10deg\n", "accuracy in line 2"),
        (HEADER + "photos,rotation,10deg,5,x,y\n", "accuracy in line 2"),
        (HEADER + "photos,rotation,10px,5,x\n", "radius in line 2"),
        (HEADER + "photos,rotation,10deg,5,x\n" * 2 + "photos,rotation,10deg,6,x\n", "line 4"),
        (HEADER + "mnist,rotation,10deg,5,x\n", "of other datasets and deformations"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "r.csv", text)
    with pytest.raises(InputError, match=message):
        write_report([stored(tmp_path / "a")], tmp_path / "out", reference=path)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv is unreadable"):
        read_reference(tmp_path / "none.csv")
