"""Trainings that were interrupted resume, in one process or several."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import save_file

from commands import ENVIRONMENT, QUICK, command, deformrs, run_inside
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models import SmallCNN
from deformrs.training.output import TrainingFolder


def test_a_finished_training_is_left_as_it_is(data: Path, usual: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in usual.rglob("*.*")}
    assert "trained already" in run_inside("train", "--data", data, *QUICK, "--out", usual)
    with pytest.raises(InputError, match=r"seed: 0 there, 1 here.*choose another folder"):
        run_inside("train", "--data", data, *QUICK, "--seed", "1", "--out", usual)
    assert {path: path.stat().st_mtime_ns for path in usual.rglob("*.*")} == before


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


def test_an_interrupt_ends_both_processes_and_one_can_resume(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["train", "--data", str(data), *QUICK, "--hold-out", "0.25", "--epochs", "100000"]
    options += ["--checkpoint-seconds", "0", "--out", str(tmp_path / "run")]
    state = tmp_path / "run" / "checkpoints" / "state.json"
    with subprocess.Popen(
        command(*options, "--devices", "2"),
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

    add_epoch = TrainingFolder.add_epoch

    def interrupt(folder: TrainingFolder, record: Config) -> None:
        add_epoch(folder, record)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingFolder, "add_epoch", interrupt)
    resumed = deformrs(*options, code=130)
    assert f"resuming after {step / 3:.1f} epochs" in resumed.stdout
    assert "what was done is kept" in resumed.stderr
    assert json.loads(state.read_text())["step"] > step


def test_torchrun_starts_the_processes(data: Path, tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    options = ["train", "--data", str(data), *QUICK, "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, *torchrun, "-m", "deformrs", *options],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "in 2 processes" in done.stdout
    assert done.stdout.count("best epoch") == done.stdout.count("next:") == 1  # only one speaks
    assert "trained already" in deformrs(*options).stdout
