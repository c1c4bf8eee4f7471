"""`deformrs sweep` trains and certifies run after run, skips what is done, survives failures."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from commands import inside
from deformrs.cli import sweep
from deformrs.cli.sweep_file import read_sweep
from deformrs.data import load_data
from deformrs.rounding import percent_down
from deformrs.runs import load_run, read_config

FILE = """
out = "runs"
[train]
data = "few.npz"
model = "small_cnn"
epochs = 1
batch_size = 50
device = "cpu"
tensorboard = false
[certify]
n = 60
n0 = 20
max = 6
radii = ["1deg"]
[[runs]]
name = "wide"
deformation = "rotation"
noise = "uniform:90deg"
"""
NARROW = """
[[runs]]
name = "narrow"
deformation = "rotation"
noise = "uniform:30deg"
"""
BEGUN = NARROW + 'begin = "wide"\n'
AGAIN = """
[[runs]]
name = "again"
network = "wide"
certify = { fixed = true, skip = 2 }
"""
EXPLODES = """
[[runs]]
name = "explodes"
deformation = "rotation"
noise = "uniform:30deg"
train = { learning_rate = 1e30 }
"""
HELD_OUT = FILE.replace("epochs = 1", "epochs = 1\nhold_out = 0.1").replace(
    "n0 = 20", 'n0 = 20\nsplit = "held-out"'
)
OWN_NETWORK = (
    "from torch import nn\n"
    "def build():\n"
    "    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))\n"
)
SMALL = ("--data", "few.npz", "--model", "small_cnn", "--epochs", "1", "--batch-size", "50")
OPTIONS = (*SMALL, "--device", "cpu", "--n", "60", "--max", "6")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few digits and a finished sweep, whose later runs need the first."""
    folder = tmp_path_factory.mktemp("sweep")
    arrays: dict[str, Any] = {}
    for split, count in (("train", 200), ("test", 12)):
        digits = load_data("digits", split=split)  # type: ignore[arg-type]
        images = [255 * digits[k][0][0] for k in range(count)]
        arrays[f"x_{split}"] = np.stack(images).astype(np.uint8)
        arrays[f"y_{split}"] = np.array(digits.labels[:count])
    np.savez(folder / "few.npz", **arrays)
    np.savez(folder / "flat.npz", images=arrays["x_train"], labels=arrays["y_train"])
    np.savez(folder / "unseen.npz", images=arrays["x_test"], labels=arrays["y_test"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sweep_file(FILE + BEGUN + AGAIN)
        assert inside("sweep", "some.toml")[1] == ""
    return folder


@pytest.fixture
def done(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory holds the finished sweep."""
    shutil.copytree(finished, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def fresh(done: None) -> None:
    """The working directory holds a few digits and no runs."""
    shutil.rmtree("runs")


def sweep_file(text: str) -> None:
    Path("some.toml").write_text(text)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("fresh")
def test_noise_scales_on_the_command_line() -> None:
    query = (
        *("sweep", *OPTIONS, "--deformation", "rotation", "--radii", "1deg,20deg"),
        *("--noise", "uniform:30deg", "--noise", "uniform:180deg", "--out", "runs"),
    )
    names = ["rotation_uniform-30deg", "rotation_uniform-180deg"]
    said, _ = inside(*query, "--list")
    assert said.splitlines() == ["2 runs in runs", *[f"  {n:<23}  not begun" for n in names]]
    assert not Path("runs").exists()

    said, _ = inside(*query)
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

    before = content(Path("runs"))
    again, _ = inside(*query)
    assert again.count("done already") == 2
    assert said.partition("\nrun ")[2] == again.partition("\nrun ")[2], "the same table"
    assert content(Path("runs")) == before
    inside("pack", "runs")
    assert inside(*query)[0].count("done already") == 2, "packed ones too"
    inside("pack", "--undo", "runs")

    more = (*query[:-2], "--out", "runs", "--max", "8")
    assert inside(*more, "--list")[0].count("certified 6 of 8") == 2
    inside(*more)
    assert len(load_run(f"runs/{names[0]}")) == 8


@pytest.mark.usefixtures("done")
def test_the_report_has_a_section_for_each_family() -> None:
    sweep_file(
        FILE.replace('["1deg"]', '["1deg", "1px"]')
        + BEGUN
        + '[[runs]]\ndeformation = "translation"\nnoise = ["gaussian:0.1", "gaussian:2px"]\n'
    )
    said, errors = inside("sweep", "some.toml", "--report")
    assert errors == ""
    assert said.count("done already") == 2
    assert "written: runs/report/report.html" in said
    shift = next(line for line in said.splitlines() if line.startswith("translation_gaussian-2px "))
    assert re.match(r"\S+ +\d+\.\d % +– +\d+\.\d % +\d+\.\d+ px$", shift)
    text = Path("runs/report/report.md").read_text()
    assert text.count("| best of these runs |") == 2
    assert "## Rotation on few.npz" in text
    assert "## Translation on few.npz" in text


@pytest.mark.usefixtures("done")
def test_other_options_do_not_pass_for_done() -> None:
    before = content(Path("runs"))
    for old, new in (
        ("epochs = 1", "epochs = 2"),
        ("n = 60", "n = 70"),
        ("90deg", "80deg"),
        ('"1deg"', '"2deg", "3deg"'),  # sampling stops when these are decided
    ):
        sweep_file(FILE.replace(old, new) + BEGUN + AGAIN)
        assert "certified 6 of 6, other options" in inside("sweep", "some.toml", "--list")[0]
        _, errors = inside("sweep", "some.toml", "--only", "wide", code=1)
        assert re.search("error: wide: .* cannot go on with other settings", errors)
        _, errors = inside("sweep", "some.toml", "--only", "again", "--only", "narrow", code=1)
        for name in ("again", "narrow"):
            assert f"error: {name}: the run wide, which {name} needs is certified 6" in errors
        assert content(Path("runs")) == before
    sweep_file(FILE.replace('"cpu"', '"cpu"\nworkers = 1') + BEGUN + AGAIN)
    assert inside("sweep", "some.toml")[0].count("done already") == 3, "the machine is free"
    sweep_file(FILE + BEGUN + AGAIN.replace("fixed = true", 'fixed = true, radii = ["2deg"]'))
    assert inside("sweep", "some.toml")[0].count("done already") == 3, "radii of a fixed n too"
    Path("runs").rename("elsewhere")
    said, _ = inside("sweep", "some.toml", "--out", "elsewhere", "--list")
    assert said.count("  done\n") == 3, "wherever they lie"


@pytest.mark.usefixtures("fresh")
def test_a_recipe_that_was_edited_does_not_pass_for_done() -> None:
    Path("mine.toml").write_text("epochs = 1\nbatch_size = 8\nlearning_rate = 0.1\n")
    sweep_file(FILE.replace("epochs = 1", 'recipe = "mine.toml"'))
    inside("sweep", "some.toml")
    assert "done already" in inside("sweep", "some.toml")[0]
    Path("mine.toml").write_text("epochs = 2\nbatch_size = 8\nlearning_rate = 0.1\n")
    assert "other options" in inside("sweep", "some.toml", "--list")[0]
    assert "cannot go on with other settings" in inside("sweep", "some.toml", code=1)[1]


@pytest.mark.usefixtures("done")
def test_a_run_that_was_cut_short_goes_on() -> None:
    sweep_file(FILE)
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
    assert after.keys() - before.keys() == {str(run / "unfinished.jsonl")}
    times = str(run / "times.tsv")
    assert {name for name in before if before[name] != after[name]} == {times}
    for name in ("certificates.jsonl", "config.json", "sweep.json", "times.tsv"):
        (run / name).unlink()
    assert inside("sweep", "some.toml", "--list")[0].endswith("  trained\n")
    inside("sweep", "some.toml")
    assert content(run)[str(certificates)] == before[str(certificates)]


@pytest.mark.usefixtures("done")
def test_a_network_is_certified_again_and_not_trained_again() -> None:
    assert not list(Path("runs/again").glob("model*"))
    wide, again = read_config(Path("runs/wide")), read_config(Path("runs/again"))
    for key in ("model", "deformation", "noise", "data"):
        assert again[key] == wide[key]
    assert "stopping" not in again
    results = load_run("runs/again")
    assert [result.index for result in results] == [0, 2, 4]
    assert all(result.certificate.counts.n == 60 for result in results)


@pytest.mark.usefixtures("fresh")
def test_training_goes_on_from_the_weights_of_a_network_of_ones_own() -> None:
    Path("net.py").write_text(OWN_NETWORK)
    own = FILE.replace('"small_cnn"', '"net.py:build"\nmean = [0.2]\nstd = [0.3]')
    sweep_file(own + BEGUN + "train = { learning_rate = 1e-12 }\n")
    assert "a Python file that is executed" in inside("sweep", "some.toml", code=1)[1]
    assert not Path("runs").exists()
    said, errors = inside("sweep", "some.toml", "--trust-code")
    assert errors == ""
    assert "average radius" in said
    model = read_config(Path("runs/wide"))["model"]
    assert model["mean"] == [0.2]  # type: ignore[index,call-overload]
    wide, narrow = (load_file(f"runs/{name}/model.safetensors") for name in ("wide", "narrow"))
    for name in wide:
        assert torch.allclose(wide[name].float(), narrow[name].float(), atol=1e-6)
    assert inside("sweep", "some.toml", "--trust-code")[0].count("done already") == 2


@pytest.mark.usefixtures("done")
def test_runs_that_build_on_another_network_than_before_are_not_done() -> None:
    """The base is trained anew: neither its certificates nor what began with it hold."""
    chain = BEGUN + AGAIN
    other = '[[runs]]\nname = "elsewhere"\nnetwork = "wide"\nnoise = "uniform:20deg"\n'
    sweep_file(FILE + chain + other)
    inside("sweep", "some.toml")
    shutil.rmtree("runs/wide")
    sweep_file(FILE.replace("90deg", "45deg") + chain + other)
    said, errors = inside("sweep", "some.toml", code=1)
    assert "done already" not in said
    for name in ("narrow", "again", "elsewhere"):
        assert f"error: {name}: " in errors
    assert inside("sweep", "some.toml", "--list")[0].count("  done\n") == 1


@pytest.mark.usefixtures("done")
def test_a_folder_holds_no_certificates_of_another_network() -> None:
    for name in ("certificates.jsonl", "config.json", "sweep.json", "times.tsv"):
        (Path("runs/narrow") / name).unlink()
    sweep_file(FILE + AGAIN.replace("again", "narrow"))
    assert inside("sweep", "some.toml", "--list")[0].endswith("narrow  not begun\n")
    assert "runs/narrow is one that holds a training" in inside("sweep", "some.toml", code=1)[1]


@pytest.mark.usefixtures("fresh")
def test_some_runs_only() -> None:
    sweep_file(FILE + NARROW + AGAIN)
    _, errors = inside("sweep", "some.toml", "--only", "again", code=1)
    assert "the run wide, which again needs is not begun; it must be done" in errors
    inside("sweep", "some.toml", "--only", "wide", "--only", "again")
    assert {path.name for path in Path("runs").iterdir()} == {"wide", "again"}
    assert "did you mean 'narrow'" in inside("sweep", "some.toml", "--only", "narow", code=1)[1]
    assert "--only is empty" in inside("sweep", "some.toml", "--only", "", code=2)[1]
    _, errors = inside("sweep", "some.toml", "--only", "wide", "--report", code=2)
    assert "--report covers all runs" in errors


@pytest.mark.usefixtures("fresh")
def test_images_held_out_of_training_are_certified() -> None:
    sweep_file(HELD_OUT + NARROW + "train = { seed = 5 }\n")
    assert inside("sweep", "some.toml")[1] == ""
    digest = json.loads(Path("runs/wide/training.json").read_text())["data"]["sha256"]
    for name, seed in (("wide", 0), ("narrow", 5)):
        data = read_config(Path("runs", name))["data"]
        assert data["held_out"] == {"share": 0.1, "seed": seed, "sha256": digest}  # type: ignore[index,call-overload]
    wide, narrow = load_run("runs/wide"), load_run("runs/narrow")
    assert len(wide) == len(narrow) == 6
    assert all(result.source.startswith("few.npz train ") for result in wide)
    assert [result.source for result in wide] != [result.source for result in narrow]
    assert inside("sweep", "some.toml")[0].count("done already") == 2
    sweep_file(HELD_OUT.replace('split = "held-out"', 'split = "test"'))
    assert "other options" in inside("sweep", "some.toml", "--list")[0]
    assert "cannot go on with other settings" in inside("sweep", "some.toml", code=1)[1]


@pytest.mark.usefixtures("fresh")
def test_images_that_a_base_was_trained_on_cannot_be_held_out() -> None:
    sweep_file(FILE + BEGUN + 'train = { hold_out = 0.1 }\ncertify = { split = "held-out" }\n')
    _, errors = inside("sweep", "some.toml", code=1)
    assert "error: narrow: the images to hold out is known to the network" in errors


@pytest.mark.usefixtures("fresh")
def test_a_run_that_fails_does_not_stop_the_others() -> None:
    sweep_file(FILE + EXPLODES + NARROW)
    said, errors = inside("sweep", "some.toml", code=1)
    (line,) = errors.splitlines()
    assert re.match("error: explodes: the .* must be a finite number", line)
    assert "next: deformrs report runs/wide runs/narrow" in said
    assert len(load_run("runs/wide")) == len(load_run("runs/narrow")) == 6
    listed, _ = inside("sweep", "some.toml", "--list")
    assert re.search(r"explodes +training, 0 epochs done", listed)


@pytest.mark.usefixtures("done")
def test_damage_is_named() -> None:
    sweep_file(FILE + BEGUN)
    Path("runs/narrow/config.json").write_text("{")
    assert "config.json is damaged" in inside("sweep", "some.toml", "--list")[0]
    said, errors = inside("sweep", "some.toml", code=1)
    assert "error: narrow: runs/narrow/config.json is damaged" in errors
    assert "wide: done already" in said


@pytest.mark.usefixtures("fresh")
def test_missing_sources_are_named_before_anything_is_trained() -> None:
    for old, new, message in (
        ('"few.npz"', '"flat.npz"', "flat.npz, without a test split"),
        ('"few.npz"', '"fewer.npz"', "fewer.npz"),
        ('"small_cnn"', '"smal_cnn"', "smal_cnn"),
        ("epochs = 1", 'weights = "nowhere.pth"', "nowhere.pth"),
        ("n0 = 20", 'data = "nowhere.npz"', "nowhere.npz"),
    ):
        sweep_file(FILE.replace(old, new) + NARROW)
        assert message in inside("sweep", "some.toml", code=1)[1]
    sweep_file(HELD_OUT.replace("hold_out = 0.1", "hold_out = 0.001"))
    assert "must hold out at least one of 200" in inside("sweep", "some.toml", code=1)[1]
    assert not Path("runs").exists()
    sweep_file(FILE.replace('"few.npz"', '"flat.npz"').replace("n0 = 20", 'data = "unseen.npz"'))
    inside("sweep", "some.toml")
    assert len(load_run("runs/wide")) == 6


@pytest.mark.usefixtures("fresh")
def test_a_file_runs_on_any_machine() -> None:
    sweep_file(FILE.replace('device = "cpu"\n', 'device = "cuda:77"\n'))
    inside("sweep", "some.toml", "--device", "cpu", "--out", "elsewhere")
    assert len(load_run("elsewhere/wide")) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--data is missing"),
        (("--data", "few.npz"), "--model is missing"),
        (OPTIONS, "--deformation is missing"),
        ((*OPTIONS, "--deformation", "rotation"), "--noise is missing"),
        (("some.toml", "--epochs", "3"), "--epochs cannot be given with some.toml"),
        (("some.toml", "--noise", "uniform:3deg"), "--noise cannot be given with some.toml"),
        (("some.toml", "--region", "rotation<=3deg"), "--region cannot be given with some.toml"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], message: str) -> None:
    assert message in inside("sweep", *arguments, code=2)[1]


@pytest.mark.usefixtures("fresh")
def test_out_that_is_a_file() -> None:
    sweep_file(FILE)
    Path("runs").write_text("")
    assert "must not be a file" in inside("sweep", "some.toml", code=1)[1]


@pytest.mark.usefixtures("fresh")
def test_an_interrupt_stops_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "train_run", interrupt)
    sweep_file(FILE + NARROW)
    with pytest.raises(KeyboardInterrupt):
        sweep.complete(read_sweep(Path("some.toml")).runs, Console(quiet=True))
    assert not Path("runs").exists()


def test_a_smaller_maximum_shows_the_first_images_of_each_class(
    tmp_path: Path, network: Path
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "blocks.npz", images=images, labels=[0, 0, 0, 1, 1, 1])
    options = ("--deformation", "rotation", "--noise", "uniform:30deg", "--n", "30", "--n0", "20")
    data = ("--data", str(tmp_path / "blocks.npz"), "--out", str(tmp_path / "run"))
    inside("certify", "--model", str(network), *options, *data, "--device", "cpu")
    (tmp_path / "some.toml").write_text(FILE)
    run = read_sweep(tmp_path / "some.toml").runs[0]
    few = dataclasses.replace(run.sampling, max=4)
    stored = dataclasses.replace(run, folder=tmp_path / "run", sampling=few)
    assert sorted(result.index for result in stored.results()) == [0, 1, 3, 4]
