"""Files of a run or a training that were edited: an error, or the same answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from commands import deformrs, fails, run_inside
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, load_model, save_model
from deformrs.runs import read_config
from deformrs.runs.records import unsealed
from deformrs.specs import parse_deformation, parse_noise
from deformrs.training.checkpoints import STATE, Checkpoints, Snapshot
from made_runs import resign


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, text
    path.write_text(text.replace(old, new))


SAMPLES = ("--n", "60", "--n0", "20", "--seed", "1", "--device", "cpu")
CODE = """
from deformrs.models import SmallCNN
class Flipped(SmallCNN):
    def forward(self, images):
        return super().forward(images).flip(1)
Flipped.__qualname__ = "SmallCNN"
def build():
    return SmallCNN(width=2, seed=1)
def other():
    return Flipped(width=2, seed=1)
"""
SHIFT = ("translation", "gaussian:4px")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks of equal form, an image, and runs of rotations, of shifts and of code."""
    place = tmp_path_factory.mktemp("binding")
    for name, seed in (("net", 1), ("other", 2)):
        save_model(place / name, SmallCNN(width=2, seed=seed).eval(), Preparation(channels=1))
    (place / "net.py").write_text(CODE)
    for name, size in (("same.png", 28), ("large.png", 40)):
        Image.linear_gradient("L").resize((size, size)).save(place / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, model, deformation, noise in (
            ("run", "net", "rotation", "uniform:60deg"),
            ("shifts", "net", *SHIFT),
            ("code", "net.py:build", "rotation", "uniform:60deg"),
        ):
            run_inside(
                *("certify", "--model", model, "--data", "digits", "--deformation", deformation),
                *("--noise", noise, *SAMPLES, "--max", "2", "--out", name),
            )
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


PREDICT = ("predict", "same.png", "--json", *SAMPLES, "--run")
GALLERY = ("gallery", "--columns", "1", "--predict-n", "10", "--out", "a.png", *SAMPLES, "--run")


def edit_option(run: Path, name: str, value: object) -> None:
    config = json.loads((run / "config.json").read_text())
    assert name in config["options"]
    config["options"][name] = value
    (run / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("noise", "uniform:6deg", "options in run/config.json is not what the results are bound"),
        ("noise", "gaussian:60deg", "noise.name: uniform there, gaussian here"),
        ("padding", "border", "padding: zeros there, border here"),
        ("deformation", "scaling", "must be those of the certificates"),
        ("deformation", "dct:1", "deformation.name: rotation there"),
        ("model", "other", "must be what was certified"),
        ("weights", "other/model.safetensors", "cannot be given for net"),
        ("resize", 20, "data.preparation.resize: None there, 20 here"),
        ("channels", 3, "data.preparation.channels: 1 there, 3 here"),
    ],
)
def test_edited_options_of_a_run_are_refused(
    place: Path, option: str, value: object, message: str
) -> None:
    """Noise of 6 degrees was once sampled for certificates of 60."""
    edit_option(place / "run", option, value)
    for verb in (PREDICT, GALLERY):
        assert message in fails(*verb, "run")


def test_guarantee_options_that_say_the_same_give_the_same_answer(place: Path) -> None:
    before = deformrs(*PREDICT, "run").stdout
    for option, value in (
        *(("noise", "uniform:1.0471975511965976rad"), ("precision", "bfloat16")),
        *(("device", "none"), ("batch_size", 3)),
    ):
        if option in read_config(place / "run")["options"]:  # type: ignore[operator]
            edit_option(place / "run", option, value)
    assert deformrs(*PREDICT, "run").stdout == before


@pytest.mark.parametrize(("option", "value"), [("split", "train"), ("data", "digits2.npz")])
def test_a_gallery_draws_no_images_of_another_dataset(
    place: Path, option: str, value: object
) -> None:
    (place / "digits2.npz").write_bytes(b"")
    edit_option(place / "run", option, value)
    line = fails(*GALLERY, "run", "--images", "5")
    assert "not the one certified (" in line or "digits2.npz" in line


def test_pixels_of_noise_are_bound(place: Path) -> None:
    """On an image of another size, 4 px is another law than what it was on the run's images."""
    predict = ("predict", "large.png", "--json", *SAMPLES, "--run", "shifts")
    before = deformrs(*predict).stdout
    by_pixels = ("--model", "net", "--deformation", SHIFT[0], "--noise", SHIFT[1])
    assert deformrs(*predict[:-2], *by_pixels).stdout == before
    edit_option(place / "shifts", "noise", f"gaussian:{4 / 14!r}")
    assert deformrs(*predict).stdout == before
    edit_option(place / "shifts", "noise", "gaussian:5px")
    assert "must be those of the certificates" in fails(*predict)


def test_pixels_that_earlier_versions_did_not_bind_are_no_pixels(place: Path) -> None:
    """Their law is, so its text cannot choose another one on images of another size."""
    answers = []
    for noise in (SHIFT[1], f"gaussian:{4 / 14!r}"):
        resign(place / "shifts", noise_in_pixels=None)
        edit_option(place / "shifts", "noise", noise)
        images = ("predict", "same.png", "large.png", *SAMPLES)
        answers.append(deformrs(*images, "--run", "shifts").stdout)
    assert answers[0] == answers[1]
    pixels = ("--model", "net", "--deformation", SHIFT[0], "--noise", SHIFT[1])
    same, large = deformrs(*images, *pixels).stdout.replace("class ", "").splitlines()
    assert answers[0].splitlines()[0] == same
    assert answers[0].splitlines()[1] != large


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"padding": "zeros",\n  "batch_size"', '"padding": "border",\n  "batch_size"'),
        ('"scale": 1.0471975511965976', '"scale": 0.10471975511965977'),
        ('"num_classes": 10', '"num_classes": 11'),
        ('"9"\n', '"0"\n'),
        ('"state_sha256": "', '"state_sha256": "0'),
        ('"precision": "bfloat16",\n    "network"', '"precision": "float16",\n    "network"'),
    ],
)
def test_the_bound_part_of_a_configuration_cannot_be_edited(
    place: Path, old: str, new: str
) -> None:
    path = place / "run" / "config.json"
    if old not in path.read_text():
        old, new = old.replace("bfloat16", "float32"), new
    edit(path, old, new)
    for verb in (PREDICT, GALLERY, ("report",)):
        assert "of another configuration" in fails(*verb, "run")


def test_the_function_that_builds_a_network_is_bound(place: Path) -> None:
    """Two functions of one file may return other networks with the same weights."""
    trust = ("--trust-code",)
    deformrs(*PREDICT, "code", *trust)
    edit_option(place / "code", "model", "net.py:other")
    line = fails(*PREDICT, "code", *trust)
    assert "model.name: net.py:build there, net.py:other here" in line


def test_a_run_without_results_binds_nothing(place: Path) -> None:
    (place / "run" / "certificates.jsonl").write_text("")
    (place / "run" / "times.tsv").unlink()
    for verb in (PREDICT, GALLERY):
        assert "must hold at least one certified image" in fails(*verb, "run")


def test_committed_runs_agree_with_their_options() -> None:
    """So runs of earlier versions are read, whose texts were parsed by other code."""
    paths = sorted((Path(__file__).parents[2] / "results").glob("*/*/config.json"))
    assert len(paths) > 20
    for path in paths:
        config = json.loads(path.read_text())
        options, deformation = (
            config["options"],
            parse_deformation(config["options"]["deformation"]),
        )
        assert deformation.to_config() == config["deformation"]
        noise = parse_noise(options["noise"], deformation.space((28, 28)))
        assert noise.to_config() == config["noise"]
        assert options["padding"] == config["padding"]


def without_digest(path: Path) -> None:
    """Leave the file as earlier versions wrote it."""
    path.write_text(json.dumps(unsealed(path.read_text()), indent=2) + "\n")


@pytest.mark.parametrize("read", [Checkpoints.read, Checkpoints.step])
@pytest.mark.parametrize(
    ("old", "new"), [('"step": 6', '"step": 7'), ("0.25", "0.75"), ('"epoch": 1', '"epoch": 2')]
)
def test_an_edited_state_of_a_training_is_refused(
    tmp_path: Path, old: str, new: str, read: Callable[[Checkpoints], object]
) -> None:
    checkpoints = Checkpoints(tmp_path)
    weights, momentum = {"w": torch.arange(4.0)}, {"w": torch.ones(4)}
    snapshot = Snapshot(6, weights, momentum, (0.5, 0.25), [{"epoch": 1}], None)
    checkpoints.write(snapshot)
    without_digest(tmp_path / STATE)
    assert checkpoints.step() == 6, "folders of earlier versions are read"
    checkpoints.write(snapshot)
    edit(tmp_path / STATE, old, new)
    with pytest.raises(InputError, match=r"checkpoint in .* damaged \(changed since it was writ"):
        read(checkpoints)


@pytest.mark.parametrize(
    ("old", "new"), [("0.25\n", "0.5\n"), ('"resize": null', '"resize": 14'), ('"cat"', '"dog"')]
)
def test_an_edited_description_of_a_network_is_refused(tmp_path: Path, old: str, new: str) -> None:
    names = ("cat", *"bcdefghij")
    net = SmallCNN(width=2)
    save_model(tmp_path, net, Preparation(channels=1), names, mean=(0.5,), std=(0.25,))
    path = tmp_path / "model.json"
    without_digest(path)
    assert load_model(tmp_path).class_names == names
    save_model(tmp_path, net, Preparation(channels=1), names, mean=(0.5,), std=(0.25,))
    edit(path, old, new)
    with pytest.raises(InputError, match=r"model\.json is damaged \(changed since it was written"):
        load_model(tmp_path)


def test_the_edited_settings_of_a_training_are_refused(tmp_path: Path, usual: Path) -> None:
    """Its noise is the default of certify; its data tell which images it has seen."""
    for name, old, new in (
        ("a", "uniform:54deg", "uniform:6deg"),
        ("b", '"pictures": 40', '"pictures": 4'),
    ):
        run = tmp_path / name
        shutil.copytree(usual, run)
        edit(run / "training.json", old, new)
        line = fails("certify", "--model", run, "--n", "40", "--device", "cpu", "--max", "1")
        assert "training.json is damaged (changed since it was written)" in line
