"""Several processes train like one, and none is left behind when one of them fails."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from lessons import digits, small_plan, with_recipe
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from deformrs.errors import InputError, ModelError
from deformrs.models import SmallCNN
from deformrs.training.distributed import (
    Processes,
    _reason,
    launch,
    open_processes,
    started_processes,
)
from deformrs.training.loop import fit

CPU = torch.device("cpu")


class Partial(nn.Module):
    """Batch normalisation by moving and cumulative averages, and weights that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.network = SmallCNN(width=4)
        self.scale = nn.BatchNorm1d(10, momentum=None)
        self.unused = nn.Linear(2, 2)
        nn.init.ones_(self.unused.weight)
        nn.init.ones_(self.unused.bias)

    def forward(self, images: Tensor) -> Tensor:
        scaled: Tensor = self.scale(self.network(images))
        return scaled


def train_in(processes: Processes) -> dict[str, Tensor]:
    model = Partial()
    plan = with_recipe(small_plan(2, learning_rate=0.02), copies=2, tilt=1.0)
    trained = fit(model, digits(0, 192), plan, held_out=digits(192, 250), processes=processes)
    loss = torch.tensor([trained.history[-1]["loss"], trained.history[-1]["held_out_accuracy"]])
    return model.state_dict() | {"loss": loss}


def train_both(folder: Path) -> None:
    with open_processes(CPU) as processes:
        assert processes.count == started_processes() == 2
        save_file(train_in(processes), folder / f"{processes.rank}.safetensors")
        if processes.rank == 1:
            raise InputError("trouble", "here", "must not be", "remove it")
        processes.wait()


def test_two_processes_train_like_one_until_one_fails(tmp_path: Path) -> None:
    """But for rounding: of float32 sums in another order, grown over twelve steps."""
    before = signal.getsignal(signal.SIGINT)
    message = r"not finished \(InputError: trouble is here; it must not be: remove it\)"
    with pytest.raises(ModelError, match=f"process 1 of the training is {message}") as caught:
        launch(2, "cpu", train_both, tmp_path)
    assert "\n" not in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is before
    alone = train_in(Processes(CPU))
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == alone.keys()
    for name, value in alone.items():
        assert torch.equal(first[name], second[name]), name
        near = torch.allclose(first[name].double(), value.double(), rtol=1e-3, atol=1e-3)
        assert near, name
    assert (first["scale.weight"] - 1).abs().max() > 0.02  # they learned


def die() -> None:
    with open_processes(CPU) as processes:
        if processes.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        processes.wait()


def test_a_killed_process_ends_the_others_and_is_named() -> None:
    message = r"process 1 of the training is not finished \(Signal 9 \(SIGKILL\)"
    with pytest.raises(ModelError, match=message) as caught:
        launch(2, "cpu", die)
    assert "\n" not in str(caught.value)


def test_devices_that_are_not_there() -> None:
    with pytest.raises(InputError, match="device is mps; it must be auto, cpu or cuda"):
        launch(2, "mps", die)
    with pytest.raises(InputError, match="devices is 999; .* visible GPUs"):
        launch(999, "cuda", die)


def test_one_process_needs_no_group() -> None:
    with open_processes(CPU) as processes:
        assert (processes.rank, processes.count, processes.device) == (0, 1, CPU)
        assert processes.any(True, False) == [True, False]
        model = nn.Linear(2, 1)
        assert processes.wrap(model, model) is model
        assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(("code", "reason"), [(7, "exit code 7"), (-9, "SIGKILL")])
def test_a_process_that_ends_without_an_error_is_explained(code: int, reason: str) -> None:
    assert reason in _reason(ProcessFailure(1, pid=5, exitcode=code, error_file="<N/A>"))
