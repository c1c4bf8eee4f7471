"""Training on a GPU: batches, compilation, resumption; skipped without one."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from lessons import digits, small_network, small_plan, with_recipe
from safetensors.torch import load_file

from commands import run_inside
from deformrs.training.batches import NoisyBatches
from deformrs.training.checkpoints import Checkpoints
from deformrs.training.distributed import Processes
from deformrs.training.loop import fit
from deformrs.training.recipes import TrainingPrecision

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),  # of torch.compile, which depend on the version
]
GPU = torch.device("cuda")


def test_batches_agree_with_the_cpu_but_for_the_noise() -> None:
    here = NoisyBatches(digits(0, 128), small_plan(), Processes(torch.device("cpu")))
    there = NoisyBatches(digits(0, 128, GPU), small_plan(), Processes(GPU))
    for (_, labels), (images, same) in zip(here.epoch(0), there.epoch(0), strict=True):
        assert images.is_cuda
        assert torch.equal(labels, same.cpu())  # the order is the same on every machine


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_training_learns_and_goes_on_from_a_checkpoint(
    tmp_path: Path, precision: TrainingPrecision, compiled: bool
) -> None:
    plan = with_recipe(small_plan(6), copies=2, tilt=2.0)
    whole = small_network().to(GPU)
    trained = fit(
        whole,
        digits(0, 2000, GPU),
        plan,
        held_out=digits(2000, 2400, GPU),
        processes=Processes(GPU),
        precision=precision,
        compiled=compiled,
        checkpoints=Checkpoints(tmp_path),
        checkpoint_seconds=-1.0,
    )
    assert trained.best.accuracy > 0.6
    kept = Checkpoints(tmp_path).read()
    assert kept is not None
    for name, value in whole.state_dict().items():
        assert torch.equal(kept.weights[name], value.cpu())
    again = small_network().to(GPU)
    checkpoints = Checkpoints(tmp_path)
    fit(again, digits(0, 2000, GPU), plan, processes=Processes(GPU), checkpoints=checkpoints)
    for name, value in again.state_dict().items():
        assert torch.equal(value, whole.state_dict()[name])


def test_the_loop_does_not_wait_for_the_device_in_a_step() -> None:
    batches = NoisyBatches(digits(0, 512, GPU), small_plan(), Processes(GPU)).epoch(0)
    next(batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            next(batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_command_compiles_in_bfloat16_by_itself(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        printed = run_inside(
            *("train", "--data", "digits", "--model", "resnet18:width=8", "--epochs", "4"),
            *("--deformation", "rotation", "--noise", "uniform:54deg", "--no-tensorboard"),
            *("--out", tmp_path / "run"),
        )
        assert "bfloat16, compiled, on cuda" in printed
        run_inside("certify", "--model", tmp_path / "run", "--n", "100", "--max", "3")
    state = load_file(tmp_path / "run" / "model.safetensors")
    assert all(value.dtype in (torch.float32, torch.int64) for value in state.values())
