"""The page: self-contained, harmless, small, right at the edges."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deformrs import Rotation, Uniform
from deformrs.config import Config, ConfigValue
from deformrs.data.preparation import Pixels
from deformrs.errors import InputError, printable
from deformrs.report.document import write_report
from deformrs.report.formats import Cell, Table, to_latex, to_markdown
from deformrs.report.groups import make_groups, make_sections
from deformrs.report.thumbnails import (
    Thumbnails,
    cards_of,
    least_robust,
    thumbnail,
    thumbnail_words,
    thumbnails_of,
)
from deformrs.runs import Result, StoredRun
from made_runs import Entry, Page, many, stored

pytestmark = pytest.mark.usefixtures("no_figures")

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028|$x$ & 50 % _a_ {b} \\"


def page_of(runs: list[StoredRun], out: Path, radii: Sequence[str] = ()) -> Page:
    files = write_report(runs, out, radii=radii)
    return Page(files["report.html"].read_text(encoding="utf-8"))


def test_nothing_is_fetched(tmp_path: Path) -> None:
    files = write_report([stored(tmp_path / "a", data="mnist")], tmp_path / "out")
    text = files["report.html"].read_text(encoding="utf-8")
    code = re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE)  # without the script's remarks
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#clip)", code)
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        assert not {key for key in attributes if key.startswith("on")}, tag
        for name in ("src", "href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:image/png")), (tag, target)
    policies = [a.get("content") for t, a in page.tags if a.get("http-equiv")]
    assert policies
    assert str(policies[0]).startswith("default-src 'none'; img-src data:;")
    assert len(page.scripts) == 2


def test_names_are_harmless(tmp_path: Path) -> None:
    images = [Entry(k % 2, k % 2, 1000 - 20 * k, source=EVIL) for k in range(8)]
    run = stored(tmp_path / "<b>run", images, classes=2, names=[EVIL, "b"], data=EVIL)
    files = write_report([run], tmp_path / "out", regions=["rotation<=5deg"])
    text = files["report.html"].read_text(encoding="utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in page.tags]
    assert page.data["classes"][next(iter(page.data["classes"]))]["names"]["0"] == EVIL
    assert "<b>run" in " ".join(page.shown)
    assert "\u2028" not in page.scripts[0]
    for name, path in files.items():
        if name.endswith(".md"):
            assert "<script" not in path.read_text(encoding="utf-8").replace("\\<", "")
            assert "|$x$" not in path.read_text(encoding="utf-8").replace("\\|", "")
        if name.endswith("classes.csv"):
            rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
            assert rows[0]["name"] == printable(EVIL)


def test_names_that_are_no_text_are_written_anyway(tmp_path: Path) -> None:
    """Bytes of a file's name that are no UTF-8 reach us as lone surrogates."""
    run = stored(tmp_path / "a\udcff", [Entry(0, 0, 900, source="x\udcfe.png")], names=["\udcfd"])
    page = page_of([run], tmp_path / "out")
    assert "x?.png" in page.shown


def test_tables_escape_what_their_form_would_take_for_markup() -> None:
    table = Table(EVIL, "lr", ("a", "b"), ((Cell(EVIL, "small"), Cell("5 %")),), ("100 % sure_",))
    latex = to_latex(table, "t")
    for safe in (r"\$x\$ \& 50 \% \_a\_ \{b\} \textbackslash{}", r"100 \% sure\_", r"\textless{}"):
        assert safe in latex
    assert latex.count("\n") == 14
    (row,) = [line for line in to_markdown(table).splitlines() if "small" in line]
    assert r"\|$x$" in row
    assert r"\</script\>" in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 3


def test_thousands_of_images_and_classes_stay_small(tmp_path: Path) -> None:
    few = stored(tmp_path / "a", [Entry(0, 0, 1000 - k) for k in range(600)], classes=2)
    some = []
    for k in range(10_000):
        certificate = few.results[k * 7919 % 600].certificate
        if certificate.prediction is not None:
            certificate = replace(certificate, prediction=(k + (k % 9 == 8)) % 1000)
        some.append(Result(k, k % 1000, certificate, k % 1000, f"val/{k:05d}.JPEG"))
    names: list[ConfigValue] = [f"kind number {k} of a thousand" for k in range(1000)]
    data: Config = {"name": "a", "class_names": names}
    run = StoredRun(few.folder, few.config | {"data": data}, some)
    files = write_report([run], tmp_path / "out", radii=["10deg", "33.33deg"])
    text = files["report.html"].read_text(encoding="utf-8")
    assert len(text) < 600_000, "five such runs have to stay below 3 MB"
    assert files["report.md"].stat().st_size < 20_000
    page = Page(text)
    assert len(page.data["classes"]["a-rotation"]["runs"][0]["rows"]) == 1000
    (curve,) = page.data["charts"]["a-rotation"]["curves"]
    for degrees in (0, 10, 33.33):
        first = next(k for k, end in enumerate(curve["ends"]) if end >= degrees)
        assert curve["counts"][first] == sum(r.holds(math.radians(degrees)) for r in some)


def test_a_curve_of_many_steps_is_thinned_on_the_page(tmp_path: Path) -> None:
    few = stored(tmp_path / "a", [Entry(0, 0, 900)] * 2).results[0].certificate
    some = [Result(k, 0, replace(few, radii=(k / 2500,))) for k in range(2500)]
    run = StoredRun(tmp_path / "a", stored(tmp_path / "a").config, some)
    page = page_of([run], tmp_path / "out", radii=["12.345deg"])
    (curve,) = page.data["charts"]["photos-rotation"]["curves"]
    assert len(curve["ends"]) <= 600 + 2
    for x in np.linspace(0, 60, 97):
        shown = next((c for e, c in zip(curve["ends"], curve["counts"], strict=True) if e >= x), 0)
        held = sum(result.holds(math.radians(x)) for result in some)
        assert held - 2500 / 500 <= shown <= held
    exact = sum(result.holds(math.radians(12.345)) for result in some)
    assert exact in curve["counts"]


def test_classes_of_the_page_are_those_of_the_table(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", many(60), names=[f"n{k}" for k in range(10)])
    page = page_of([run], tmp_path / "out", radii=["10deg", "40deg"])
    data = page.data["classes"]["photos-rotation"]
    path = tmp_path / "out/tables/photos-rotation-classes.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert data["radii"] == ["10°", "40°"]
    for row, (label, total, plain, right, ten, forty, average) in zip(
        rows, data["runs"][0]["rows"], strict=True
    ):
        assert data["names"][str(label)] == row["name"] == f"n{label}"
        assert [total, plain, right] == [
            int(row[name]) for name in ("images", "base_correct", "smoothed_correct")
        ]
        assert [ten, forty] == [int(row[f"certified_at_{r}deg"]) for r in (10, 40)]
        assert 0 <= float(row["average_rotation_degrees"]) - average < 0.0101
    assert sum(int(row["images"]) for row in rows) == 60


def test_a_run_that_abstains_on_everything(tmp_path: Path) -> None:
    page = page_of([stored(tmp_path / "a", [Entry(0, 0, 500, plain=None)] * 5)], tmp_path / "out")
    shown = " ".join(page.shown)
    assert "Of 5 images, none is classified correctly and certified" in shown
    assert "100.0 % 5/5" in shown
    (curve,) = page.data["charts"]["photos-rotation"]["curves"]
    assert (curve["ends"], curve["counts"], curve["total"]) == ([], [], 5)
    assert "Wrong or abstained, the most certain first" in shown
    assert "Correct, but with the smallest radii" not in shown


def test_one_image(tmp_path: Path) -> None:
    page = page_of([stored(tmp_path / "a", [Entry(3, 3, 1000, 3)])], tmp_path / "out")
    sentence = (
        "Of 1 image, 1 (100.0 %) is classified correctly and, with confidence 1 - alpha, provably "
        "stays so under any rotation"
    )
    assert sentence in " ".join(page.shown)


def test_every_rotation_is_said_so(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", [Entry(0, 0, 900)] * 4, law=Uniform(math.pi))
    page = page_of([run], tmp_path / "out")
    assert any(text.endswith("provably stay so under every rotation.") for text in page.shown)
    assert page.data["charts"]["photos-rotation"]["largest"] == 180


def test_a_run_that_says_little_of_itself(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", many(10), data=None)
    del run.config["deformation"], run.config["skip"]
    assert "Rotation" in page_of([run], tmp_path / "out").shown


def test_empty_runs_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one image certified"):
        write_report([stored(tmp_path / "a", [])], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_least_robust_images_are_shown(tmp_path: Path) -> None:
    """Right ones by their radius; wrong ones before those abstained on."""
    hits = [990, 700, 600, 800, 990, 950, 900, 850, 999]
    images = [Entry(0, 0, hit, source=f"{hit}.png") for hit in hits]
    images += [Entry(0, 1, 990, source="wrong.png"), Entry(0, 0, 500, source="unsure.png")]
    (group,) = make_groups([stored(tmp_path / "a", images, names=["cat", "dog"])])
    cards = cards_of(group.members[0], Thumbnails())
    assert [card.name for card in cards.right] == [
        f"{hit}.png" for hit in (600, 700, 800, 850, 900, 950)
    ]
    assert [(card.name, card.label, card.prediction) for card in cards.wrong] == [
        ("wrong.png", "cat", "dog"),
        ("unsure.png", "cat", "abstains"),
    ]
    radius = group.members[0].results[2].certificate.radius
    assert cards.right[0].radius == Rotation.unit.show_down(radius, (28, 28))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 224, 160), (2, 5, 300), (4, 1, 1)])
def test_thumbnails_are_small_files(shape: tuple[int, int, int]) -> None:
    import base64

    from PIL import Image

    uri = thumbnail(np.linspace(0, 1, math.prod(shape), dtype=np.float32).reshape(shape))
    kind = "png" if max(shape[1:]) <= 128 else "jpeg"
    data = base64.b64decode(uri.removeprefix(f"data:image/{kind};base64,"))
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == kind.upper()
        assert max(image.size) <= 128
        assert image.mode == ("RGB" if shape[0] == 3 else "L")


def test_every_image_is_listed_with_figures_not_above_the_truth(tmp_path: Path) -> None:
    run = stored(tmp_path / "a", many(60), names=[f"n{k}" for k in range(10)])
    page = page_of([run], tmp_path / "out")
    data = page.data["images"]["photos-rotation"]
    (listed,) = data["runs"]
    for k, result in enumerate(run.results):
        certificate = result.certificate
        assert listed["start"] + listed["sources"][k] == result.source
        assert listed["index"][k] == result.index
        assert listed["labels"][k] == result.label
        assert listed["predictions"][k] == certificate.prediction
        assert 0 <= certificate.p_lower - listed["p"][k] < 1.01e-4
        assert 0 <= math.degrees(certificate.radius) - listed["radii"][0][k] < 0.0101
        assert data["names"][str(result.label)] == f"n{result.label}"
    assert listed["thumbs"] == {}


def test_copies_fit_their_budget_and_are_spread_over_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).random((60, 3, 16, 16), dtype=np.float32)
    group = make_groups([stored(tmp_path / "a", many(60)), stored(tmp_path / "b", many(60))])[0]

    def read(run: StoredRun, result: Result) -> Pixels:
        return np.asarray(noise[result.index])

    assert all(len(own.uris) == 60 for own in thumbnails_of(group.members, read).values())
    monkeypatch.setattr("deformrs.report.thumbnails.BUDGET", 60_000)
    copies = thumbnails_of(group.members, read)
    assert 30_000 < sum(len(uri) for own in copies.values() for uri in own.uris.values()) < 61_000
    least = {place for places in least_robust(group.members[0]) for place in places}
    assert least <= set(copies["a"].uris)
    assert max(copies["a"].uris) > 50
    (section,) = make_sections([group], [], [], [])
    words = thumbnail_words(section, copies)
    assert words[0].endswith("--thumbnails 60 embeds all.")
    assert all(len(own.uris) == 60 for own in thumbnails_of(group.members, read, 60).values())
    assert len(thumbnails_of(group.members, read, 5)["a"].uris) == 5


def test_images_that_are_gone_are_not_all_tried(tmp_path: Path) -> None:
    tried: list[int] = []

    def read(run: StoredRun, result: Result) -> None:
        tried.append(result.index)

    (group,) = make_groups([stored(tmp_path / "a", many(60))])
    assert thumbnails_of(group.members, read)["a"].unreadable == len(tried) == 12
