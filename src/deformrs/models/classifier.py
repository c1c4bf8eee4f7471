"""The one module that runs: normalise, cast, call the network, read its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from deformrs.errors import ModelError
from deformrs.models.parts import BuiltModel


class Classifier(nn.Module):
    """N x C x H x W in [0, 1], float32 -> N x K scores, float32. Leaves its input as it is.

    Pictures are normalised in float32 and then cast to the precision of the network.
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(self, built: BuiltModel, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = built.module
        self.dtype = dtype
        self.channels_last = built.channels_last
        for name, values in (("mean", built.mean), ("std", built.std)):
            column = None if values is None else torch.tensor(values).view(1, -1, 1, 1)
            self.register_buffer(name, column, persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        if self.mean is None or self.std is None:
            inputs = pictures
        elif self.mean.shape[1] in (1, pictures.shape[1]):
            inputs = (pictures - self.mean).div_(self.std)
        else:
            raise ModelError(
                "the picture",
                f"of {pictures.shape[1]} channels",
                f"must have the {self.mean.shape[1]} that the mean and std are for",
                "prepare it with channels=3 for colour or 1 for grey",
            )
        # One after the other: on a CPU, a cast that also changes the layout takes twice as long.
        inputs = inputs.to(self.dtype)
        if self.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self.mean is None and self._passes(pictures):
            inputs = inputs.clone()  # the network may work in place
        return read_scores(self.network(inputs)).float()

    def _passes(self, pictures: Tensor) -> bool:
        """Are these in the precision and layout that the network takes, so that none is copied?"""
        layout = torch.channels_last
        fits = not self.channels_last or pictures.is_contiguous(memory_format=layout)
        return pictures.dtype == self.dtype and fits


def read_scores(output: object) -> Tensor:
    """The scores in what a network returned, where there is no doubt which they are."""
    found = output
    if isinstance(output, Mapping) and "logits" in output:
        found = output["logits"]
    elif isinstance(getattr(output, "logits", None), Tensor):
        found = output.logits  # type: ignore[attr-defined]
    elif isinstance(output, Mapping) and len(output) == 1:
        found = next(iter(output.values()))
    elif isinstance(output, Sequence) and len(output) == 1:
        found = output[0]
    if not isinstance(found, Tensor):
        held = f" of {len(output)}" if isinstance(output, Mapping | Sequence) else ""
        raise ModelError(
            "the network's output",
            f"a {type(output).__name__}{held}",
            "must be scores, or hold them as its only entry or as logits",
            "return the scores alone",
        )
    # Fully convolutional networks answer with N x K x 1 x 1.
    scores = found.flatten(1) if found.dim() > 2 and set(found.shape[2:]) == {1} else found
    if scores.dim() != 2 or not scores.is_floating_point():
        raise ModelError(
            "the network's output",
            f"{found.dtype} of shape {tuple(found.shape)}",
            "must be N x K floating-point scores",
            "give a classifier of whole pictures",
        )
    return scores


def in_batches(run: Callable[[Tensor], Tensor], pictures: Tensor, size: int | None) -> Tensor:
    """`run` over batches of exactly that size, the last one filled up; None takes any size."""
    if size is None:
        return run(pictures)
    answers = []
    for start in range(0, len(pictures), size):
        part = pictures[start : start + size]
        filler = part[-1:].expand(size - len(part), *part.shape[1:])
        answers.append(run(torch.cat([part, filler]))[: len(part)])
    return torch.cat(answers)
