"""Trainings that were interrupted or killed resume, and only with the settings they began with."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from safetensors.torch import save_file

from commands import ENVIRONMENT, QUICK, SMOOTHING, command, run_inside
from deformrs.errors import InputError
from deformrs.models import SmallCNN


def test_a_finished_training_is_left_as_it_is(data: Path, usual: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in usual.rglob("*.*")}
    assert "trained already" in run_inside("train", "--data", data, *QUICK, "--out", usual)
    with pytest.raises(InputError, match=r"seed: 0 there, 1 here.*choose another folder"):
        run_inside("train", "--data", data, *QUICK, "--seed", "1", "--out", usual)
    assert {path: path.stat().st_mtime_ns for path in usual.rglob("*.*")} == before


def test_resume_after_sigkill_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """A process is killed within an epoch; another one goes on to the very same weights."""
    options = ["--data", "digits", "--model", "small_cnn:width=8", *SMOOTHING, "--device", "cpu"]
    options += ["--epochs", "1", "--batch-size", "40", "--no-tensorboard", "--hold-out", "0.05"]
    run_inside("train", *options, "--out", tmp_path / "whole")
    out = tmp_path / "killed"
    state = out / "checkpoints" / "state.json"
    with subprocess.Popen(
        command("train", *options, "--checkpoint-seconds", "0", "--out", out),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
    ) as process:
        while not state.exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert 0 < json.loads(state.read_text())["step"] < 95
    with pytest.raises(InputError, match="not finished"):
        run_inside("certify", "--model", out)
    assert "resuming after 0." in run_inside("train", *options, "--out", out)
    for name in ("model.safetensors", "model.json", "best/model.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (out / "checkpoints").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--hold-out", "0.25"], "hold_out"),
        (["--noise", "uniform:50deg"], "noise"),
        (["--precision", "bfloat16"], "precision"),
        (["--padding", "border"], "padding"),
        (["--augment", "flip"], "augmentation"),
        (["--tilt", "0.5"], "tilt"),
        (["--resize", "20"], "resize"),
        (["--mean", "0.1", "--std", "0.5"], "mean"),
        (["--weights", "other"], "model"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_options_that_change_the_weights_bind(
    data: Path, usual: Path, tmp_path: Path, options: list[str], named: str
) -> None:
    if options[1] == "other":
        save_file(SmallCNN(num_classes=2, width=4, seed=3).state_dict(), tmp_path / "w.safetensors")
        options = ["--weights", str(tmp_path / "w.safetensors")]
    with pytest.raises(InputError, match=f"another one .*{named}"):
        run_inside("train", "--data", data, *QUICK, *options, "--out", usual)


def test_a_custom_family_binds_by_its_content(data: Path, tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("docs/adding_a_deformation.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "glass.py").write_text(code.replace("Lens", "Glass").replace('"lens"', '"glass"'))
    own = [*QUICK, "--deformation", f"{tmp_path / 'glass.py'}:Glass", "--noise", "gaussian:0.1"]
    run_inside("train", "--data", data, *own, "--out", tmp_path / "run")
    with (tmp_path / "glass.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(InputError, match=r"plugins"):
        run_inside("train", "--data", data, *own, "--out", tmp_path / "run")


def test_an_interrupted_training_keeps_its_checkpoint(tmp_path: Path) -> None:
    options: list[str | Path] = ["--data", "digits", "--model", "small_cnn:width=8", *SMOOTHING]
    options += ["--device", "cpu", "--epochs", "500", "--out", tmp_path / "run"]
    with subprocess.Popen(
        command("train", *options),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        epochs = tmp_path / "run" / "epochs.jsonl"
        while not epochs.exists() or not epochs.read_text():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert "what was done is kept" in said
    assert json.loads((tmp_path / "run/checkpoints/state.json").read_text())["step"] > 31
