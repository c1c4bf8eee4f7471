"""What a report writes: files, counts, comparisons, regions."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deformrs import (
    Affine,
    Compose,
    Counts,
    Gaussian,
    Independent,
    Region,
    Rotation,
    Scaling,
    Translation,
    Uniform,
)
from deformrs.data.preparation import Pixels
from deformrs.report.document import write_report
from deformrs.runs import Result, Run, StoredRun, read_run
from made_runs import Entry, Page, decided, many, stored

DEGREE = math.radians(1)


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def two(tmp_path: Path, data: str = "mnist") -> list[StoredRun]:
    wide = [Entry(p.label, p.top, max(0, p.hits - 60), p.plain, p.source) for p in many(40)]
    return [
        stored(tmp_path / "narrow", law=Uniform(36 * DEGREE), data=data, on_disk=True),
        stored(tmp_path / "wide", wide, law=Uniform(90 * DEGREE), data=data, on_disk=True),
    ]


def test_every_file_is_there_and_named(tmp_path: Path) -> None:
    files = write_report(two(tmp_path), tmp_path / "out", regions=["rotation<=5deg"])
    assert set(files) == {
        *("report.html", "report.md", "figures/mnist-rotation.png", "figures/mnist-rotation.svg"),
        *(
            f"tables/mnist-rotation-{name}.csv"
            for name in ("runs", "averages", "classes", "accuracy", "regions")
        ),
        *(f"tables/mnist-rotation-{name}.tex" for name in ("runs", "accuracy", "regions")),
    }
    on_disk = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.*")}
    assert on_disk == set(files), "and nothing half written beside them"
    with Image.open(files["figures/mnist-rotation.png"]) as image:
        assert image.width > 600
    assert files["figures/mnist-rotation.svg"].read_text().startswith("<?xml")


def test_figures_take_any_name(tmp_path: Path) -> None:
    """No formulas, no names left out of the legend, no warning for scripts the font lacks."""
    runs = [stored(tmp_path / name) for name in ("_hidden", "$x_$", "漢字 🦊", "a\nb", "%s {0}")]
    files = write_report(runs, tmp_path / "out")
    drawing = files["figures/photos-rotation.svg"].read_text(encoding="utf-8")
    assert "_hidden: uniform 57.3°" in drawing
    assert "$x_$: uniform 57.3°" in drawing


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = two(tmp_path)
    first, second = (write_report(runs, tmp_path / name) for name in ("a", "b"))
    for name, path in first.items():
        assert path.read_bytes() == second[name].read_bytes(), name


@pytest.mark.usefixtures("no_figures")
def test_guarantee_write_report_states_no_more_than_the_results(tmp_path: Path) -> None:
    """Every count in the tables and in the page's data against the results themselves."""
    runs = two(tmp_path)
    out = tmp_path / "out"
    write_report(runs, out, radii=["10deg", "33.3deg", "0.5rad"])
    by_name = {run.folder.name: run.results for run in runs}
    rows = table(out / "tables/mnist-rotation-accuracy.csv")
    assert len(rows) == 9
    for row in rows:
        radius, total = float(row["radius"]), int(row["images"])
        held = {name: sum(r.holds(radius) for r in some) for name, some in by_name.items()}
        assert int(row["certified"]) == held.get(row["run"], max(held.values()))
        assert Fraction(row["percent"]) <= Fraction(100 * int(row["certified"]), total)
        assert float(row["radius_displayed"]) == pytest.approx(math.degrees(radius))
    chart = Page((out / "report.html").read_text(encoding="utf-8")).data["charts"]["mnist-rotation"]
    for curve in chart["curves"]:
        for end, count in zip(curve["ends"], curve["counts"], strict=True):
            held_there = sum(r.holds(math.radians(end)) for r in by_name[curve["name"]])
            assert count == held_there
    for row in table(out / "tables/mnist-rotation-averages.csv"):
        some = by_name[row["run"]]
        exact = sum(Fraction(r.certificate.radius) for r in some if r.correct) / len(some)
        assert Fraction(float(row["average_radius"])) <= exact
        assert float(row["average_radius_displayed"]) <= math.degrees(exact)
        assert float(row["average_radius"]) == pytest.approx(float(exact))


@pytest.mark.usefixtures("no_figures")
def test_page_markdown_and_latex_say_the_same(tmp_path: Path) -> None:
    runs = two(tmp_path, data="photos")
    files = write_report(runs, tmp_path / "out", radii=["10deg", "30deg"])
    held = [sum(r.holds(10 * DEGREE) for r in run.results) for run in runs]
    assert 0 < held[0] < held[1]
    page = " ".join(Page(files["report.html"].read_text(encoding="utf-8")).shown)
    text = files["report.md"].read_text(encoding="utf-8")
    latex = files["tables/photos-rotation-accuracy.tex"].read_text(encoding="utf-8")
    for count in held:
        share = f"{1000 * count // 40 / 10} %"
        assert f"{share} {count}/40" in page
        assert f"{share} ({count}/40; " in text
        assert share.replace("%", r"\%") in latex
        sentence = (
            f"Of 40 images, {count} ({share}) are classified correctly and, with confidence "
            "1 - alpha each, provably stay so"
        )
        assert f"{sentence} under any rotation up to 10°." in page
        assert sentence in text
    for words in ("no certificate of any one classifier", "not for the whole set"):
        assert words in page
        assert words in text
    assert r"\toprule" in latex
    assert r"10\textdegree{}" in latex
    assert "![Certified accuracy against radius](figures/photos-rotation.png)" in text


@pytest.mark.usefixtures("no_figures")
def test_a_bound_chosen_for_each_image_has_one_name(tmp_path: Path) -> None:
    law, some = Uniform(1.0), Counts((90, 6, 4), (900, 60, 40))
    with Run.open(tmp_path / "auto", law, 0.001, "auto", {"n": 1000, "n0": 100, "skip": 1}) as run:
        for index, selection in enumerate(((90, 6, 4), (100, 0, 0))):
            counts = replace(some, selection=selection)
            certificate = law.certify(counts, Rotation().space((28, 28)), 0.001, "auto")
            run.add(Result(index, 0, certificate), seconds=0.1)
    for method, name in ((None, "auto"), ("auto", "auto"), ("runner_up", "runner_up")):
        made = read_run(tmp_path / "auto", method=method)
        text = write_report([made], tmp_path / "out")["report.md"].read_text(encoding="utf-8")
        anew = " (certified anew; the run used auto)" if name != "auto" else ""
        assert f"| bound | {name.replace('_', '-')}{anew} |" in text
        assert ("chosen before the results were seen" in text) == bool(anew)


@pytest.mark.usefixtures("no_figures")
def test_alpha_and_bound_are_those_of_the_certificates(tmp_path: Path) -> None:
    two(tmp_path)
    run = read_run(tmp_path / "wide", alpha=1e-6, method="anytime")
    files = write_report([run], tmp_path / "out")
    page = " ".join(Page(files["report.html"].read_text(encoding="utf-8")).shown)
    assert "1e-06 certified anew; the run used 0.001" in page
    assert "anytime certified anew; the run used clopper_pearson" in page
    assert "only if it was chosen before the results were seen" in page
    (row,) = table(tmp_path / "out/tables/mnist-rotation-runs.csv")
    assert (row["alpha"], row["method"]) == ("1e-06", "anytime")
    assert (row["n_min"], row["n_max"], row["n0_min"]) == ("1000", "1000", "100")
    assert "0.25 s per image" in page
    assert "0:00:10 in all" in page


@pytest.mark.usefixtures("no_figures")
def test_regions_are_counted_or_refused_with_the_reason(tmp_path: Path) -> None:
    affine = stored(tmp_path / "affine", many(60), Affine(), Gaussian(0.3))
    turn = stored(tmp_path / "turn")
    text = "rotation<=10deg, scale=0.9..1.1"
    write_report([affine, turn], tmp_path / "out", regions=[text, Region.parse("rotation<=20deg")])
    answer, alone = table(tmp_path / "out/tables/photos-affine-regions.csv")
    region = Region.parse(text)
    held = sum(r.correct and r.certificate.covers_region(region) for r in affine.results)
    assert int(answer["certified"]) == held
    assert 0 < held < sum(r.correct for r in affine.results)
    assert answer["region"] == (
        "rotation up to 10°, then scale from 0.9 to 1.1 (shown at 91 to 111 % of its size)"
    )
    refused, answered = table(tmp_path / "out/tables/photos-rotation-regions.csv")
    assert refused["certified"] == ""
    assert "must use its families, in its order" in refused["reason"]
    assert int(answered["certified"]) == sum(r.holds(20 * DEGREE) for r in turn.results)
    assert int(alone["certified"]) == sum(
        r.correct and r.certificate.covers_region(Region.parse("rotation<=20deg"))
        for r in affine.results
    )
    page = Page((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    assert "not applicable to this run" in page.shown


def test_a_composition_has_radii_for_each_part_and_no_curve(tmp_path: Path) -> None:
    law = Independent(Uniform(0.5), Uniform(0.3), Gaussian(0.2))
    run = stored(tmp_path / "a", None, Compose(Rotation(), Scaling(), Translation()), law)
    region = "rotation<=5deg, scale=0.95..1.05, shift<=0.5px"
    files = write_report([run], tmp_path / "out", regions=[region])
    assert not [name for name in files if name.startswith("figures/")]
    assert not [name for name in files if name.endswith("accuracy.csv")]
    rows = table(tmp_path / "out/tables/photos-rotation-then-scaling-then-translation-averages.csv")
    assert [row["family"] for row in rows] == ["rotation", "scaling", "translation"]
    assert [row["unit"] for row in rows] == ["degrees", "percent", "px"]
    page = Page(files["report.html"].read_text(encoding="utf-8"))
    assert page.data["charts"] == {}
    held = sum(r.correct and r.certificate.covers_region(Region.parse(region)) for r in run.results)
    assert f"Of 40 images, {held} (" in " ".join(page.shown), "the region is what was requested"
    files = write_report([run], tmp_path / "bare")
    page = Page(files["report.html"].read_text(encoding="utf-8"))
    right = sum(result.correct for result in run.results)
    assert f"Of 40 images, {right} (" in " ".join(page.shown)


@pytest.mark.usefixtures("no_figures")
def test_what_was_not_requested_is_said_to_be_nowhere_0(tmp_path: Path) -> None:
    full = stored(tmp_path / "full", law=Uniform(36 * DEGREE))
    run = decided(stored(tmp_path / "decided", many(60)), radii=["10deg", 30 * DEGREE])
    files = write_report(
        [run, full],
        tmp_path / "out",
        radii=["10deg", "20deg", "40deg"],
        regions=["rotation<=10deg", "rotation<=40deg"],
    )
    held = sum(r.holds(10 * DEGREE) for r in run.results)
    own = {r["requested"]: r for r in _of("decided", tmp_path / "out", "accuracy")}
    assert int(own["10deg"]["certified"]) == held
    for radius in ("20deg", "40deg"):
        assert {own[radius][name] for name in ("certified", "percent", "interval_low")} == {""}
    best = {r["requested"]: r for r in _of("best of these runs", tmp_path / "out", "accuracy")}
    assert int(best["40deg"]["images"]) == len(full.results), "the best of those that know"
    for row in _of("decided", tmp_path / "out", "classes"):
        assert row["certified_at_40deg"] == ""
        assert row["certified_at_10deg"] != ""
    known, unknown = _of("decided", tmp_path / "out", "regions")
    assert int(known["certified"]) == held, "the region is the ball of the requested radius"
    assert (unknown["certified"], unknown["reason"]) == ("", "not requested")
    page = Page(files["report.html"].read_text(encoding="utf-8"))
    limited, unlimited = page.data["charts"]["photos-rotation"]["curves"]
    assert (limited["until"], unlimited["until"]) == (30, None)
    assert limited["ends"][-1] == 30
    assert limited["counts"][-1] == sum(r.holds(30 * DEGREE) for r in run.results)
    rows = page.data["classes"]["photos-rotation"]["runs"][0]["rows"]
    assert all(row[4] is not None and row[5:] == [None, None, None] for row in rows)
    text = files["report.md"].read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| decided | uniform 57.3°")]
    assert line.count("– (not requested)") == 3, "two radii and the average"


@pytest.mark.usefixtures("no_figures")
def test_a_run_sampled_for_a_region_alone_has_no_curve(tmp_path: Path) -> None:
    run = decided(stored(tmp_path / "a"), regions=["rotation<=10deg"])
    page = Page(write_report([run], tmp_path / "out")["report.html"].read_text(encoding="utf-8"))
    assert page.data["charts"] == {}
    held = sum(r.holds(10 * DEGREE) for r in run.results)
    assert f"Of 40 images, {held} (" in " ".join(page.shown)
    # Beside a run of another deformation it keeps its region, which is not counted there.
    other = stored(tmp_path / "b", deformation=Translation(), law=Gaussian(0.2))
    write_report([run, other], tmp_path / "both")
    (answer,) = table(tmp_path / "both/tables/photos-rotation-regions.csv")
    assert int(answer["certified"]) == held
    assert not (tmp_path / "both/tables/photos-translation-regions.csv").exists()


def _of(run: str, out: Path, name: str) -> list[dict[str, str]]:
    rows = table(out / f"tables/photos-rotation-{name}.csv")
    return [row for row in rows if row["run"] == run]


@pytest.mark.usefixtures("no_figures")
def test_images_of_several_sizes_are_counted_each_by_its_own(tmp_path: Path) -> None:
    parts = [
        stored(tmp_path / "a", many(20), Translation(), Gaussian(0.2), size=size)
        for size in ((16, 16), (64, 64))
    ]
    some = [*parts[0].results, *parts[1].results]
    mixed = StoredRun(tmp_path / "a", parts[0].config, some)
    write_report([mixed], tmp_path / "out", radii=["4px", "0.25"])
    rows = {
        row["requested"]: row
        for row in table(tmp_path / "out/tables/photos-translation-accuracy.csv")
    }
    small, large = (part.results for part in parts)
    held = sum(r.holds(0.5) for r in small) + sum(r.holds(0.125) for r in large)
    assert int(rows["4px"]["certified"]) == held
    assert rows["4px"]["radius"] == "", "it is not one length"
    assert rows["4px"]["radius_displayed"] == "4.0"
    assert int(rows["0.25"]["certified"]) == sum(r.holds(0.25) for r in some)


@pytest.mark.usefixtures("no_figures")
def test_images_that_cannot_be_read_are_said_to_be(tmp_path: Path) -> None:
    (run, other) = two(tmp_path)
    gone = {result.index for result in run.results if result.correct}

    def read(of: StoredRun, result: Result) -> Pixels | None:
        return None if result.index in gone else np.full((3, 300, 200), 0.5, np.float32)

    files = write_report([run], tmp_path / "a", images=read)
    page = Page(files["report.html"].read_text(encoding="utf-8"))
    images = [tag for tag in page.tags if tag[0] == "img"]
    assert len(images) == 6
    assert all(str(tag[1]["src"]).startswith("data:image/jpeg;base64,") for tag in images)
    assert "6 of the 12 images could not be read from where the run found them." in page.shown
    without = write_report([other], tmp_path / "b")["report.html"].read_text(encoding="utf-8")
    assert "The images could not be read from where the run found them." in without
    assert "<img" not in without
