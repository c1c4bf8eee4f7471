"""Batch normalisation over the rows of all processes, on CPUs as on GPUs.

torch.nn.SyncBatchNorm runs on GPUs only, and a compiled network breaks at each of its layers.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deformrs.errors import UnsupportedError


@torch.library.custom_op(
    "deformrs::sum_over_processes", mutates_args=(), schema="(Tensor values) -> Tensor"
)
def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of `values` over all processes, with gradients.

    It is an operator of its own so that a compiled network stays in one graph.
    """
    summed = values.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(summed)
    return summed


@sum_over_processes.register_fake
def _like(values: Tensor) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _gradient(_: object, above: Tensor) -> Tensor:
    # The values of each process count in the sums of all, so their gradient is the sum of all.
    summed: Tensor = sum_over_processes(above)
    return summed


sum_over_processes.register_autograd(_gradient)


def moments(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return number, mean [c] and biased variance [c] of rows [b, c, ...] over all processes."""
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
    """In training, normalises by the statistics of all processes; in evaluation as before."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        # Statistics need float32 also where a network computes in less.
        rows = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        count, mean, variance = moments(rows)
        if self.track_running_stats:
            self._update(mean.detach(), variance.detach() * (count / (count - 1)))
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        column = (1, -1) + (1,) * (rows.ndim - 2)
        scaled = torch.addcmul(shift.view(column), rows, scale.view(column)).to(input.dtype)
        for part in self.children():  # of a timm layer: dropout and activation
            scaled = part(scaled)
        return scaled

    @torch.no_grad()
    def _update(self, mean: Tensor, unbiased: Tensor) -> None:
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked += 1
        new: float | Tensor = (
            1 / self.num_batches_tracked if self.momentum is None else self.momentum
        )
        for average, value in ((self.running_mean, mean), (self.running_var, unbiased)):
            average.copy_((1 - new) * average + new * value)


def synchronise_batch_norm(model: nn.Module) -> None:
    """Let all batch normalisation of `model` use the statistics of all processes, in place.

    Layers change their class and nothing else: parameters, buffers and their names stay.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    kinds = {kind: _synchronised(kind) for kind in {type(layer) for layer in layers}}
    for layer in layers:
        layer.__class__ = kinds[type(layer)]


def _synchronised(kind: type[_BatchNorm]) -> type[_BatchNorm]:
    if issubclass(kind, _Synchronised):
        return kind
    # timm's layer is a plain one followed by its parts.
    followed = (kind.__module__.split(".")[0], kind.__name__) == ("timm", "BatchNormAct2d")
    if kind.forward is not _BatchNorm.forward and not followed:
        raise UnsupportedError(
            "a layer of the network",
            f"a {kind.__module__}.{kind.__qualname__}",
            "must be a plain batch normalisation for training in several processes",
            "train in one process, with --devices 1",
        )
    return type(f"Synchronised{kind.__name__}", (_Synchronised, kind), {})
