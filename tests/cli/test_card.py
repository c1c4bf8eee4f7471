"""`deformrs card`: its numbers are those of the run, and names in it are only names."""

from __future__ import annotations

import json
import math
import re
import shlex
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import deformrs, fails, run_inside
from deformrs import Compose, Independent, Region, Rotation, Scaling, Uniform
from deformrs.config import Config
from deformrs.errors import printable
from deformrs.report.captions import region_words
from deformrs.report.document import sections_of
from deformrs.report.formats import YAMLValue, to_yaml
from deformrs.report.model_card import is_untouched, model_card
from deformrs.report.summary import interval
from deformrs.runs import StoredRun, read_config, read_run
from deformrs.statistics import shared_alpha
from made_runs import N, decided, many, resign, stored

HOSTILE = (
    "a\nb: [c]",
    "---",
    '"quoted" \\ #x',
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](http://evil/x.png)",
    "`code` **bold** | cell",
    "null",
    "1e-5",
    "snowman ☃ \U0001f600",
    "\x00\x7f\x85\u2028\udcff",
)


def front_matter(card: str) -> Any:
    yaml = pytest.importorskip("yaml")
    begin, front, _ = card.split("---\n", 2)
    assert begin == ""
    return yaml.safe_load(front)


def metrics(card: str) -> dict[str, Any]:
    """The metrics of a card by their names."""
    (model,) = front_matter(card)["model-index"]
    (result,) = model["results"]
    return {metric["name"]: metric for metric in result["metrics"]}


def made(
    run: StoredRun, *radii: str, regions: tuple[str, ...] = (), name: str | None = None
) -> str:
    (section,) = sections_of([run], radii=radii, regions=regions)
    return model_card(section, name)


def row(card: str, begin: str) -> str:
    return next(line for line in card.splitlines() if line.startswith(f"| {begin} |"))


@pytest.fixture
def certified(tmp_path: Path, network: Path) -> Path:
    """A working directory with a run of `deformrs certify` on six images."""
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "some.npz", images=images, labels=[0, 1, 2, 3, 4, 5])
    deformrs(
        *("certify", "--model", "network", "--data", "some.npz", "--deformation", "rotation"),
        *("--noise", "uniform:30deg", "--n", "100", "--n0", "10", "--device", "cpu"),
        *("--radii", "2deg,10deg", "--max", "4", "--out", "run"),
        cwd=tmp_path,
    )
    return tmp_path


def test_the_metadata_is_a_model_index(tmp_path: Path) -> None:
    stored(tmp_path / "net", on_disk=True)
    card = run_inside("card", tmp_path / "net", "--radii", "10deg,30deg", "--name", "Turned")
    front = front_matter(card)
    assert front["library_name"] == "deformrs"
    assert front["pipeline_tag"] == "image-classification"
    assert {"certified-robustness", "rotation"} <= set(front["tags"])
    assert "datasets" not in front, "what the model was trained on is not known"
    (model,) = front["model-index"]
    assert model["name"] == "Turned"
    (result,) = model["results"]
    assert result["task"] == {"type": "image-classification", "name": "Image Classification"}
    assert result["dataset"] == {"name": "photos", "type": "unknown"}
    metric = metrics(card)["Certified accuracy, rotation up to 10°"]
    assert metric["type"] == "certified_accuracy"
    args = metric["args"]
    assert args["threat_model"] == "deformation"
    assert (args["radius"], args["alpha"], args["n"], args["n0"]) == ("10°", 0.001, N, 100)


def test_the_hub_reads_the_card(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(made(stored(tmp_path / "net"), "10deg", "30deg")).data
    assert data.model_name == "net"
    assert len(data.eval_results) == 4
    assert {result.dataset_name for result in data.eval_results} == {"photos"}


def test_guarantee_of_model_card_no_figure_is_above_that_of_the_results(tmp_path: Path) -> None:
    """Shares are rounded down and intervals outwards; counts are those of the results."""
    for total in (3, 7, 40, 97):
        run = stored(tmp_path / "net", many(total))
        card = made(run, "5deg", "10deg", "30deg")
        counts = {
            "Accuracy": sum(r.plain == r.label for r in run.results),
            "Accuracy, smoothed classifier": sum(r.correct for r in run.results),
        }
        for degrees in (5, 10, 30):
            held = sum(r.holds(math.radians(degrees)) for r in run.results)
            counts[f"Certified accuracy, rotation up to {degrees}°"] = held
        found = metrics(card)
        assert found.keys() == counts.keys()
        for name, count in counts.items():
            written = re.search(rf'name: "{re.escape(name)}"\n +value: (\S+)\n', card)
            assert written is not None
            share, metric = Fraction(written[1]), found[name]
            assert share <= Fraction(count, total) < share + Fraction(1, 10**4)
            assert (metric["args"]["count"], metric["args"]["images"]) == (count, total)
            low, high = metric["args"]["confidence_interval"]
            assert [f"{100 * low:.1f}", f"{100 * high:.1f}"] == list(interval(count, total))
            assert f"{count:,}/{total:,}" in card


@given(st.text(), st.sampled_from(HOSTILE))
def test_guarantee_of_to_yaml_texts_are_read_back(text: str, hostile: str) -> None:
    yaml = pytest.importorskip("yaml")
    values: dict[str, YAMLValue] = {
        "a": text,
        "b": [hostile, {"c": text + hostile}],
        "d": {"e": 1, "f": 1e-05},
    }
    written = to_yaml(values)
    assert yaml.safe_load(written) == {
        "a": printable(text),
        "b": [printable(hostile), {"c": printable(text + hostile)}],
        "d": {"e": 1, "f": 1e-05},
    }
    assert len(written.splitlines()) == 7
    assert re.search(r"[<>&`]", written) is None


ELEMENTS = {
    *("a", "code", "h1", "h2", "hr", "li", "ol", "p", "pre", "strong", "ul"),
    *("table", "tbody", "td", "th", "thead", "tr"),
}


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_are_only_names(hostile: str, tmp_path: Path) -> None:
    run = stored(tmp_path / "net", data=hostile, names=[hostile] * 10)
    options: Config = dict.fromkeys(("data", "model", "deformation", "noise"), hostile)
    texts: Config = dict.fromkeys(("padding", "version", "device", "torch"), hostile)
    config = run.config | texts | {"options": options, "num_classes": 10}
    card = made(StoredRun(run.folder, config, run.results), name=hostile)
    front = front_matter(card)
    (model,) = front["model-index"]
    assert model["name"] == printable(hostile)
    assert model["results"][0]["dataset"]["name"] == printable(hostile)
    assert front.keys() == {"library_name", "pipeline_tag", "tags", "model-index"}
    markdown = pytest.importorskip("markdown_it")
    body = card.split("---\n", 2)[2].partition("\n")[2]
    # Also where the metadata are not taken for such.
    for text in (body, card.partition("\n")[2]):
        elements = Elements(markdown.MarkdownIt("commonmark").enable("table").render(text)).found
        links = [about for tag, about in elements if tag == "a"]
        assert [link["href"] for link in links] == ["https://arxiv.org/abs/2107.00996"]
        assert {tag for tag, _ in elements} <= ELEMENTS


def test_a_hostile_folder_is_only_a_name(tmp_path: Path) -> None:
    name = "<b>[x](y) *z*"
    card = made(decided(stored(tmp_path / name), ["10deg"]))
    (model,) = front_matter(card)["model-index"]
    assert model["name"] == name
    assert "# \\<b\\>\\[x\\](y) \\*z\\*\n" in card
    assert "<b>" not in card


def test_without_queries_it_has_round_radii(tmp_path: Path) -> None:
    stored(tmp_path / "net", on_disk=True)
    names = list(metrics(run_inside("card", tmp_path / "net")))
    assert names[:2] == ["Accuracy", "Accuracy, smoothed classifier"]
    assert any("Certified accuracy, rotation up to" in name for name in names)
    assert not any(name.endswith(" 0°") for name in names)


def test_the_queries_of_the_run_are_the_metrics(certified: Path) -> None:
    card = deformrs("card", "run", cwd=certified).stdout
    names = [f"Certified accuracy, rotation up to {radius}°" for radius in (2, 10)]
    assert list(metrics(card))[2:] == names
    args = metrics(card)[names[0]]["args"]
    assert args["sampled"] == "until decided: 2deg, 10deg"
    assert args["images_requested"] == 4
    assert "4 of 4 images" in card
    other = deformrs("card", "run", "--radii", "7deg", cwd=certified).stdout
    assert list(metrics(other)) == list(metrics(card))[:2], "7° was not requested"
    assert "| – | not requested | – |" in row(other, "certified: any rotation up to 7°")


def test_the_command_repeats_the_run(certified: Path) -> None:
    card = deformrs("card", "run", cwd=certified).stdout
    block = card.partition("## How to reproduce it\n\n```\n")[2].partition("\n```")[0]
    words = shlex.split(block.replace("\\\n", " ").replace("--out RUN", "--out again"))
    deformrs(*words[1:], "--device", "cpu", cwd=certified)
    both = [(certified / name / "certificates.jsonl").read_text() for name in ("run", "again")]
    assert both[0] == both[1]


def test_the_card_does_not_tell_where_files_are(tmp_path: Path) -> None:
    run = stored(tmp_path / "net")
    options: Config = {"noise": "uniform:30deg", "deformation": "rotation+/home/ada/l.py:L"}
    options |= {"model": "/home/ada/net.py:build", "weights": "C:\\Users\\ada\\net.pth"}
    options |= {"data": "mnist:/home/ada/mnist"}
    card = made(StoredRun(run.folder, run.config | {"options": options}, run.results))
    assert "ada" not in card
    for shown in ("--model net.py:build", "--weights net.pth", "--data mnist:mnist", "+l.py:L"):
        assert shown in card


def test_only_published_data_have_the_name_of_the_hub(tmp_path: Path) -> None:
    run = stored(tmp_path / "net", data="cifar10")
    for source, hub in (("cifar10", "uoft-cs/cifar10"), ("photos/cifar10", "unknown")):
        options: Config = {"data": source}
        card = made(StoredRun(run.folder, run.config | {"options": options}, run.results))
        (result,) = front_matter(card)["model-index"][0]["results"]
        assert result["dataset"]["type"] == hub


def test_the_data_of_the_training_are_named(root: Path) -> None:
    card = run_inside("card", root / "results/cifar10/rotation-180")
    assert front_matter(card)["datasets"] == ["uoft-cs/cifar10"]
    assert "datasets" not in front_matter(run_inside("card", root / "results/imagenet/rotation"))


def test_a_packed_run_has_the_same_card(tmp_path: Path) -> None:
    stored(tmp_path / "net", on_disk=True)
    before = run_inside("card", tmp_path / "net")
    run_inside("pack", tmp_path / "net")
    assert run_inside("card", tmp_path / "net") == before


def test_a_composition_has_its_regions(tmp_path: Path) -> None:
    both, noise = Compose(Rotation(), Scaling()), Independent(Uniform(0.5), Uniform(0.3))
    run = stored(tmp_path / "net", deformation=both, law=noise, on_disk=True)
    done = deformrs("card", tmp_path / "net")
    assert '--region "rotation<=5deg, scale=0.95..1.05"' in done.stderr
    assert list(metrics(done.stdout)) == ["Accuracy", "Accuracy, smoothed classifier"]
    text = "rotation<=1deg, scale=0.98..1.02"
    answered = deformrs("card", tmp_path / "net", "--region", text)
    assert answered.stderr == ""
    card = answered.stdout
    held = sum(r.correct and r.certificate.covers_region(Region.parse(text)) for r in run.results)
    assert 0 < held < len(run)
    region = region_words(Region.parse(text))
    metric = metrics(card)[f"Certified accuracy, {region}"]
    assert (metric["args"]["count"], metric["args"]["region"]) == (held, region)
    assert f"{held}/40" in row(card, f"certified: every {region}")
    assert "composition a region" in fails("card", tmp_path / "net", "--radii", "10deg")


def test_a_region_that_does_not_apply_is_no_metric(tmp_path: Path) -> None:
    card = made(stored(tmp_path / "net"), "10deg", regions=("shift<=2px",))
    assert len(metrics(card)) == 3
    assert "not applicable: " in row(card, "certified: every shift up to 2 px")


def test_an_unfinished_run_says_so(certified: Path) -> None:
    path = certified / "run" / "certificates.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    done = deformrs("card", "run", cwd=certified)
    assert "**Incomplete: run has 3 of 4 images; figures are of these alone.**" in done.stdout
    assert "note: Incomplete: run has 3 of 4 images" in done.stderr
    args = metrics(done.stdout)["Accuracy"]["args"]
    assert (args["images"], args["images_requested"]) == (3, 4)


def test_a_run_without_results_has_no_card(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    stored(folder, on_disk=True)
    (folder / "certificates.jsonl").write_text("")
    (folder / "times.tsv").unlink()
    assert "at least one image certified" in fails("card", folder)


def test_images_that_share_alpha(tmp_path: Path) -> None:
    stored(tmp_path / "net", on_disk=True)
    level = shared_alpha(0.001, 40)
    run = read_run(tmp_path / "net", alpha=level)
    shared: Config = {"simultaneous": {"images": 40, "alpha": 0.001}, "alpha": level}
    card = made(StoredRun(run.folder, read_config(run.folder) | shared, run.results), "10deg")
    args = metrics(card)["Certified accuracy, rotation up to 10°"]["args"]
    assert (args["alpha"], args["alpha_of_all_images"]) == (level, 0.001)
    assert "alpha = 2.5e-05 for each image, as 40 share 0.001." in card
    assert "With 99.9 % confidence all 40 certificates hold together." in card


def test_results_certified_anew_are_called_so(tmp_path: Path) -> None:
    stored(tmp_path / "net", on_disk=True)
    card = made(read_run(tmp_path / "net", alpha=0.01), "10deg")
    assert metrics(card)["Certified accuracy, rotation up to 10°"]["args"]["alpha"] == 0.01
    assert "Certified anew by another alpha or bound" in card


def test_a_run_that_stopped_early_says_so(tmp_path: Path) -> None:
    card = made(decided(stored(tmp_path / "net"), ["10deg"]))
    assert list(metrics(card))[2:] == ["Certified accuracy, rotation up to 10°"]
    assert "Sampling stopped early (net)" in card


def test_a_run_made_in_python_has_no_command(tmp_path: Path) -> None:
    card = made(stored(tmp_path / "net", data=None))
    assert "No command repeats this run" in card
    (result,) = front_matter(card)["model-index"][0]["results"]
    assert result["dataset"] == {"name": "unknown", "type": "unknown"}


def test_out_replaces_only_a_card_that_nobody_edited(tmp_path: Path) -> None:
    stored(tmp_path / "net", on_disk=True)
    out = tmp_path / "net" / "README.md"
    assert run_inside("card", tmp_path / "net", "--out", out) == f"card: {out}\n"
    first = out.read_text(encoding="utf-8")
    assert first == run_inside("card", tmp_path / "net")
    out.write_bytes(first.replace("\n", "\r\n").encode())  # as Git may on Windows
    run_inside("card", tmp_path / "net", "--out", out, "--radii", "20deg")
    assert out.read_text(encoding="utf-8") != first
    for edited in (
        first.replace("---\n", "---\nlicense: mit\n", 1),
        first + "More.\n",
        "# Ours\n",
        "",
        json.dumps({}),
    ):
        out.write_text(edited, encoding="utf-8")
        assert "is not replaced" in fails("card", tmp_path / "net", "--out", out)
        assert out.read_text(encoding="utf-8") == edited
        assert not is_untouched(edited)


def test_out_follows_no_link_and_needs_a_folder(tmp_path: Path) -> None:
    stored(tmp_path / "net", on_disk=True)
    (tmp_path / "ours.md").write_text(run_inside("card", tmp_path / "net"), encoding="utf-8")
    (tmp_path / "net" / "README.md").symlink_to(tmp_path / "ours.md")
    assert "link" in fails("card", tmp_path / "net", "--out", tmp_path / "net" / "README.md")
    fails("card", tmp_path / "net", "--out", tmp_path / "none" / "README.md", code=2)
    fails("card", tmp_path / "net", "--out", tmp_path, code=2)


def test_what_is_no_run_is_an_error(tmp_path: Path) -> None:
    stored(tmp_path / "runs" / "net", law=Uniform(0.5), on_disk=True)
    assert "config.json" in fails("card", tmp_path / "runs")
    assert "unit" in fails("card", tmp_path / "runs" / "net", "--radii", "5px")
    resign(tmp_path / "runs" / "net", n0=50)
    run_inside("card", tmp_path / "runs" / "net")
