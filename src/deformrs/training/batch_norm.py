"""Batch normalisation over the rows of all processes, on CPUs as on GPUs.

What is learnt must not depend on how many processes share a batch. torch.nn.SyncBatchNorm does
this on GPUs alone, and what is compiled falls apart at each of its layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deformrs.errors import UnsupportedError


@torch.library.custom_op(
    "deformrs::sum_over_processes", mutates_args=(), schema="(Tensor values) -> Tensor"
)
def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of what all processes hold, in each of them. Gradients flow through it.

    An operator of its own, because a compiled network keeps it whole.
    """
    summed = values.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(summed)
    return summed


@sum_over_processes.register_fake
def _like(values: Tensor) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _gradient(_: object, above: Tensor) -> Tensor:
    # Each process's values count in the sums of all, so their gradient is the sum of all.
    summed: Tensor = sum_over_processes(above)
    return summed


sum_over_processes.register_autograd(_gradient)


def moments(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number, mean [c] and biased variance [c] of each channel of rows [b, c, ...] everywhere."""
    dims = [0, *range(2, rows.ndim)]
    variance, mean = torch.var_mean(rows, dims, correction=0)
    count = rows.numel() // rows.shape[1]
    # In one message. Squares of means nearly cancel below; in float64 that costs nothing.
    mean, variance = mean.double(), variance.double()
    parts = torch.stack((torch.ones_like(mean), mean, variance, mean * mean))
    summed = sum_over_processes(count * parts)
    mean, within, square = (summed[1:] / summed[0]).unbind()
    between = (square - mean * mean).clamp(min=0.0)
    return summed[0], mean.to(rows.dtype), (within + between).to(rows.dtype)


class _Synchronised(_BatchNorm):
    """In training, normalises by the rows of all processes; else it is what it was."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        # Statistics need float32 also where a network computes in less.
        rows = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        count, mean, variance = moments(rows)
        if self.track_running_stats:
            self._remember(mean.detach(), variance.detach() * (count / (count - 1)))
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        column = (1, -1) + (1,) * (rows.ndim - 2)
        scaled = torch.addcmul(shift.view(column), rows, scale.view(column)).to(input.dtype)
        for part in self.children():  # of a layer of timm: dropout and activation
            scaled = part(scaled)
        return scaled

    @torch.no_grad()
    def _remember(self, mean: Tensor, unbiased: Tensor) -> None:
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked += 1
        new: float | Tensor = (
            1 / self.num_batches_tracked if self.momentum is None else self.momentum
        )
        for kept, value in ((self.running_mean, mean), (self.running_var, unbiased)):
            kept.copy_((1 - new) * kept + new * value)


@contextmanager
def synchronised(model: nn.Module) -> Iterator[None]:
    """For as long as it is open, the model's batch normalisation is over all processes.

    Layers change their class, nothing else: parameters, buffers and their names stay.
    """
    layers = [(layer, type(layer)) for layer in model.modules() if isinstance(layer, _BatchNorm)]
    twins = [_twin(kind) for _, kind in layers]  # type: ignore[arg-type]
    for (layer, _), twin in zip(layers, twins, strict=True):
        layer.__class__ = twin
    try:
        yield
    finally:
        for layer, kind in layers:
            layer.__class__ = kind


@cache
def _twin(kind: type[_BatchNorm]) -> type[_BatchNorm]:
    """The class that does over all processes what `kind` does in one."""
    # timm's layer is a plain one followed by its parts.
    followed = (kind.__module__.split(".")[0], kind.__name__) == ("timm", "BatchNormAct2d")
    if kind.forward is not _BatchNorm.forward and not followed:
        raise UnsupportedError(
            "a layer of the network",
            f"a {kind.__module__}.{kind.__qualname__}",
            "must be a plain batch normalisation where several processes train",
            "train in one process, with --devices 1",
        )
    return type(f"Synchronised{kind.__name__}", (_Synchronised, kind), {})
