"""A sweep that certifies one network more than once, and one that is run in parts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from few_digits import FILE, NARROW, content, few_digits, sweep_file
from safetensors.torch import load_file

from deformrs.cli.arguments import SmoothingOptions
from deformrs.cli.sweep_file import read_sweep
from deformrs.cli.sweep_plan import PlannedRun, plan_sweep
from deformrs.errors import DeformRSError
from deformrs.runs import load_run, read_config
from inside import inside

AGAIN = """
[[runs]]
name = "again"
network = "wide"
certify = { fixed = true, skip = 2 }
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few_digits()


def planned(text: str) -> list[PlannedRun]:
    sweep_file(text)
    return list(plan_sweep(read_sweep(Path("some.toml"))).runs)


def test_a_network_is_certified_again_and_not_trained_again() -> None:
    sweep_file(FILE + AGAIN)
    _, errors = inside("sweep", "some.toml")
    assert errors == ""
    assert not list(Path("runs/again").glob("model*"))
    wide, again = read_config(Path("runs/wide")), read_config(Path("runs/again"))
    for key in ("model", "deformation", "noise", "data"):
        assert again[key] == wide[key]
    assert "stopping" not in again
    results = load_run("runs/again")
    assert [result.index for result in results] == [0, 2, 4]
    assert all(result.certificate.counts.n == 60 for result in results)
    before = content(Path("runs"))
    assert inside("sweep", "some.toml")[0].count("done already") == 2
    assert content(Path("runs")) == before
    sweep_file(FILE.replace("epochs = 1", "epochs = 2") + AGAIN)
    said, _ = inside("sweep", "some.toml", "--list")
    assert said.count("with other options") == 2, "what its network was trained with counts too"


def test_other_noise_of_the_same_network() -> None:
    first, *others = planned(
        FILE + '[[runs]]\nnetwork = "wide"\nnoise = ["uniform:30deg", "uniform:40deg"]\n'
    )
    assert [run.smoothing for run in others] == [
        SmoothingOptions("rotation", "uniform:30deg"),
        SmoothingOptions("rotation", "uniform:40deg"),
    ]
    for run in others:
        assert run.network is first
        assert run.model.model == str(first.folder)
        assert run.training == first.training
        assert run.name.endswith("_network-wide")


def test_the_options_of_training_are_those_of_the_networks_own_run() -> None:
    own = NARROW + 'train = { padding = "border", seed = 3, data = "unseen.npz" }\n'
    *_, narrow, again = planned(FILE + own + AGAIN.replace('"wide"', '"narrow"'))
    assert again.smoothing == narrow.smoothing
    assert again.smoothing.padding == "border"
    assert again.test == narrow.test
    assert again.training.seed == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (AGAIN + NARROW, "the network for .* must be the name of a run above .* are none"),
        (NARROW + AGAIN.replace('"wide"', '"narow"'), "did you mean 'narrow'"),
        (
            NARROW + AGAIN.replace("wide", "narrow") + AGAIN.replace("wide", "again"),
            "'again'; .* that is trained",
        ),
        (NARROW + AGAIN.replace("wide", "narrow") + "train = { seed = 1 }\n", "nothing to train"),
        (NARROW + AGAIN.replace('"wide"', "3"), "network in .* must be text"),
    ],
)
def test_networks_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(DeformRSError, match=message):
        planned(FILE.partition("[[runs]]")[0] + text)


BEGUN = NARROW + 'begin = "wide"\n'
OWN_NETWORK = (
    "from torch import nn\n"
    "def build():\n"
    "    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))\n"
)


@pytest.mark.parametrize("model", ['"small_cnn"', '"net.py:build"'])
def test_training_goes_on_from_the_weights_of_another_run(model: str) -> None:
    Path("net.py").write_text(OWN_NETWORK)
    sweep_file(FILE.replace('"small_cnn"', model) + BEGUN + "train = { learning_rate = 1e-12 }\n")
    _, errors = inside("sweep", "some.toml")
    assert errors == ""
    wide, narrow = (load_file(f"runs/{name}/model.safetensors") for name in ("wide", "narrow"))
    for name in wide:
        if "running" not in name and "tracked" not in name:  # batch norms look at images
            assert torch.allclose(wide[name].float(), narrow[name].float(), atol=1e-6)
    before = content(Path("runs"))
    assert inside("sweep", "some.toml")[0].count("done already") == 2
    assert content(Path("runs")) == before
    Path("runs").rename("elsewhere")
    said, _ = inside("sweep", "some.toml", "--out", "elsewhere", "--list")
    assert said.count("  done\n") == 2, "wherever they lie"


def test_what_builds_on_another_network_than_before_is_not_done() -> None:
    """The base is trained anew: neither what certifies its network nor what began with it holds."""
    chain = BEGUN + AGAIN + AGAIN.replace("again", "of-narrow").replace('"wide"', '"narrow"')
    other = '[[runs]]\nname = "elsewhere"\nnetwork = "wide"\nnoise = "uniform:20deg"\n'
    sweep_file(FILE + chain + other)
    inside("sweep", "some.toml")
    shutil.rmtree("runs/wide")
    sweep_file(FILE.replace("90deg", "45deg") + chain + other)
    said, errors = inside("sweep", "some.toml", code=1)
    assert "done already" not in said
    for name in ("narrow", "again", "of-narrow", "elsewhere"):
        assert f"error: {name}: " in errors
    listed, _ = inside("sweep", "some.toml", "--list")
    assert listed.count("  done\n") == 1
    assert re.search("of-narrow +certified 3 of 3, but narrow is not done", listed)


def test_a_base_that_failed_serves_nobody() -> None:
    sweep_file(FILE)
    inside("sweep", "some.toml")
    sweep_file(FILE.replace("epochs = 1", "epochs = 2") + BEGUN + AGAIN)
    for arguments in ((), ("--only", "again", "--only", "narrow")):
        _, errors = inside("sweep", "some.toml", *arguments, code=1)
        for name in ("again", "narrow"):
            assert f"error: {name}: the run wide, which {name} needs is certified 6" in errors
    assert not Path("runs/again").exists()
    assert not Path("runs/narrow").exists()


def test_a_folder_holds_no_certificates_of_another_network() -> None:
    own = FILE + NARROW.replace("narrow", "again")
    sweep_file(own)
    inside("sweep", "some.toml")
    for name in ("certificates.jsonl", "config.json", "sweep.json", "times.tsv"):
        (Path("runs/again") / name).unlink()
    sweep_file(FILE + AGAIN)
    assert inside("sweep", "some.toml", "--list")[0].endswith("again  not begun\n")
    assert "runs/again is that of a training" in inside("sweep", "some.toml", code=1)[1]


def test_images_that_a_base_has_learnt_are_not_held_out() -> None:
    held_out = 'certify = { split = "held-out" }\n'
    for base, own in (
        ("", "hold_out = 0.1"),
        ("hold_out = 0.1, seed = 1", "hold_out = 0.1, seed = 2"),
        ("hold_out = 0.2", "hold_out = 0.1"),
    ):
        sweep_file(FILE + f"train = {{ {base} }}\n" + BEGUN + f"train = {{ {own} }}\n" + held_out)
        _, errors = inside("sweep", "some.toml", code=1)
        assert "error: narrow: the images to hold out is known to the network" in errors
        shutil.rmtree("runs")
    shared = FILE.replace("epochs = 1", "epochs = 1\nhold_out = 0.1")
    sweep_file(shared + BEGUN + held_out)
    assert inside("sweep", "some.toml")[1] == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.partition("[[runs]]")[0] + BEGUN, "begin for .* a run above that is trained"),
        (FILE + NARROW + AGAIN + 'begin = "wide"\n', "begin of .* nothing to train"),
        (FILE + BEGUN + 'train = { model = "small_cnn:width=4" }\n', "model for .* that of wide"),
        (FILE + BEGUN + "train = { mean = [0.5] }\n", "mean for .* must be that of wide, None"),
    ],
)
def test_what_training_cannot_begin_with(text: str, message: str) -> None:
    with pytest.raises(DeformRSError, match=message):
        planned(text)


def test_some_runs_only() -> None:
    sweep_file(FILE + NARROW + AGAIN)
    _, errors = inside("sweep", "some.toml", "--only", "again", code=1)
    assert "the run wide, which again needs is not begun; it must be done" in errors
    said, _ = inside("sweep", "some.toml", "--only", "again", "--only", "wide", "--list")
    assert "2 runs in runs" in said
    inside("sweep", "some.toml", "--only", "wide")
    inside("sweep", "some.toml", "--only", "again")
    assert {path.name for path in Path("runs").iterdir()} == {"wide", "again"}
    said, _ = inside("sweep", "some.toml")
    assert said.count("done already") == 2
    assert "did you mean 'narrow'" in inside("sweep", "some.toml", "--only", "narow", code=1)[1]
    assert "the run is ''" in inside("sweep", "some.toml", "--only", "", code=1)[1]
    _, errors = inside("sweep", "some.toml", "--only", "wide", "--report", code=2)
    assert "--report is of all runs" in errors
