"""Files of a run or a training that were edited: an error, or the same answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from commands import fails
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, load_model, save_model
from deformrs.runs.records import unsealed
from deformrs.training.checkpoints import STATE, Checkpoints, Snapshot


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, text
    path.write_text(text.replace(old, new))


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
