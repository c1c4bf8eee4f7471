"""A sweep that certifies one network more than once, and one that is run in parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from few_digits import FILE, NARROW, content, few_digits, sweep_file
from safetensors.torch import load_file

from deformrs.errors import DeformRSError
from deformrs.runs import load_run, read_config
from deformrs.tasks.options import SmoothingOptions
from deformrs.tasks.sweep_file import read_sweep
from deformrs.tasks.sweep_plan import plan_sweep
from deformrs.tasks.sweep_runs import PlannedRun
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
        assert run.network == first.folder
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


def test_training_goes_on_from_the_weights_of_another_run() -> None:
    begun = NARROW + 'begin = "wide"\ntrain = { learning_rate = 1e-12, epochs = 1 }\n'
    sweep_file(FILE + begun)
    _, errors = inside("sweep", "some.toml")
    assert errors == ""
    wide, narrow = (load_file(f"runs/{name}/model.safetensors") for name in ("wide", "narrow"))
    weights = [name for name in wide if "running" not in name and "tracked" not in name]
    for name in weights:  # hardly moved by so low a learning rate
        assert torch.allclose(wide[name].float(), narrow[name].float(), atol=1e-6)
    before = content(Path("runs"))
    assert inside("sweep", "some.toml")[0].count("done already") == 2
    assert content(Path("runs")) == before
    Path("runs").rename("elsewhere")
    said, _ = inside("sweep", "some.toml", "--out", "elsewhere", "--list")
    assert said.count("  done\n") == 2, "wherever they lie"


def test_a_run_begins_with_weights_that_are_there() -> None:
    begun = NARROW + 'begin = "wide"\n'
    sweep_file(FILE + begun)
    assert "train wide first" in inside("sweep", "some.toml", "--only", "narrow", code=1)[1]
    head = FILE.partition("[[runs]]")[0]
    for text, message in (
        (head + begun, "begin for .* must be the name of a run above that is trained"),
        (FILE + begun + "train = { pretrained = true }\n", "leave weights and pretrained out"),
        (FILE + NARROW + AGAIN + 'begin = "wide"\n', "begin of .* nothing to train"),
    ):
        with pytest.raises(DeformRSError, match=message):
            planned(text)


def test_some_runs_only() -> None:
    sweep_file(FILE + NARROW + AGAIN)
    _, errors = inside("sweep", "some.toml", "--only", "again", code=1)
    assert "train wide first" in errors
    said, _ = inside("sweep", "some.toml", "--only", "again,wide", "--list")
    assert "2 runs in runs" in said
    inside("sweep", "some.toml", "--only", "wide")
    inside("sweep", "some.toml", "--only", "again")
    assert {path.name for path in Path("runs").iterdir()} == {"wide", "again"}
    said, _ = inside("sweep", "some.toml")
    assert said.count("done already") == 2
    assert "did you mean 'narrow'" in inside("sweep", "some.toml", "--only", "narow", code=1)[1]
