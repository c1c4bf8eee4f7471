"""Checkpoints: the state of a training on the disk, whole or not at all.

A checkpoint is a safetensors file with the weights and the momentum, perhaps one with the weights
of the best epoch, and state.json, which names both with their digests, holds one of itself, and is
replaced last.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from deformrs.config import Config
from deformrs.errors import InputError, damaged
from deformrs.limits import WEIGHTS_BYTES, read_file
from deformrs.models.weights import check_header, fit_state
from deformrs.runs.files import make_folder, write_atomically
from deformrs.runs.records import read_sealed, sealed

STATE = "state.json"
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Best:
    """The weights after the epoch with the highest accuracy under noise so far."""

    epoch: int
    accuracy: float
    weights: Tensors


@dataclass(frozen=True)
class Snapshot:
    """Training after `step` steps. `sums` of loss and accuracy are over the epoch so far."""

    step: int
    weights: Tensors
    momentum: Tensors
    sums: tuple[float, float]
    history: list[Config]
    best: Best | None


class Checkpoints:
    """The newest checkpoint in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stored: dict[str, Config] = {}

    def write(self, snapshot: Snapshot) -> None:
        """Replace the checkpoint.

        Guarantee: after a kill at any moment the folder holds the old one or the new one.
        """
        make_folder(self.folder)
        tensors = {f"weights.{name}": value for name, value in snapshot.weights.items()}
        tensors |= {f"momentum.{name}": value for name, value in snapshot.momentum.items()}
        state: Config = {
            "step": snapshot.step,
            "sums": list(snapshot.sums),
            "history": list(snapshot.history),
            "last": self._store(f"last-{snapshot.step}.safetensors", tensors),
            "best": None,
        }
        if snapshot.best is not None:
            best = snapshot.best
            name = f"best-{best.epoch}.safetensors"
            if name not in self._stored:  # it stays what it is until another epoch is better
                self._stored = {name: self._store(name, best.weights)}
            state["best"] = self._stored[name] | {"epoch": best.epoch, "accuracy": best.accuracy}
        write_atomically(self.folder / STATE, sealed(state))
        kept = {entry["file"] for entry in (state["last"], state["best"]) if entry}  # type: ignore[call-overload, index]
        for path in self.folder.glob("*.safetensors*"):
            if path.name not in kept:
                path.unlink()

    def read(self) -> Snapshot | None:
        """Return the checkpoint, or None if there is none."""
        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            state: Any = read_sealed(path)
            tensors = self._load(state["last"])
            entry = state["best"]
            best = entry and Best(entry["epoch"], entry["accuracy"], self._load(entry))
            loss, right = map(float, state["sums"])
            return Snapshot(
                int(state["step"]),
                _part(tensors, "weights."),
                _part(tensors, "momentum."),
                (loss, right),
                list(state["history"]),
                best,
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise self._damaged(error) from None

    def step(self) -> int:
        """Return the number of steps after which it was written; 0 if there is none."""
        path = self.folder / STATE
        try:
            state: Any = read_sealed(path)
            return int(state["step"])
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._damaged(error) from None

    def clear(self) -> None:
        """Remove the folder."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _damaged(self, error: Exception) -> InputError:
        remedy = "restore it, or remove that folder to begin again"
        return damaged(f"the checkpoint in {self.folder}", error, remedy)

    def _store(self, name: str, tensors: Tensors) -> Config:
        path = self.folder / name
        content = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
        write_atomically(path, content)
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}

    def _load(self, entry: dict[str, str]) -> Tensors:
        name = Path(entry["file"]).name
        if name == "..":
            raise ValueError(f"{name!r} is no file of this folder")
        content = read_file(self.folder / name, WEIGHTS_BYTES, links=False)
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise ValueError(f"{entry['file']} is not the file that {STATE} names")
        check_header(content[:8])
        return load(content)


def momentum_of(model: nn.Module, optimizer: torch.optim.SGD) -> Tensors:
    """Return the momentum of every parameter that has one, by the parameter's name."""
    return {
        name: optimizer.state[parameter]["momentum_buffer"]
        for name, parameter in model.named_parameters()
        if optimizer.state.get(parameter, {}).get("momentum_buffer") is not None
    }


def restore(snapshot: Snapshot, model: nn.Module, optimizer: torch.optim.SGD, place: str) -> None:
    """Load weights and momentum from a snapshot."""
    fit_state(model, snapshot.weights, place)
    for name, parameter in model.named_parameters():
        if name in snapshot.momentum:
            # In the parameter's memory format, which the fused optimizer counts on.
            buffer = torch.empty_like(parameter).copy_(snapshot.momentum[name])
            optimizer.state[parameter]["momentum_buffer"] = buffer


def copy_weights(model: nn.Module) -> Tensors:
    """Return a copy of the weights, on their device."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _part(tensors: Tensors, prefix: str) -> Tensors:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
