"""Training a classifier under the noise it will be certified with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from deformrs.checks import check_seed, check_whole
from deformrs.deformations import Deformation
from deformrs.errors import InputError, ModelError
from deformrs.geometry import Padding, check_pictures, size_of, warp
from deformrs.noise import NoiseLaw


@dataclass(frozen=True)
class Step:
    """Where training stands after a batch: figures over the current epoch so far."""

    done: int
    total: int
    loss: float
    accuracy: float


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    deformation: Deformation,
    noise: NoiseLaw,
    *,
    epochs: int,
    batch_size: int = 128,
    learning_rate: float = 0.1,
    seed: int = 0,
    padding: Padding = "zeros",
    report: Callable[[Step], None] | None = None,
) -> None:
    """Fit `model` to images [n, c, h, w] in [0, 1], each deformed anew every time it is seen.

    Parameters are drawn from the very law that certifies. One-cycle SGD with Nesterov momentum.
    The model is left in evaluation mode.
    """
    check_pictures("the training images", images, rank=4)
    check_whole("epochs", epochs, least=1)
    check_whole("batch_size", batch_size, least=1)
    check_seed("seed", seed)
    if labels.shape != (len(images),) or labels.dtype != torch.int64:
        raise InputError(
            "the labels",
            f"{labels.dtype} of shape {tuple(labels.shape)}",
            f"must be whole numbers, one for each of {len(images)} images",
            "labels.long()",
        )
    size = size_of(images)
    space = deformation.space(size)
    noise.check(space)
    generator = torch.Generator(images.device).manual_seed(seed)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=learning_rate, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    steps = epochs * -(-len(images) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)

    model.train()
    done = 0
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator, device=images.device)
        seen = hits = 0
        loss_sum = 0.0
        for batch in torch.split(order, batch_size):
            params = noise.sample(len(batch), space, generator)
            deformed = warp(images[batch], deformation.field(params, size), padding)
            scores = model(deformed)
            loss = cross_entropy(scores, labels[batch])
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()

            done += 1
            seen += len(batch)
            hits += int((scores.argmax(dim=1) == labels[batch]).sum())
            loss_sum += float(loss.detach()) * len(batch)
            if loss_sum != loss_sum:
                raise ModelError(
                    "the training loss", "NaN", "must be finite", "lower the learning rate"
                )
            if report is not None:
                report(Step(done, steps, loss_sum / seen, hits / seen))
    model.eval()
