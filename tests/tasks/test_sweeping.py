"""`deformrs sweep`: trains and certifies run after run, skips what is done, reports all."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from few_digits import FILE, NARROW, OPTIONS, content, few_digits, sweep_file

from deformrs.rounding import percent_down
from deformrs.runs import load_run, read_config
from inside import inside


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few_digits()


def test_scales_and_families_from_options() -> None:
    asked = (
        *("sweep", *OPTIONS, "--deformation", "rotation", "--radii", "1deg,20deg"),
        *("--noise", "uniform:30deg", "--noise", "uniform:180deg", "--out", "runs"),
    )
    names = ["rotation_uniform-30deg", "rotation_uniform-180deg"]
    said, _ = inside(*asked, "--list")
    assert said.splitlines() == ["2 runs in runs", *[f"  {n:<23}  not begun" for n in names]]
    assert not Path("runs").exists()

    said, _ = inside(*asked)
    for name in names:
        results = load_run(f"runs/{name}")
        assert [result.index for result in results] == list(range(6))
        row = next(line for line in said.splitlines() if line.startswith(name + " "))
        plain = sum(result.plain == result.label for result in results)
        counts = [plain, *(sum(r.holds(np.radians(d)) for r in results) for d in (1, 20))]
        shares = [f"{percent_down(count, 6)} %" for count in counts]
        assert re.split(r"\s{2,}", row)[1:4] == shares
    assert re.search(r"^run +plain +1deg +20deg +average radius$", said, re.MULTILINE)
    assert f"next: deformrs report runs/{names[0]} runs/{names[1]}" in said
    config = read_config(Path("runs") / names[1])
    assert config["options"]["split"] == "test"  # type: ignore[index,call-overload]

    before = content(Path("runs"))
    again, _ = inside(*asked)
    assert again.count("done already") == 2
    assert said.partition("\nrun ")[2] == again.partition("\nrun ")[2], "the same table"
    assert content(Path("runs")) == before
    assert inside(*asked, "--list")[0].count("  done\n") == 2
    inside("pack", "runs")
    assert inside(*asked)[0].count("done already") == 2, "packed ones too"
    inside("pack", "--undo", "runs")
    assert content(Path("runs")) == before

    more, _ = inside(*asked[:-2], "--out", "runs", "--max", "8", "--list")
    assert more.count("certified 6 of 8, with other options") == 2
    inside(*asked, "--max", "8", "--report")
    assert len(load_run(f"runs/{names[0]}")) == 8
    page = Path("runs/report/report.md").read_text()
    assert re.search(r"^\| best of these runs \|", page, re.MULTILINE)


def test_the_report_has_a_section_for_each_family_and_their_envelopes() -> None:
    sweep_file(
        FILE.replace('["1deg"]', '["1deg", "1px"]')
        + NARROW
        + '[[runs]]\ndeformation = "translation"\nnoise = ["gaussian:0.1", "gaussian:2px"]\n'
    )
    said, errors = inside("sweep", "some.toml", "--report")
    assert errors == ""
    assert "written: runs/report/report.html" in said
    shift = next(line for line in said.splitlines() if line.startswith("translation_gaussian-2px "))
    assert re.match(r"\S+ +\d+\.\d % +– +\d+\.\d % +\d+\.\d+ px$", shift)
    text = Path("runs/report/report.md").read_text()
    assert text.count("| best of these runs |") == 2
    assert "## Rotation on few.npz" in text
    assert "## Translation on few.npz" in text
    page = Path("runs/report/report.html").read_text()
    best = re.findall(r'"best": ?(\{|null)', page)
    assert best == ["{", "{"], "both charts of the page have an envelope"
    for family in ("rotation", "translation"):
        figure = Path(f"runs/report/figures/few-npz-{family}.svg").read_text()
        assert "best of these runs" in figure
        assert Path(f"runs/report/figures/few-npz-{family}.png").stat().st_size > 5000


def test_other_options_do_not_pass_for_done() -> None:
    sweep_file(FILE)
    inside("sweep", "some.toml")
    before = content(Path("runs"))
    changes = (
        ("epochs = 1", "epochs = 2"),
        ("n = 60", "n = 70"),
        ("90deg", "80deg"),
        ('"1deg"', '"2deg", "3deg"'),  # sampling stops when these are settled
    )
    for old, new in changes:
        sweep_file(FILE.replace(old, new))
        assert "with other options" in inside("sweep", "some.toml", "--list")[0]
        _, errors = inside("sweep", "some.toml", code=1)
        assert "error: wide: " in errors
        assert "cannot go on with other settings" in errors
        assert content(Path("runs")) == before
    sweep_file(FILE.replace('"cpu"', '"cpu"\nworkers = 1'))
    assert "done already" in inside("sweep", "some.toml")[0], "another machine changes nothing"


def test_radii_of_the_fixed_protocol_are_asked_of_what_is_there() -> None:
    fixed = FILE.replace("n = 60", "n = 60\nfixed = true")
    sweep_file(fixed)
    inside("sweep", "some.toml")
    sweep_file(fixed.replace('"1deg"', '"2deg", "3deg"'))
    assert "done already" in inside("sweep", "some.toml")[0]


def test_a_recipe_that_was_edited_does_not_pass_for_done() -> None:
    Path("mine.toml").write_text("epochs = 1\nbatch_size = 8\nlearning_rate = 0.1\n")
    sweep_file(FILE.replace("epochs = 1", 'recipe = "mine.toml"'))
    inside("sweep", "some.toml")
    assert "done already" in inside("sweep", "some.toml")[0]
    Path("mine.toml").write_text("epochs = 2\nbatch_size = 8\nlearning_rate = 0.1\n")
    assert "with other options" in inside("sweep", "some.toml", "--list")[0]
    assert "cannot go on with other settings" in inside("sweep", "some.toml", code=1)[1]


def test_what_was_cut_short_goes_on() -> None:
    sweep_file(FILE)
    inside("sweep", "some.toml")
    run = Path("runs/wide")
    before = content(run)
    certificates = run / "certificates.jsonl"
    lines = certificates.read_bytes().splitlines(keepends=True)
    certificates.write_bytes(b"".join(lines[:4]) + lines[4][:30])
    assert inside("sweep", "some.toml", "--list")[0].endswith("certified 4 of 6\n")
    (run / "sweep.json").write_text("{")
    assert "certified 4 of 6" in inside("sweep", "some.toml", "--list")[0]
    inside("sweep", "some.toml")
    after = content(run)
    assert after.keys() == before.keys()
    times = str(run / "times.tsv")
    assert {name for name in before if before[name] != after[name]} == {times}
    for name in ("certificates.jsonl", "config.json", "sweep.json", "times.tsv"):
        (run / name).unlink()
    assert inside("sweep", "some.toml", "--list")[0].endswith("  trained\n")
    inside("sweep", "some.toml")
    assert content(run)[str(certificates)] == before[str(certificates)]


def test_a_network_of_ones_own_and_the_report_of_all() -> None:
    Path("net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))\n"
    )
    sweep_file(FILE.replace('"small_cnn"', '"net.py:build"\nmean = [0.2]\nstd = [0.3]') + NARROW)
    said, errors = inside("sweep", "some.toml")
    assert errors == ""
    assert "average radius" in said
    model = read_config(Path("runs/wide"))["model"]
    assert model["mean"] == [0.2]  # type: ignore[index,call-overload]
    assert "done already" in inside("sweep", "some.toml")[0]
    Path("runs/notes").mkdir()
    Path("runs/notes/config.json").write_text("{}")
    written, _ = inside("report", "runs")
    assert "runs/report/report.md" in written
    text = Path("runs/report/report.md").read_text()
    assert text.index("narrow") < text.index("wide")
    _, errors = inside("report", "runs/notes/..", "runs/wide", code=1)
    assert "must be different ones" in errors
    _, errors = inside("report", "runs/report", code=1)
    assert "the run folder is runs/report; it must hold a config.json" in errors


def test_a_file_runs_on_any_machine() -> None:
    sweep_file(FILE.replace('device = "cpu"\n', 'device = "cuda:77"\n'))
    inside("sweep", "some.toml", "--device", "cpu", "--out", "elsewhere")
    assert len(load_run("elsewhere/wide")) == 6
