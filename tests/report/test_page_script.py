"""What the page's script computes, run by node where there is one."""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from deformrs import Uniform
from deformrs.report.document import write_report
from deformrs.rounding import percent_down
from made_runs import Page, many, stored

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node to run scripts with")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("page")
    runs = [
        stored(folder / "a", many(83), data="mnist"),
        stored(folder / "b", many(97), law=Uniform(0.6), data="mnist"),
    ]
    reference = folder / "reference.csv"
    reference.write_text(
        "dataset,deformation,radius,accuracy,name\nmnist,rotation,30deg,96.85,paper\n"
    )
    files = write_report(runs, folder / "out", radii=["10deg", "30deg"], reference=reference)
    return Page(files["report.html"].read_text(encoding="utf-8"))


def run(page: Page, expression: str, tmp_path: Path) -> Any:
    """The value of an expression; `page` are the script's functions, `data` what is embedded."""
    assert NODE is not None
    (tmp_path / "page.js").write_text(page.scripts[1], encoding="utf-8")
    (tmp_path / "data.json").write_text(page.scripts[0], encoding="utf-8")
    code = (
        "const page = require('./page.js'), data = require('./data.json');"
        f"console.log(JSON.stringify({expression}))"
    )
    done = subprocess.run(
        [NODE, "-e", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_shares_are_rounded_down_as_here(page: Page, tmp_path: Path) -> None:
    pairs = [
        (c, n) for n in (1, 3, 7, 29, 200, 999, 1000) for c in range(0, n + 1, max(1, n // 30))
    ]
    pairs += [(count, 10_000) for count in (1, 2900, 5700, 9999)]
    found = run(page, f"{json.dumps(pairs)}.map(([c, n]) => page.percentDown(c, n))", tmp_path)
    assert found == [percent_down(*pair) for pair in pairs]


def test_the_legend_reads_off_what_the_tables_say(page: Page, tmp_path: Path) -> None:
    lines = run(
        page,
        "page.seriesOf(data.charts['mnist-rotation']).map((one) => [one.label, one.read(30)])",
        tmp_path,
    )
    said = dict(lines)
    chart = page.data["charts"]["mnist-rotation"]
    shares = []
    for curve in chart["curves"]:
        pairs = zip(curve["ends"], curve["counts"], strict=True)
        held = next((count for end, count in pairs if end >= 30), 0)
        shares.append((Fraction(held, curve["total"]), curve["name"]))
        text = f"{percent_down(held, curve['total'])} % ({held}/{curve['total']})"
        assert said[f"{curve['name']}: {curve['noise']}"] == text
        assert f"{held}/{curve['total']}" in page.shown
    assert said["best of these runs"].endswith(f", {max(shares)[1]})")
    assert said["paper"] == "96.85 % at 30°"


def test_a_step_is_drawn_to_its_end_and_no_further(page: Page, tmp_path: Path) -> None:
    """On a drawing whose scale is one to one: level to each end, then down."""
    path = run(
        page,
        "page.stepPath([10, 20], (k) => [80, 40][k], { x: (v) => v, y: (v) => 100 - v })",
        tmp_path,
    )
    assert path == "M0.00 20.00H10.00V60.00H20.00V100.00H1e5"
    path = run(
        page,
        "page.stepPath([10, 20], (k) => [80, 40][k], { x: (v) => v, y: (v) => 100 - v }, 20)",
        tmp_path,
    )
    assert path == "M0.00 20.00H10.00V60.00H20.00H20.00", "no radius above 20 was requested"
    held = run(
        page,
        "[0, 10, 10.01, 20, 21].map((x) => page.countAt({ ends: [10, 20], counts: [8, 4] }, x))",
        tmp_path,
    )
    assert held == [8, 8, 4, 4, 0]
    held = run(
        page,
        "[20, 20.01].map((x) => page.countAt({ ends: [10, 20], counts: [8, 4], until: 20 }, x))",
        tmp_path,
    )
    assert held == [4, None]


def test_beyond_the_last_requested_radius_the_legend_says_so(page: Page, tmp_path: Path) -> None:
    said = run(
        page,
        "[30, 30.01].map((x) => page.seriesOf({ ...data.charts['mnist-rotation'], best: null,"
        " references: [], curves: [{ ends: [30], counts: [5], total: 8, until: 30 }] })"
        "[0].read(x))",
        tmp_path,
    )
    assert said == ["62.5 % (5/8)", "not requested"]


def test_zooming_stays_on_the_axis(page: Page, tmp_path: Path) -> None:
    ranges = run(
        page,
        "[[[0, 90], 0.5, 45], [[0, 90], 0.5, 0], [[80, 90], 4, 89], [[0, 90], 2, 45],"
        "[[1, 1.1], 1e-9, 1.05]].map(([r, f, c]) => page.zoomed(r, f, c, 90))",
        tmp_path,
    )
    assert ranges[0] == [22.5, 67.5]
    assert ranges[1] == [0, 45]
    assert ranges[2] == [50, 90]
    assert ranges[3] == [0, 90]
    low, high = ranges[4]
    assert 0 < high - low <= 0.0451


def test_ticks_are_round_and_inside(page: Page, tmp_path: Path) -> None:
    found = run(
        page,
        "[[0, 90, 9], [0.021, 0.0217, 5], [0, 1e-5, 4]].map((t) => page.ticks(...t))",
        tmp_path,
    )
    assert found[0] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    for ticks, (low, high) in zip(found[1:], [(0.021, 0.0217), (0, 1e-5)], strict=True):
        assert 2 <= len(ticks) <= 9
        assert low <= min(ticks)
        assert max(ticks) <= high * 1.0001


def test_classes_are_sorted_with_the_unknown_last(page: Page, tmp_path: Path) -> None:
    rows = "[[0, 4, null, 1], [1, 4, 2, 3], [2, 8, 2, 2], [3, 4, 2, 3]]"
    order = run(
        page,
        f"[false, true].map((down) => page.sortedRows({rows}, (r) => r[2] === null ? null :"
        " r[2] / r[1], down).map((r) => r[0]))",
        tmp_path,
    )
    assert order == [[2, 1, 3, 0], [1, 3, 2, 0]]
    columns = run(
        page,
        "page.classColumns(data.classes['mnist-rotation']).map((c) =>"
        " [c.title, c.text(data.classes['mnist-rotation'].runs[0].rows[0])])",
        tmp_path,
    )
    titles = [title for title, _ in columns]
    assert titles == [
        *("class", "images", "base correct", "smoothed correct", "10°", "30°", "average radius")
    ]
    row = page.data["classes"]["mnist-rotation"]["runs"][0]["rows"][0]
    assert columns[3][1] == f"{percent_down(row[3], row[1])} %"


IMAGES = (
    "const run = { index: [3, 4, 5, 6], start: 'val/', sources: ['a', 'b', 'c', 'd'],"
    " labels: [0, 0, 1, 1], predictions: [0, 1, null, 1], radii: [[10, 20, 0, 30]],"
    " p: [0.9, 0.95, 0.4, 0.99], bounds: false, thumbs: {}, small: false };"
    "const names = { 0: 'cat', 1: 'dog' };"
    "const all = { names, families: ['rotation'], signs: ['°'], decimals: [2], full: [180] };"
)


def of_images(page: Page, expression: str, tmp_path: Path) -> Any:
    return run(page, f"(() => {{ {IMAGES} return {expression}; }})()", tmp_path)


def test_images_are_filtered(page: Page, tmp_path: Path) -> None:
    filters = [
        *({}, {"kind": "correct"}, {"kind": "wrong"}, {"kind": "abstained"}, {"label": 1}),
        *({"low": 20}, {"low": 10, "high": 20}, {"search": "ABSTAINS"}, {"search": "val/d"}),
        *({"search": "dog", "kind": "wrong"}, {"label": None, "low": None, "search": ""}),
    ]
    found = of_images(
        page, f"{json.dumps(filters)}.map((f) => page.filteredImages(run, names, f))", tmp_path
    )
    assert found == [
        *([0, 1, 2, 3], [0, 3], [1], [2], [2, 3], [1, 3], [0, 1], [2], [3], [1], [0, 1, 2, 3])
    ]


def test_the_histogram_counts_every_image_that_has_a_radius(page: Page, tmp_path: Path) -> None:
    bins = of_images(page, "page.radiusBins(run, 0, 30)", tmp_path)
    assert [k for k, count in enumerate(bins["correct"]) if count] == [10, 29]
    assert [k for k, count in enumerate(bins["wrong"]) if count] == [20]


def test_a_certificate_is_put_into_words(page: Page, tmp_path: Path) -> None:
    words = of_images(page, "[0, 1, 2].map((k) => page.certificateWords(all, run, k))", tmp_path)
    assert words == [
        "Predicted cat (correct), with probability at least 0.9000 under the noise. "
        "Certified up to a rotation radius of 10.00°.",
        "Predicted dog (wrong: its label is cat), with probability at least 0.9500 under the "
        "noise. Certified up to a rotation radius of 20.00°.",
        "Abstains: no class is certain enough. Its label is dog.",
    ]
    assert (
        of_images(page, "page.radiiWords(all, { ...run, radii: [[180, 20, 0, 30]] }, 0)", tmp_path)
        == "every angle"
    )
