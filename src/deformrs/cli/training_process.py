"""A training by a command of its own: several processes can only train what they all begin with."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

from deformrs.cli.arguments import DataOptions, SmoothingOptions, StartOptions, TrainingOptions
from deformrs.errors import InputError, ModelError
from deformrs.training.distributed import layout


def check_one_machine(training: TrainingOptions) -> None:
    """Raise unless this process is the only one, and may start all others itself."""
    there = layout(1, 1)
    if there.count > 1:
        raise InputError(
            "this command",
            f"started {there.count} times by {there.starter}",
            "must be started once: it starts the processes of each training itself",
            "say devices among the options of training",
        )
    if training.nodes > 1:
        raise InputError(
            "nodes",
            training.nodes,
            "must be 1 in a sweep, which runs on one machine",
            "train on several by deformrs train",
        )


def train_apart(
    start: StartOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
) -> None:
    """Run `deformrs train` with these options; what it prints is seen, why it fails is raised."""
    command = [sys.executable, "-m", "deformrs", "train"]
    command += train_arguments(start, data, smoothing, training, out)
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode in (128 + signal.SIGINT, -signal.SIGINT):
        raise KeyboardInterrupt
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ModelError(
            f"the training in {out}",
            f"not finished ({last[0].removeprefix('error: ')})",
            "must be, to be certified",
            "mend that; the same command goes on",
        )


def train_arguments(
    start: StartOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
) -> list[str]:
    """The options of `deformrs train` that say the same, defaults left out."""
    arguments: list[str] = []
    for options in (start, data, smoothing, training):
        for field in dataclasses.fields(options):
            value = getattr(options, field.name)
            # Training always takes the training split.
            if value == field.default or value is None or field.name == "split":
                continue
            name = "--" + field.name.replace("_", "-")
            if isinstance(value, bool):
                arguments.append(name if value else f"--no-{name.removeprefix('--')}")
                continue
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            arguments.append(f"{name}={text}")
    return [*arguments, f"--out={out}"]
