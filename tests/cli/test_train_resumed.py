"""Trainings that were stopped go on, and only with what they were begun with."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from safetensors.torch import save_file

from commands import ENVIRONMENT, command, deformrs, fails
from deformrs.errors import InputError
from deformrs.models import SmallCNN, load_model
from inside import run_inside
from training_options import QUICK, SMOOTHING


def test_a_finished_training_is_left_as_it_is(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_inside("train", "--data", data, *QUICK, "--out", out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    assert "trained already" in run_inside("train", "--data", data, *QUICK, "--out", out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.*")} == before
    with pytest.raises(InputError, match=r"seed: 0 there, 1 here.*choose another folder"):
        run_inside("train", "--data", data, *QUICK, "--seed", "1", "--out", out)
    with pytest.raises(InputError, match="another one"):
        run_inside("train", "--data", data, *QUICK, "--noise", "uniform:50deg", "--out", out)


def test_resume_after_sigkill_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """Killed with SIGKILL right after a checkpoint that was written within an epoch."""
    options = ["--data", "digits", "--model", "small_cnn:width=16", *SMOOTHING, "--device", "cpu"]
    options += ["--epochs", "2", "--batch-size", "40", "--checkpoint-seconds", "0"]
    options += ["--no-tensorboard", "--hold-out", "0.05"]
    deformrs("train", *options, "--out", tmp_path / "whole", cwd=tmp_path)
    out = tmp_path / "killed"
    state = out / "checkpoints" / "state.json"
    for kill in range(2):
        process = subprocess.Popen(
            command("train", *options, "--out", out),
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
        )
        with process:
            while process.poll() is None:
                step = json.loads(state.read_text())["step"] if state.exists() else 0
                if step % 95 and step > 95 * kill:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.005)
        assert process.returncode == -signal.SIGKILL
        assert not (out / "model.json").exists()
        assert json.loads(state.read_text())["step"] % 95
    refused = fails("certify", "--model", out, cwd=tmp_path)
    assert "not finished" in refused
    deformrs("train", *options, "--out", out, cwd=tmp_path)
    for name in ("model.safetensors", "model.json", "best/model.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (out / "checkpoints").exists()


def test_other_normalisation_is_another_training(data: Path, tmp_path: Path) -> None:
    options = [*QUICK, "--model", "resnet18:width=2"]
    given = [*options, "--mean", "0.13066047", "--std", "0.5"]
    run_inside("train", "--data", data, *given, "--out", tmp_path / "run")
    assert load_model(str(tmp_path / "run")).about["mean"] == [0.13066047]
    given = [*options, "--mean", "0.1", "--std", "0.5"]
    with pytest.raises(InputError, match="mean"):
        run_inside("train", "--data", data, *given, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--hold-out", "0.25"], "hold_out"),
        (["--precision", "bfloat16"], "precision"),
        (["--padding", "border"], "padding"),
        (["--augment", "flip"], "augmentation"),
        (["--tilt", "0.5"], "tilt"),
        (["--resize", "20"], "resize"),
        (["--weights", "other"], "model"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_changes_the_weights_binds(
    data: Path, tmp_path: Path, options: list[str], named: str
) -> None:
    run_inside("train", "--data", data, *QUICK, "--out", tmp_path / "run")
    if options[1] == "other":
        save_file(SmallCNN(num_classes=2, width=4, seed=3).state_dict(), tmp_path / "w.safetensors")
        options = ["--weights", str(tmp_path / "w.safetensors")]
    with pytest.raises(InputError, match=f"another one .*{named}"):
        run_inside("train", "--data", data, *QUICK, *options, "--out", tmp_path / "run")


def test_a_family_of_ones_own_binds_by_its_content(data: Path, tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("docs/adding_a_deformation.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "glass.py").write_text(code.replace("Lens", "Glass").replace('"lens"', '"glass"'))
    own = [*QUICK, "--deformation", f"{tmp_path / 'glass.py'}:Glass", "--noise", "gaussian:0.1"]
    run_inside("train", "--data", data, *own, "--out", tmp_path / "run")
    with (tmp_path / "glass.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(InputError, match=r"plugins"):
        run_inside("train", "--data", data, *own, "--out", tmp_path / "run")


def test_an_interrupted_training_keeps_what_it_did(tmp_path: Path) -> None:
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
