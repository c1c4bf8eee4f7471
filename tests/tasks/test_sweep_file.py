"""The file of a sweep: what it may say, and how it is answered where it may not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from deformrs.cli.arguments import DataOptions, ModelOptions, SmoothingOptions
from deformrs.cli.sweep_file import CERTIFY, TRAIN, fitted, read_sweep
from deformrs.cli.sweep_plan import PlannedRun, plan_sweep
from deformrs.errors import DeformRSError

WHOLE = """
out = "runs/some"
[train]
data = "cifar10"
model = "resnet18"
data_root = "kept"
learning-rate = 1
padding = "border"
mean = [0.5, 0.25, 1]
pretrained = true
[certify]
n = 1000
radii = ["10deg", "5px", "30deg"]
batch_size = "auto"
[[runs]]
deformation = "rotation"
noise = ["uniform:54deg", "uniform:180deg"]
[[runs]]
name = "shift"
deformation = "translation"
noise = "gaussian:0.4"
train = { consistency = 10, device = "cpu" }
certify = { n = 10000, precision = "bfloat16", radii = "1px, 5px" }
"""
RUN = '[[runs]]\ndeformation = "rotation"\nnoise = "uniform:54deg"\n'
DATA = '[train]\ndata = "digits"\nmodel = "small_cnn"\n'


def planned(tmp_path: Path, text: str) -> list[PlannedRun]:
    (tmp_path / "some.toml").write_text(text)
    return list(plan_sweep(read_sweep(tmp_path / "some.toml")).runs)


def test_all_that_a_file_may_say(tmp_path: Path) -> None:
    first, second, shift = planned(tmp_path, WHOLE)
    assert first.folder == tmp_path / "runs/some/rotation_uniform-54deg"
    assert second.folder == tmp_path / "runs/some/rotation_uniform-180deg"
    assert shift.name == "shift"
    assert first.smoothing == SmoothingOptions("rotation", "uniform:54deg", "border")
    assert first.data == DataOptions("cifar10", "train", "kept")
    assert first.test == DataOptions("cifar10", "test", "kept")
    assert first.start.mean == (0.5, 0.25, 1.0)
    assert first.start.pretrained
    assert isinstance(first.training.learning_rate, float)
    assert (first.sampling.n, shift.sampling.n) == (1000, 10000)
    assert (first.training.consistency, shift.training.consistency) == (None, 10.0)
    assert first.model == ModelOptions(str(first.folder))
    assert shift.model == ModelOptions(str(shift.folder), precision="bfloat16", device="cpu")
    # Each where its unit fits.
    assert [question.text for question in first.questions] == ["10deg", "30deg"]
    assert [question.text for question in shift.questions] == ["1px", "5px"]


def test_the_runs_lie_beside_the_file_by_default(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, DATA + RUN.replace("[[runs]]", "[runs]"))
    assert run.folder == tmp_path / "some" / "rotation_uniform-54deg"


def test_other_images_can_be_certified(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, DATA + '[certify]\ndata = "unseen.npz"\n' + RUN)
    assert run.test == DataOptions("unseen.npz")
    assert not run.own_test_split


def test_the_options_of_both_verbs_are_known() -> None:
    """Every option's type is one that values are checked against."""
    assert {"recipe", "epochs", "weights", "hold_out", "padding", "workers"} <= TRAIN.keys()
    assert {"n0", "alpha", "skip", "max", "method", "regions"} <= CERTIFY.keys()
    for hints in (TRAIN, CERTIFY):
        for key, hint in hints.items():
            with pytest.raises(DeformRSError, match=f"{key} is .*; it must be"):
                fitted(key, {"no": "value"}, hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", r"some\.toml is not readable \("),
        ("outt = 'a'\n" + DATA + RUN, "'outt' in .*some.toml is unknown; .*did you mean 'out'"),
        (DATA, r"runs in .*some\.toml is missing; .*add \[\[runs\]\]"),
        ("runs = []\n" + DATA, "runs in .* is missing"),
        ("runs = [3]\n" + DATA, r"\[\[runs\]\] 1 of .* is 3; it must be a table"),
        ("train = 3\n" + RUN, r"\[train\] of .* is 3; it must be a table"),
        ("out = 3\n" + DATA + RUN, "out in .* is 3; it must be text"),
        ("out = ''\n" + DATA + RUN, "out in .* must name a folder"),
        ("noise = 'a'\n" + DATA + RUN, r"'noise' in .* move it to \[\[runs\]\]"),
        (DATA + "noise = 'a'\n" + RUN, r"'noise' in \[train\] of .* move it to \[\[runs\]\]"),
        (DATA + "epoch = 3\n" + RUN, r"'epoch' in \[train\] of .* did you mean 'epochs'"),
        (DATA + "split = 'test'\n" + RUN, r"'split' in \[train\] of .* is unknown"),
        (DATA + "epochs = '3'\n" + RUN, r"epochs in \[train\] of .* must be an integer"),
        (DATA + "epochs = true\n" + RUN, "epochs in .* is True; it must be an integer"),
        (DATA + "epochs = 0\n" + RUN, "epochs for .* is 0; it must be an integer of at least"),
        (DATA + "consistency = nan\n" + RUN, "consistency in .* must be a number"),
        (DATA + "pretrained = 1\n" + RUN, "pretrained in .* must be true or false"),
        (DATA + "mean = 0.5\n" + RUN, "mean in .* must be a list of numbers"),
        (DATA + "padding = 'zero'\n" + RUN, "padding in .* did you mean 'zeros'"),
        (DATA + "recipe = 'papr'\n" + RUN, "the recipe for .* did you mean 'paper'"),
        (DATA + "augment = 'crop:x'\n" + RUN, "x"),
        (DATA + "nodes = 2\n" + RUN, "nodes for .* must be 1 in a sweep"),
        (DATA + "batch-size = 3\nbatch_size = 3\n" + RUN, "batch_size in .* is there twice"),
        ("[train]\ndata = 'digits'\n" + RUN, "model for .* is missing"),
        ("[train]\nmodel = 'small_cnn'\n" + RUN, "data for .* is missing"),
        (DATA + "[certify]\nm = 3\n" + RUN, r"'m' in \[certify\] of .* is unknown"),
        (DATA + "[certify]\nn = 0\n" + RUN, "n for .* is 0"),
        (DATA + "[certify]\nalpha = 2\n" + RUN, "alpha for .* must lie in"),
        (DATA + "[certify]\nmethod = 'clopper'\n" + RUN, "method for .* clopper_pearson"),
        (DATA + "[certify]\nradii = [10]\n" + RUN, "radii in .* must be a list of texts"),
        (DATA + "[certify]\nradii = ['5px']\n" + RUN, "the angle for .*'5px'"),
        (DATA + "[certify]\nradii = ['-5deg']\n" + RUN, "must not be negative"),
        (DATA + "[certify]\nregions = ['rotatoin<=3deg']\n" + RUN, "did you mean 'rotation'"),
        (DATA + "[certify]\nregions = 'shift<=3px'\n" + RUN, "for .*some"),
        (DATA + RUN + "nois = 'a'\n", r"'nois' in \[\[runs\]\] 1 of .* did you mean 'noise'"),
        (DATA + RUN + "epochs = 3\n", r"'epochs' in .* write train = \{ epochs = … \}"),
        (DATA + RUN + "n = 3\n", r"'n' in .* write certify = \{ n = … \}"),
        (DATA + RUN + "train = { epoch = 3 }\n", r"'epoch' in train of \[\[runs\]\] 1 of"),
        (DATA + RUN + "train = 3\n", r"train of \[\[runs\]\] 1 of .* must be a table"),
        (DATA + RUN.replace("rotation", "rotatoin"), "did you mean 'rotation'"),
        (DATA + RUN.replace("uniform", "unifrom"), "the noise for .* did you mean 'uniform'"),
        (DATA + RUN.replace("54deg", "54px"), r"the angle for \[\[runs\]\] 1 of"),
        (DATA + "[[runs]]\nnoise = 'uniform:3deg'\n", "deformation in .* is missing"),
        (DATA + "[[runs]]\ndeformation = 'rotation'\nnoise = []\n", "noise in .* is missing"),
        (DATA + RUN + RUN, r"the name of \[\[runs\]\] 2 of .* as that of another run"),
        (DATA + RUN + "name = 'a'\n" + RUN + "name = 'A'\n", "'A', as that of another run"),
        (DATA + RUN + "certify = { radii = [] }\n" + RUN, "as that of another run"),
        (DATA + RUN + "name = '../a'\n", "name in .* must be a plain folder name"),
        (DATA + RUN + "name = '.'\n", "name in .* must be a plain folder name"),
        (DATA + RUN + "name = 'report'\n", "name in .* is kept for the report"),
    ],
)
def test_what_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DeformRSError, match=message) as raised:
        planned(tmp_path, text)
    assert "\n" not in str(raised.value)
    assert "some.toml" in str(raised.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(DeformRSError, match="is missing|is not readable"):
            read_sweep(path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DeformRSError, match="is not readable"):
        read_sweep(tmp_path / "bytes.toml")


def test_a_sweep_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(DeformRSError, match="started 2 times by torchrun"):
        planned(tmp_path, DATA + RUN)


def test_overrides_of_one_run_leave_the_others_alone(tmp_path: Path) -> None:
    own = RUN + "train = { seed = 1 }\ncertify = { seed = 2 }\n"
    first, second = planned(tmp_path, DATA + RUN + own)
    assert (first.training.seed, first.sampling.seed) == (0, 0)
    assert (second.training.seed, second.sampling.seed) == (1, 2)
    assert dataclasses.replace(second.training, seed=0) == first.training
