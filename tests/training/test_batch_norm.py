"""Batch normalisation over processes, in a group of one; test_distributed.py has one of two."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn

import torchvision_ops
from deformrs.errors import UnsupportedError
from deformrs.training.batch_norm import synchronise_batch_norm


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A group of one process, in which the sums over processes are over this one."""
    meeting = (tmp_path / "meeting").as_uri()
    distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_batch_norm_is_that_of_torch(far: float) -> None:
    plain, other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        rows = far + torch.randn(4, 3, 5, 5, generator=generator)
        slopes = torch.randn(4, 3, 5, 5, generator=generator)
        one = rows.clone().requires_grad_()
        two = rows.to(memory_format=torch.channels_last).requires_grad_()
        plain(one).backward(slopes)
        synchronise_batch_norm(other)
        out = other(two)
        out.backward(slopes)
        assert out.is_contiguous(memory_format=torch.channels_last)
        assert one.grad is not None
        assert two.grad is not None
        rounding = 3e-7 * (1 + far)
        assert torch.allclose(one.grad, two.grad, rtol=0, atol=5 * rounding)
    for (name, value), same in zip(
        plain.state_dict().items(), other.state_dict().values(), strict=True
    ):
        assert torch.allclose(value, same, rtol=1e-6, atol=rounding), name
    assert torch.equal(other.eval()(rows), nn.BatchNorm2d.forward(other, rows))


@pytest.mark.usefixtures("group")
def test_statistics_are_float32_where_the_network_is_bfloat16() -> None:
    layer = nn.BatchNorm1d(2)
    rows = torch.tensor([[300.0, 0.0], [301.0, 1.0], [302.0, 2.0]]).bfloat16()
    exact = rows.double().mean(0)  # 301 is none of bfloat16's numbers
    synchronise_batch_norm(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(rows)
    assert out.dtype == torch.bfloat16
    assert layer.running_mean is not None
    assert torch.allclose(layer.running_mean.double(), 0.1 * exact, rtol=1e-6)


@pytest.mark.usefixtures("group")
def test_a_compiled_network_stays_in_one_graph() -> None:
    layer = nn.BatchNorm1d(2)
    synchronise_batch_norm(layer)
    rows = torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(rows), layer(rows))


@pytest.mark.usefixtures("group")
def test_the_layer_of_timm_keeps_its_activation() -> None:
    torchvision_ops.declare()
    layers = importlib.import_module("timm.layers")
    plain, other = layers.BatchNormAct2d(3), layers.BatchNormAct2d(3)
    rows = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    expected = plain(rows)
    synchronise_batch_norm(other)
    assert torch.allclose(other(rows), expected, atol=1e-6)
    assert torch.equal(other.eval()(rows), plain.eval()(rows))
    assert float(expected.detach().min()) == 0.0


def test_layers_keep_their_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before, weight = model.state_dict(), model[1].weight
    for _ in range(2):  # the second time changes nothing
        synchronise_batch_norm(model)
        kind = type(model[1])
    assert kind is not nn.BatchNorm1d
    assert issubclass(kind, nn.BatchNorm1d)
    assert model[1].weight is weight
    assert model.state_dict().keys() == before.keys()


def test_layers_of_an_unknown_kind_are_refused() -> None:
    class Own(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    model = nn.Sequential(nn.BatchNorm2d(2), Own(2))
    with pytest.raises(UnsupportedError, match="Own; it must be a plain batch norm"):
        synchronise_batch_norm(model)
    assert type(model[0]) is nn.BatchNorm2d
