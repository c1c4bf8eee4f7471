"""The one module that runs: normalise, cast, call the network, read its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from deformrs.checks import is_real
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, ModelError


@dataclass(frozen=True)
class NetworkSpec:
    """A network and what it wants before it. A factory may return one in place of a bare network.

    `mean` and `std` (one number, or one a channel) normalise images in [0, 1] before the
    network; None where it needs none or does so itself. `channels_last` says that the network
    takes that memory format, which is faster; one that calls `view` on its features may not.
    """

    module: nn.Module
    preparation: Preparation = field(default_factory=Preparation)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    class_names: tuple[str, ...] | None = None
    channels_last: bool = False

    def __post_init__(self) -> None:
        check_normalisation(self.mean, self.std)


@dataclass(frozen=True)
class ResolvedSource:
    """What a source gives. `about` says which files, by their digests, and which libraries.

    `frozen_graph`: the computation was fixed when the file was written, precision included.
    """

    spec: NetworkSpec
    about: Config
    frozen_graph: bool = False


@dataclass(frozen=True)
class LoadedModel:
    """A classifier that is ready to be certified.

    `module` maps N x C x H x W images in [0, 1] (float32) to N x K scores (float32). It is in
    evaluation mode, on its device, and its weights take no gradients. `preparation` is what is
    done to a stored image before. `about` holds the plain values that reproduce the model.
    """

    module: nn.Module
    preparation: Preparation
    class_names: tuple[str, ...] | None
    about: Config


def check_normalisation(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    """Both or neither, equally many finite numbers, no deviation of 0 or less."""
    if mean is None and std is None:
        return
    if mean is None or std is None or len(mean) != len(std) or not mean:
        raise InputError(
            "the normalisation",
            f"mean {mean}, std {std}",
            "needs both, with as many numbers each",
            "e.g. mean (0.5, 0.5, 0.5) and std (0.25, 0.25, 0.25)",
        )
    if not all(is_real(value) for value in (*mean, *std)) or min(std) <= 0:
        raise InputError(
            "the normalisation",
            f"mean {mean}, std {std}",
            "must be finite numbers, with std above 0",
            "e.g. mean (0.5,) and std (0.25,)",
        )


def require_trust(trust_code: bool, name: str, value: str, alternative: str) -> None:
    """Raise unless the user said that this source of code is to be trusted."""
    if not trust_code:
        raise InputError(
            name,
            value,
            "must come from someone you trust",
            f"pass --trust-code (in Python trust_code=True) if it does, {alternative}",
        )


class Classifier(nn.Module):
    """N x C x H x W in [0, 1], float32 -> N x K scores, float32. Leaves its input as it is.

    Images are normalised in float32 and then cast to the precision of the network.
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(self, spec: NetworkSpec, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = spec.module
        self.dtype = dtype
        self.channels_last = spec.channels_last
        for name, values in (("mean", spec.mean), ("std", spec.std)):
            column = None if values is None else torch.tensor(values).view(1, -1, 1, 1)
            self.register_buffer(name, column, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if self.mean is None or self.std is None:
            inputs = images
        elif self.mean.shape[1] in (1, images.shape[1]):
            inputs = (images - self.mean).div_(self.std)
        else:
            raise ModelError(
                "the image",
                f"of {images.shape[1]} channels",
                f"must have the {self.mean.shape[1]} that the mean and std are for",
                "prepare it with channels=3 for colour or 1 for grey",
            )
        # One after the other: on a CPU, a cast that also changes the layout takes twice as long.
        inputs = inputs.to(self.dtype)
        if self.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self.mean is None and self._passes(images):
            inputs = inputs.clone()  # the network may work in place
        return read_scores(self.network(inputs)).float()

    def _passes(self, images: Tensor) -> bool:
        """Are these in the precision and layout that the network takes, so that none is copied?"""
        layout = torch.channels_last
        fits = not self.channels_last or images.is_contiguous(memory_format=layout)
        return images.dtype == self.dtype and fits


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
            "give a classifier of whole images",
        )
    return scores


def in_batches(run: Callable[[Tensor], Tensor], images: Tensor, size: int | None) -> Tensor:
    """`run` over batches of exactly that size, the last one filled up; None takes any size."""
    if size is None:
        return run(images)
    answers = []
    for start in range(0, len(images), size):
        part = images[start : start + size]
        filler = part[-1:].expand(size - len(part), *part.shape[1:])
        answers.append(run(torch.cat([part, filler]))[: len(part)])
    return torch.cat(answers)
