"""A run that is interrupted by Ctrl-C, or asked to end, keeps what is done."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from commands import ENVIRONMENT, command
from deformrs.runs import CONFIG, load_run

ARGUMENTS = [
    "certify",
    *("--model", "network", "--data", "digits", "--deformation", "rotation"),
    *("--noise", "uniform:60deg", "--n", "200", "--max", "120", "--device", "cpu", "--seed", "0"),
]


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
