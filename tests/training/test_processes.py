"""Several processes learn what one learns, and none is left behind when one of them fails."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import together
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from commands import ENVIRONMENT
from deformrs.errors import InputError
from deformrs.training.distributed import Alone, Layout, check_launch, layout, open_processes

SCRIPT = Path(together.__file__)
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]


def run(*arguments: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, to its end; `path` is where it finds modules."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=ENVIRONMENT | ({"PYTHONPATH": str(path)} if path else {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def differences(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> list[str]:
    """The names of what differs by more than float32 sums in another order may."""
    assert found.keys() == wanted.keys()
    return [
        f"{name}: {(found[name] - value).abs().max():.2e}"
        for name, value in wanted.items()
        if not torch.allclose(found[name], value, rtol=2e-5, atol=2e-6)
    ]


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return together.trained(Alone(torch.device("cpu")))


def test_two_processes_train_to_the_weights_of_one(
    tmp_path: Path, alone: dict[str, Tensor]
) -> None:
    done = run(SCRIPT, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "rank 0 of 2\ndone\n", "")
    assert differences(load_file(tmp_path / "plain.safetensors"), alone) == []
    assert differences(load_file(tmp_path / "compiled.safetensors"), alone) == []
    cumulative = together.trained(Alone(torch.device("cpu")), momentum=None)
    assert differences(load_file(tmp_path / "cumulative.safetensors"), cumulative) == []
    # They learnt something, from both halves of each batch.
    assert differences(network_state(), {k: alone[k] for k in network_state()}) != []


def network_state() -> dict[str, Tensor]:
    return dict(together.network().state_dict())


def test_started_by_torchrun_they_train_to_the_same(
    tmp_path: Path, alone: dict[str, Tensor]
) -> None:
    done = run(*TORCHRUN, SCRIPT, tmp_path)
    assert (done.returncode, done.stdout) == (0, "rank 0 of 2\ndone\n"), done.stderr
    assert differences(load_file(tmp_path / "plain.safetensors"), alone) == []


@pytest.mark.skipif(
    not (torch.cuda.is_available() and importlib.util.find_spec("lightning_fabric")),
    reason="needs a GPU",
)
def test_on_a_gpu_it_compiles_to_the_same() -> None:
    """A group of one: this machine may have no second GPU, and NCCL shares none."""
    code = """
import torch, together
from deformrs.training.distributed import Layout
from deformrs.training.distributed import Alone
from deformrs.training.distributed import open_several
with open_several(torch.device("cuda"), Layout(1, 1), unused=False) as group:
    found = together.trained(group, compiled=True, backend="inductor")
wanted = together.trained(Alone(torch.device("cuda")))
close = [torch.allclose(found[k], v, rtol=1e-3, atol=1e-4) for k, v in wanted.items()]
print(len(close), all(close), torch.distributed.is_initialized())
"""
    done = run("-c", code, path=SCRIPT.parent)
    assert done.stdout.split() == ["29", "True", "False"], done.stderr


def test_an_error_of_the_first_ends_the_other(tmp_path: Path) -> None:
    done = run(SCRIPT, tmp_path, "first fails")
    said = "error: trouble is first fails; it must not happen: that is all\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "rank 0 of 2\n", said)
    assert_gone(tmp_path / "process_1")


def test_the_end_of_another_is_reported(tmp_path: Path) -> None:
    done = run(SCRIPT, tmp_path, "second is killed")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: process 1 of the training on this machine is gone (signal 9);"
    )
    assert len(done.stderr.splitlines()) == 1


def test_the_death_of_the_first_ends_the_other(tmp_path: Path) -> None:
    assert run(SCRIPT, tmp_path, "first is killed").returncode == -9
    assert_gone(tmp_path / "process_1")


def assert_gone(note: Path) -> None:
    """Within a few seconds no process of that number runs any more."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.kill(int(note.read_text()), 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("still there")


def test_one_process_needs_no_lightning() -> None:
    code = """
import sys
from deformrs.training.distributed import open_processes
with open_processes("cpu") as one:
    print(one.rank, one.count, one.device)
print(*(name for name in sys.modules if name.startswith("lightning")))
sys.modules["lightning_fabric"] = None
sys.argv[0] = __file__ = sys.executable
try:
    open_processes("cpu", devices=2)
except ValueError as error:
    print(error)
"""
    done = run("-c", code)
    assert done.stdout.splitlines() == [
        "0 1 cpu",
        "",
        "the package lightning_fabric is not installed; it is needed for several processes: "
        "pip install 'deformrs[distributed]'",
    ]


def test_alone_is_what_torch_does() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    one = Alone(torch.device("cpu"))
    call, same = one.prepare(model, optimizer)
    assert call is model
    assert same is optimizer
    one.backward(call(torch.ones(1, 2)).sum())
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.ones(1, 2))
    one.wait()


TORCHRUN_2_BY_2 = {"TORCHELASTIC_RUN_ID": "a", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
SRUN_2_BY_2 = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    ("asked", "environment", "wanted"),
    [
        ((1, 1), {}, Layout(1, 1)),
        ((2, 3), {}, Layout(2, 3)),
        ((1, 1), TORCHRUN_2_BY_2, Layout(2, 2, "torchrun")),
        ((2, 2), TORCHRUN_2_BY_2, Layout(2, 2, "torchrun")),
        ((2, 2), SRUN_2_BY_2, Layout(2, 2, "Slurm")),
        ((1, 1), SRUN_2_BY_2, Layout(2, 2, "Slurm")),
        ((2, 1), {"SLURM_NTASKS": "4"}, Layout(2, 1)),  # a job, but no srun
    ],
)
def test_who_starts_how_many(
    asked: tuple[int, int], environment: dict[str, str], wanted: Layout
) -> None:
    assert layout(*asked, environment) == wanted


@pytest.mark.parametrize(
    ("asked", "environment", "said"),
    [
        ((0, 1), {}, "devices is 0; it must be an integer of at least 1"),
        ((1, -1), {}, "nodes is -1; it must be an integer of at least 1"),
        ((4, 1), TORCHRUN_2_BY_2, "not what torchrun started; .*--devices 2 --nodes 2"),
        ((1, 1), {"SLURM_STEP_NUM_TASKS": "4"}, "say --ntasks-per-node in place of --ntasks"),
    ],
)
def test_layouts_that_cannot_be(
    asked: tuple[int, int], environment: dict[str, str], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        layout(*asked, environment)


def test_machines_that_nobody_named() -> None:
    with pytest.raises(InputError, match="nodes is 2; it needs MASTER_PORT, NODE_RANK in the env"):
        check_launch(Layout(1, 2), {"MASTER_ADDR": "a"})
    check_launch(Layout(1, 2, "Slurm"), {})


def test_what_cannot_be_opened() -> None:
    with pytest.raises(InputError, match="strategy is 'dpd'; .*did you mean 'ddp'"):
        open_processes("cpu", devices=2, strategy="dpd")
    with pytest.raises(InputError, match="device is mps; it must be cpu or cuda"):
        open_processes("mps", devices=2)
    with pytest.raises(InputError, match="device is cuda:1; it must be cpu or cuda"):
        open_processes("cuda:1", devices=2)
    with pytest.raises(InputError, match="devices is 999; it must be at most the number of GPUs"):
        open_processes("cuda", devices=999)
