"""A run that is killed at any moment resumes to the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import ENVIRONMENT, command, deformrs
from deformrs.runs import CERTIFICATES, CONFIG, load_run

ARGUMENTS = [
    "certify",
    *("--model", "network", "--data", "digits", "--deformation", "rotation"),
    *("--noise", "uniform:60deg", "--n", "200", "--max", "120", "--device", "cpu", "--seed", "0"),
]

# Importing torch takes longer than the run, so one process imports it and forks the ones that are
# killed: each is a process of its own from there on. A moment is random within the first half
# second, or a random while after a random number of new results.
FORKS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from deformrs.cli import commands
import deformrs.cli.certify, deformrs.cli.jobs, deformrs.report.export
results, arguments = Path(sys.argv[1]), sys.argv[2:]
moments = random.Random(7)

def lines():
    return results.read_bytes().count(b"\\n") if results.exists() else 0

for kill in range(12):
    target = lines() + moments.randint(1, 6) if kill % 4 else 0
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        commands(arguments, standalone_mode=False)
        os._exit(0)
    while lines() < target and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.001)
    time.sleep(moments.uniform(0, 0.03 if target else 0.5))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    print("killed" if os.WIFSIGNALED(status) else "ended", lines())
"""


def test_twelve_kills_leave_no_trace(network: Path) -> None:
    folder, whole = network.parent / "killed", network.parent / "whole"
    deformrs(*ARGUMENTS, "--out", "whole", cwd=network.parent)
    kills = subprocess.run(
        [sys.executable, "-c", FORKS, str(folder / CERTIFICATES), *ARGUMENTS, "--out", "killed"],
        cwd=network.parent,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert kills.stdout.split().count("killed") == 12
    assert 9 <= len(load_run(folder)) < 120
    deformrs(*ARGUMENTS, "--out", "killed", cwd=network.parent)
    for name in (CONFIG, CERTIFICATES):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_one_line_and_keeps_what_is_done(
    network: Path, signal_sent: signal.Signals
) -> None:
    out = network.parent / signal_sent.name
    arguments = [*ARGUMENTS, "--n", "20000", "--out", out.name]
    process = subprocess.Popen(
        command(*arguments), cwd=network.parent, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not ((out / CONFIG).exists() and load_run(out)):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal_sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in errors
    if signal_sent == signal.SIGINT:
        assert (
            errors.strip().splitlines()[-1].startswith("error: interrupted; what was done is kept")
        )
    assert load_run(out)
