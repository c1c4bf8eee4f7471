"""`deformrs train` in two processes on the CPU: interrupt, resumption, and torchrun."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from commands import ENVIRONMENT, command, deformrs

OPTIONS = ["--data", "digits", "--model", "small_cnn:width=8", "--deformation", "rotation"]
OPTIONS += ["--noise", "uniform:54deg", "--batch-size", "200", "--learning-rate", "0.02"]
OPTIONS += ["--device", "cpu", "--no-tensorboard", "--hold-out", "0.1"]


def test_an_interrupt_ends_both_processes_and_one_can_resume(tmp_path: Path) -> None:
    options: list[str | Path] = ["train", *OPTIONS, "--out", tmp_path / "run", "--epochs", "400"]
    state = tmp_path / "run" / "checkpoints" / "state.json"
    with subprocess.Popen(
        command(*options, "--devices", "2", "--checkpoint-seconds", "0"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not state.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.strip().startswith("error: interrupted; what was done is kept")
    assert len(errors.strip().splitlines()) == 1
    step = json.loads(state.read_text())["step"]
    with subprocess.Popen(
        command(*options), cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(f"resuming after {step / 18:.1f} epochs" in line for line in lines)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130


def test_torchrun_starts_the_processes(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    options = [*OPTIONS, "--epochs", "1", "--out", "run"]
    done = subprocess.run(
        [sys.executable, *torchrun, "-m", "deformrs", "train", *options],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "in 2 processes" in done.stdout
    assert done.stdout.count("best epoch") == done.stdout.count("next:") == 1  # only one speaks
    assert "trained already" in deformrs("train", *options, cwd=tmp_path).stdout
