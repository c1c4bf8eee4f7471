"""`deformrs sweep` where something goes wrong: said in a line, and nothing else is lost."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from few_digits import EXPLODES, FILE, NARROW, OPTIONS, few_digits, sweep_file

from commands import ENVIRONMENT, command
from deformrs.runs import load_run
from inside import inside


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few_digits()


def test_a_run_that_fails_does_not_stop_the_others() -> None:
    sweep_file(FILE + EXPLODES + NARROW)
    said, errors = inside("sweep", "some.toml", code=1)
    (line,) = errors.splitlines()
    assert re.match("error: explodes: the .* must be a finite number", line)
    assert "next: deformrs report runs/wide runs/narrow" in said
    assert len(load_run("runs/wide")) == len(load_run("runs/narrow")) == 6
    listed, _ = inside("sweep", "some.toml", "--list")
    assert re.search(r"explodes +training, 0 epochs done", listed)
    again, _ = inside("sweep", "some.toml", code=1)
    assert again.count("done already") == 2


def test_damage_is_named() -> None:
    sweep_file(FILE + NARROW)
    inside("sweep", "some.toml")
    Path("runs/wide/sweep.json").unlink()
    Path("runs/wide/config.json").write_text("{")
    assert "config.json is damaged" in inside("sweep", "some.toml", "--list")[0]
    said, errors = inside("sweep", "some.toml", code=1)
    assert "error: wide: runs/wide/config.json is damaged" in errors
    assert "narrow: done already" in said


def test_what_cannot_be_had_is_said_before_anything_is_trained() -> None:
    for old, new, message in (
        ('"few.npz"', '"flat.npz"', "flat.npz, without a test split"),
        ('"few.npz"', '"fewer.npz"', "fewer.npz"),
        ('"small_cnn"', '"smal_cnn"', "smal_cnn"),
        ("epochs = 1", 'weights = "nowhere.pth"', "nowhere.pth"),
        ("n0 = 20", 'data = "nowhere.npz"', "nowhere.npz"),
    ):
        sweep_file(FILE.replace(old, new) + NARROW)
        assert message in inside("sweep", "some.toml", code=1)[1]
        assert not Path("runs").exists()
    sweep_file(FILE.replace('"few.npz"', '"flat.npz"').replace("n0 = 20", 'data = "unseen.npz"'))
    inside("sweep", "some.toml")
    assert len(load_run("runs/wide")) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--data is missing"),
        (("--data", "few.npz"), "--model is missing"),
        (OPTIONS, "--deformation is missing"),
        ((*OPTIONS, "--deformation", "rotation"), "--noise is missing"),
        (("some.toml", "--epochs", "3"), "--epochs is given beside some.toml"),
        (("some.toml", "--noise", "uniform:3deg"), "--noise is given beside some.toml"),
        (("some.toml", "--n", "3"), "--n is given beside some.toml"),
        (("some.toml", "--region", "rotation<=3deg"), "--region is given beside some.toml"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], message: str) -> None:
    sweep_file(FILE)
    assert message in inside("sweep", *arguments, code=2)[1]


def test_out_that_is_a_file() -> None:
    sweep_file(FILE)
    Path("runs").write_text("")
    assert "must not be a file" in inside("sweep", "some.toml", code=1)[1]


def test_an_interrupt_stops_at_once(tmp_path: Path) -> None:
    sweep_file(FILE.replace("epochs = 1", "epochs = 100000") + NARROW)
    process = subprocess.Popen(
        command("sweep", "some.toml"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    began = time.monotonic()
    while not Path("runs/wide/training.json").exists() and time.monotonic() - began < 60:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("error: interrupted; what was done is kept")
    assert not Path("runs/narrow").exists()
    assert "training, " in inside("sweep", "some.toml", "--list")[0]
