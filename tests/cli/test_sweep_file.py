"""Sweep files: what they may say, how they expand into runs, and errors that name the place."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from deformrs.cli.options import DataOptions, ModelOptions, SmoothingOptions
from deformrs.cli.sweep_file import CERTIFY, TRAIN, folder_name, plan_sweep, read_sweep
from deformrs.cli.sweep_run import SweepRun
from deformrs.errors import DeformRSError, InputError

WHOLE = """
out = "runs/some"
[train]
data = "cifar10"
model = "resnet18"
learning_rate = 1
padding = "border"
mean = [0.5, 0.25, 1]
pretrained = true
[certify]
n = 1000
radii = ["10deg", "5px", "30deg"]
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

WIDE = "[[runs]]\nname = 'wide'\ndeformation = 'rotation'\nnoise = 'uniform:90deg'\n"
AGAIN = "[[runs]]\nname = 'again'\nnetwork = 'wide'\n"
BEGUN = RUN + "begin = 'wide'\n"
HELD_OUT = "[certify]\nsplit = 'held-out'\n"


def planned(tmp_path: Path, text: str) -> list[SweepRun]:
    (tmp_path / "some.toml").write_text(text)
    return list(read_sweep(tmp_path / "some.toml").runs)


def test_all_that_a_file_may_say(tmp_path: Path) -> None:
    first, second, shift = planned(tmp_path, WHOLE)
    assert first.folder == tmp_path / "runs/some/rotation_uniform-54deg"
    assert second.folder == tmp_path / "runs/some/rotation_uniform-180deg"
    assert shift.name == "shift"
    assert first.smoothing == SmoothingOptions("rotation", "uniform:54deg", "border")
    assert first.data == DataOptions("cifar10", "train")
    assert first.test == DataOptions("cifar10", "test")
    assert first.start.mean == (0.5, 0.25, 1.0)
    assert first.start.pretrained
    assert isinstance(first.training.learning_rate, float)
    assert (first.sampling.n, shift.sampling.n) == (1000, 10000)
    assert (first.training.consistency, shift.training.consistency) == (None, 10.0)
    assert first.model == ModelOptions(str(first.folder))
    assert shift.model == ModelOptions(str(shift.folder), precision="bfloat16", device="cpu")
    # Each where its unit fits.
    assert [query.text for query in first.queries] == ["10deg", "30deg"]
    assert [query.text for query in shift.queries] == ["1px", "5px"]


def test_a_run_leaves_out_radii_that_its_noise_cannot_certify(tmp_path: Path) -> None:
    certify = '[certify]\nn = 1000\nradii = ["10deg", "60deg"]\n'
    runs = '[[runs]]\ndeformation = "rotation"\nnoise = ["uniform:30deg", "uniform:90deg"]\n'
    narrow, wide = planned(tmp_path, DATA + certify + runs)
    assert [query.text for query in narrow.queries] == ["10deg"]
    assert [query.text for query in wide.queries] == ["10deg", "60deg"]
    # If no run can, or a run is left without a radius, that is an error before any training.
    for radii in ('["10deg", "120deg"]', '["60deg"]'):
        with pytest.raises(InputError, match=r"cannot be certified by uniform noise of scale"):
            planned(tmp_path, DATA + f"[certify]\nn = 1000\nradii = {radii}\n" + runs)


def test_the_folder_of_the_runs_is_named_after_the_file(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, DATA + RUN)
    assert run.folder == tmp_path / "some" / "rotation_uniform-54deg"


def test_other_images_can_be_certified(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, DATA + '[certify]\ndata = "unseen.npz"\n' + RUN)
    assert run.test == DataOptions("unseen.npz")


@pytest.mark.parametrize("table", ["train", "certify"])
def test_every_option_of_both_verbs_is_checked_against_its_type(table: str) -> None:
    hints = {"train": TRAIN, "certify": CERTIFY}[table]
    expected = {"train": {"recipe", "epochs", "weights", "hold_out", "padding", "workers"}}
    assert expected.get(table, {"n0", "alpha", "skip", "max", "method", "regions"}) <= hints.keys()
    for key in hints:
        with pytest.raises(InputError, match=f"{key} in .* is .*; it must be"):
            plan_sweep({table: {key: {"no": "value"}}}, Path("out"), "some.toml")


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
        (DATA + "trust_code = true\n" + RUN, r"'trust_code' in \[train\] of .* is unknown"),
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
        (DATA + "batch-size = 3\n" + RUN, "did you mean 'batch_size'"),
        ("[train]\ndata = 'digits'\n" + RUN, "model for .* is missing"),
        ("[train]\nmodel = 'small_cnn'\n" + RUN, "data for .* is missing"),
        (DATA + "[certify]\nm = 3\n" + RUN, r"'m' in \[certify\] of .* is unknown"),
        (DATA + "[certify]\nn = 0\n" + RUN, "n for .* is 0"),
        (DATA + "[certify]\nalpha = 2\n" + RUN, "alpha for .* must lie in"),
        (DATA + "[certify]\nmethod = 'clopper'\n" + RUN, "method for .* clopper_pearson"),
        (DATA + "[certify]\nradii = [10]\n" + RUN, "radii in .* must be a list of texts"),
        (DATA + "[certify]\nradii = ['5px']\n" + RUN, "the angle for .*'5px'"),
        (DATA + "[certify]\nradii = ['-5deg']\n" + RUN, "finite and not negative"),
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
        (DATA + "[[runs]]\nnoise = 'uniform:3deg'\n", "deformation for .* is missing"),
        (DATA + "[[runs]]\ndeformation = 'rotation'\nnoise = []\n", "noise for .* is missing"),
        (DATA + RUN + RUN, r"the name of the run for \[\[runs\]\] 2 of .* must differ"),
        (
            DATA + RUN + "name = 'a'\n" + RUN + "name = 'A'\n",
            "'A'; it must differ from those above",
        ),
        (DATA + RUN + "certify = { radii = [] }\n" + RUN, "must differ from those above"),
        (DATA + RUN + "name = '../a'\n", "name of the run for .* must be a plain folder name"),
        (DATA + RUN + "name = '.'\n", "name of the run for .* must be a plain folder name"),
        (DATA + RUN + "name = 'report'\n", "name of the run for .* neither 'report'"),
        (DATA + RUN + AGAIN.replace("wide", "narow"), "the network for .* there are rotation"),
        (DATA + WIDE + AGAIN.replace("wide", "wid"), "the network for .* did you mean 'wide'"),
        (DATA + WIDE + AGAIN + AGAIN.replace("wide", "again"), "'again'; .* that is trained"),
        (DATA + WIDE + AGAIN + "train = { seed = 1 }\n", "given with train; .* nothing to train"),
        (DATA + WIDE + AGAIN + "begin = 'wide'\n", "given with begin; .* nothing to train"),
        (DATA + WIDE + AGAIN.replace("'wide'", "3"), "network in .* must be text"),
        (DATA + BEGUN, "begin for .* a run above that is trained"),
        (DATA + WIDE + BEGUN + "train = { model = 'resnet18' }\n", "model for .* that of wide"),
        (DATA + WIDE + BEGUN + "train = { mean = [0.5] }\n", "mean for .* that of wide, None"),
        (DATA + HELD_OUT + RUN, "split for .* is held-out; .*add hold_out = 0.1"),
        (DATA + "hold_out = 0.1\n" + HELD_OUT + "data = 'b.npz'\n" + RUN, "data for .* is b.npz"),
        (DATA + HELD_OUT.replace("held-out", "train") + RUN, "split in .* one of test, held-out"),
        (DATA + RUN + "split = 'test'\n", r"write certify = \{ split = … \}"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DeformRSError, match=message) as raised:
        planned(tmp_path, text)
    assert "\n" not in str(raised.value)
    assert "some.toml" in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(DeformRSError, match="is missing|is a folder"):
            read_sweep(path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DeformRSError, match="is not readable"):
        read_sweep(tmp_path / "bytes.toml")


def test_a_sweep_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(DeformRSError, match="started 2 times by torchrun"):
        planned(tmp_path, DATA + RUN)


def test_overrides_of_one_run_leave_the_others_alone(tmp_path: Path) -> None:
    own = RUN + "train = { seed = 1 }\ncertify = { seed = 2 }\n"
    first, second = planned(tmp_path, DATA + RUN + own)
    assert (first.training.seed, first.sampling.seed) == (0, None)
    assert (second.training.seed, second.sampling.seed) == (1, 2)
    assert dataclasses.replace(second.training, seed=0) == first.training


def test_other_noise_of_the_same_network(tmp_path: Path) -> None:
    own = "train = { padding = 'border', seed = 3, data = 'few.npz' }\n"
    again = AGAIN.replace("name = 'again'", "noise = ['uniform:30deg', 'uniform:40deg']")
    first, *others = planned(tmp_path, DATA + WIDE + own + again)
    assert [run.smoothing for run in others] == [
        SmoothingOptions("rotation", "uniform:30deg", "border"),
        SmoothingOptions("rotation", "uniform:40deg", "border"),
    ]
    for run in others:
        assert run.network is first
        assert run.model.model == str(first.folder)
        assert run.training == first.training
        assert run.test == first.test == DataOptions("few.npz")
        assert run.name.endswith("_network-wide")


@pytest.mark.parametrize("old", ["small_cnn", "rotation"])
def test_guarantee_python_code_that_a_sweep_names_is_not_executed(tmp_path: Path, old: str) -> None:
    """Guarantee of `read_sweep`: without `trust_code`, no Python file is executed."""
    marker = tmp_path / "executed"
    (tmp_path / "net.py").write_text(f"open({str(marker)!r}, 'w')\n")
    with pytest.raises(InputError, match="a Python file that is executed.*--trust-code"):
        planned(tmp_path, (DATA + RUN).replace(old, f"{tmp_path / 'net.py'}:build"))
    assert not marker.exists()


def names(*runs: Mapping[str, object]) -> list[str]:
    shared = {"data": "digits", "model": "small_cnn"}
    entries = [dict(run) for run in runs]
    return [run.name for run in plan_sweep({"train": shared, "runs": entries}, Path("out")).runs]


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("rotation", "uniform:54deg"), "rotation_uniform-54deg"),
        (("rotation", "uniform:54°"), "rotation_uniform-54deg"),
        (("scaling", "uniform:30%"), "scaling_uniform-30pct"),
        (("affine", "gaussian:0.1, 0.2"), "affine_gaussian-0.1-0.2"),
        (("dct:k=3,basis=cosine", "gaussian:1e-3"), "dct-k=3-basis=cosine_gaussian-1e-3"),
        (("/home/me/lens.py:Lens", "gaussian:.1"), "lens-Lens_gaussian-.1"),
        (("rotation+a/lens.py:Lens", ""), "rotation-lens-Lens"),
        (("../..", "a"), "x_a"),
    ],
)
def test_folder_names_are_readable(parts: tuple[str, ...], name: str) -> None:
    assert folder_name(*parts) == name


def test_folder_names_are_harmless() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_.=-]+", folder_name('%:/+,\\ \0\n*?"<>|é', "..", "a"))


def test_a_run_for_every_pair() -> None:
    families, noises = ["scaling", "affine"], ["gaussian:0.1", "gaussian:0.2"]
    both: dict[str, object] = {"name": "both", "deformation": families, "noise": noises}
    assert names(both) == [
        "both_scaling_gaussian-0.1",
        "both_scaling_gaussian-0.2",
        "both_affine_gaussian-0.1",
        "both_affine_gaussian-0.2",
    ]
    with pytest.raises(InputError, match="0.1rad"):
        names(both | {"noise": "gaussian:0.1rad"})


def test_options_of_a_run_are_in_its_name_but_not_the_machine() -> None:
    plain: dict[str, object] = {"deformation": "rotation", "noise": "uniform:5deg"}
    train = {"consistency": 10, "weights": "my/own.pth", "device": "cpu", "workers": 2}
    own = plain | {"train": train, "certify": {"n": 100, "radii": ["1deg"], "device": "cpu"}}
    assert names(plain, own) == [
        "rotation_uniform-5deg",
        "rotation_uniform-5deg_consistency-10_weights-own.pth_n-100",
    ]
    with pytest.raises(InputError, match="must differ from those above"):
        names(plain, plain | {"train": {"device": "cpu"}})
    with pytest.raises(InputError, match="at most 200 bytes"):
        names(plain | {"train": {"weights": 200 * "w"}})
