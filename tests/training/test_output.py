"""The folder of a training keeps what binds, and forgets what never began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lessons import digits, small_network, small_plan

from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, save_model
from deformrs.models.saved import TRAINING
from deformrs.training.checkpoints import Checkpoints
from deformrs.training.loop import fit
from deformrs.training.output import CHECKPOINTS, TrainingFolder, is_finished


def config_of(seed: int, place: str = "here") -> Config:
    return {"command": "train", "seed": seed, "options": {"data": place}, "environment": {"n": 1}}


def test_guarantee_a_training_folder_with_other_settings_is_left_as_it_is(tmp_path: Path) -> None:
    """TrainingFolder.open refuses what would mix two trainings."""
    with TrainingFolder.open(tmp_path, config_of(0)):
        plan = small_plan(1)
        fit(small_network(), digits(0, 100), plan, checkpoints=Checkpoints(tmp_path / CHECKPOINTS))
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    with pytest.raises(InputError, match="seed: 0 there, 1 here"):
        TrainingFolder.open(tmp_path, config_of(1))
    for other in ("run", "model"):
        folder = tmp_path.parent / other
        folder.mkdir()
        if other == "run":
            (folder / "config.json").write_text("{}")
        else:
            save_model(folder, SmallCNN(width=2), Preparation(channels=1))
        names = sorted(path.name for path in folder.iterdir())
        with pytest.raises(InputError, match="holds another run or model already"):
            TrainingFolder.open(folder, config_of(0))
        assert sorted(path.name for path in folder.iterdir()) == names
    after = {path.name: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert after == before


def test_other_places_and_machines_do_not_matter(tmp_path: Path) -> None:
    with TrainingFolder.open(tmp_path, config_of(0)):
        save_model(tmp_path, SmallCNN(width=2), Preparation(channels=1))
    assert is_finished(tmp_path)
    with TrainingFolder.open(tmp_path, config_of(0, place="elsewhere")):
        pass
    assert json.loads((tmp_path / TRAINING).read_text())["options"] == {"data": "here"}


def test_what_never_began_binds_nothing(tmp_path: Path) -> None:
    with TrainingFolder.open(tmp_path, config_of(0)):
        pass
    with TrainingFolder.open(tmp_path, config_of(1)):
        pass
    assert json.loads((tmp_path / TRAINING).read_text())["seed"] == 1


@pytest.mark.parametrize("text", ["{", "[1]", "3", ""])
def test_a_damaged_configuration_is_refused(tmp_path: Path, text: str) -> None:
    with TrainingFolder.open(tmp_path, config_of(0)):
        save_model(tmp_path, SmallCNN(width=2), Preparation(channels=1))
    (tmp_path / TRAINING).write_text(text)
    with pytest.raises(InputError, match="damaged|another one"):
        TrainingFolder.open(tmp_path, config_of(0))
    assert (tmp_path / TRAINING).read_text() == text


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with TrainingFolder.open(tmp_path, config_of(0)) as folder:
        for epoch in (1, 2, 3, 2):  # the last is that of a second go, from an older checkpoint
            folder.add_epoch({"epoch": epoch})
        with pytest.raises(InputError, match="being written by another process"):
            TrainingFolder.open(tmp_path, config_of(0))
    assert (tmp_path / "epochs.jsonl").read_text() == '{"epoch": 1}\n{"epoch": 2}\n'
