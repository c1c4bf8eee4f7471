"""`deformrs train --devices 2` on the CPU: the weights of one process, and resumption."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from commands import ENVIRONMENT, command, deformrs

OPTIONS = ["--data", "digits", "--model", "small_cnn:width=8", "--deformation", "rotation"]
OPTIONS += ["--noise", "uniform:54deg", "--batch-size", "200", "--learning-rate", "0.02"]
OPTIONS += ["--device", "cpu", "--no-tensorboard", "--hold-out", "0.1"]


def test_two_processes_train_to_the_weights_of_one(tmp_path: Path) -> None:
    """Within rounding: of float32 sums in another order, grown over 18 steps."""
    one: list[str | Path] = ["train", *OPTIONS, "--epochs", "1", "--out", tmp_path / "one"]
    deformrs(*one, cwd=tmp_path)
    two: list[str | Path] = ["train", *OPTIONS, "--epochs", "1", "--out", tmp_path / "two"]
    done = deformrs(*two, "--devices", "2", cwd=tmp_path)
    assert "in 2 processes" in done.stdout
    assert done.stdout.count("right under noise") == 2  # only one of them speaks
    alone, together = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        assert torch.allclose(value.double(), together[name].double(), rtol=2e-3, atol=2e-3), name
    records = [
        json.loads((tmp_path / name / "epochs.jsonl").read_text()) for name in ("one", "two")
    ]
    assert abs(records[0]["loss"] - records[1]["loss"]) < 1e-3
    assert abs(records[0]["held_out_accuracy"] - records[1]["held_out_accuracy"]) < 0.02


def test_what_two_processes_began_one_can_finish(tmp_path: Path) -> None:
    options: list[str | Path] = ["train", *OPTIONS, "--out", tmp_path / "run"]
    options += ["--epochs", "400", "--checkpoint-seconds", "0"]
    state = tmp_path / "run" / "checkpoints" / "state.json"
    with subprocess.Popen(
        command(*options, "--devices", "2"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
    ) as process:
        while not state.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    step = json.loads(state.read_text())["step"]
    assert step % 18 == 0  # whole epochs
    with subprocess.Popen(
        command(*options), cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL
    ) as process:
        # The children of the killed process end by themselves, and let go of the folder.
        while json.loads(state.read_text())["step"] <= step and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
