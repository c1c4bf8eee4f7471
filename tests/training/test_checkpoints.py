"""Checkpoints: whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from deformrs.errors import InputError
from deformrs.runs import write_atomically
from deformrs.training.checkpoints import STATE, Best, Checkpoints, Snapshot


class StoppedError(Exception):
    """Stands for a kill."""


def snapshot(epoch: int) -> Snapshot:
    weights = {"w": torch.arange(4.0) + epoch, "n": torch.tensor(epoch)}
    best = Best(epoch, 0.25 * epoch, weights)
    return Snapshot(6 * epoch, weights, {"w": torch.ones(4)}, (0.5, 0.25), [{"epoch": 1}], best)


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new")
    assert checkpoints.read() is None
    assert checkpoints.step() == 0
    stored = snapshot(2)
    checkpoints.write(stored)
    again = checkpoints.read()
    assert again is not None
    assert checkpoints.step() == again.step == 12
    assert (again.sums, again.history) == (stored.sums, stored.history)
    assert again.best is not None
    assert (again.best.epoch, again.best.accuracy) == (2, 0.5)
    for read, written in (
        (again.weights, stored.weights),
        (again.momentum, stored.momentum),
        (again.best.weights, stored.weights),
    ):
        assert read.keys() == written.keys()
        for name, value in written.items():
            assert torch.equal(read[name], value)
            assert read[name].dtype == value.dtype
    checkpoints.clear()
    assert checkpoints.read() is None


@pytest.mark.parametrize("damage", ["cut", "other", "gone", "state", "step"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(snapshot(1))
    state = json.loads((tmp_path / STATE).read_text())
    file = tmp_path / state["last"]["file"]
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "other":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    elif damage == "gone":
        file.unlink()
    elif damage == "state":
        (tmp_path / STATE).write_text("{")
    else:
        (tmp_path / STATE).write_text(json.dumps(state | {"step": "x"}))
    with pytest.raises(InputError, match="damaged .* remove that folder to begin again"):
        checkpoints.read()


def test_guarantee_write_leaves_the_old_checkpoint_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints.write is stopped at every file operation in turn."""
    module = "deformrs.training.checkpoints.write_atomically"
    for stop in range(4):
        place = Checkpoints(tmp_path / f"at{stop}")
        place.write(snapshot(1))
        calls = 0

        def stopping(path: Path, content: str | bytes, stop: int = stop) -> None:
            nonlocal calls
            if calls == stop:
                raise StoppedError
            calls += 1
            write_atomically(path, content)

        monkeypatch.setattr(module, stopping)
        try:
            Checkpoints(place.folder).write(snapshot(2))
            stopped = False
        except StoppedError:
            stopped = True
        monkeypatch.setattr(module, write_atomically)
        kept = place.read()
        assert kept is not None
        assert kept.step == (6 if stopped else 12)
        assert stopped == (stop < 3)  # weights, best, state
    assert len(list(place.folder.iterdir())) == 3  # nothing old is left behind
