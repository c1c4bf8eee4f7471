"""The types that all model sources share, and the classifier that is certified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from deformrs.checks import is_real
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, ModelError
from deformrs.execution import ReadyModel, read_logits

_MOST = 2.0
"""No published mean or standard deviation of images in [0, 1] is above that."""


@dataclass(frozen=True)
class NetworkSpec:
    """A network with its preprocessing. A factory may return one instead of a bare network.

    `mean` and `std` (one number, or one per channel) normalise images in [0, 1] before the
    network; None if it needs no normalisation or includes it. `channels_last` states that the
    network accepts that memory format, which is faster; one that calls `view` on its features
    may not.
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
    """The network that a source stands for.

    `about` records its files with their digests and the libraries with their versions.
    `frozen_graph`: the file fixes the whole computation, including its precision. `name` is what
    chooses the network among others with the same files and weights: "timm:resnet18", or
    "net.py:build" without the path of the file.
    """

    spec: NetworkSpec
    about: Config
    frozen_graph: bool = False
    name: str | None = None


@dataclass(frozen=True)
class LoadedModel(ReadyModel):
    """A classifier that is ready to be certified; `SmoothedClassifier` takes it as its model.

    `module` maps N x C x H x W images in [0, 1] (float32) to N x K logits (float32). It is in
    evaluation mode, on its device, and its weights require no gradients. `preparation` turns a
    stored image into its input. `about` holds the plain values that reproduce the model.
    """

    module: nn.Module
    preparation: Preparation
    class_names: tuple[str, ...] | None
    about: Config


def check_normalisation(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    """Raise unless both are None, or finite numbers of one length that fit images in [0, 1]."""
    if mean is None and std is None:
        return
    stated = f"mean {mean or 'not given'}, std {std or 'not given'}"
    numbers = (*(mean or ()), *(std or ()))
    if not all(map(is_real, numbers)) or any(value <= 0 for value in std or ()):
        raise InputError(
            "the normalisation",
            stated,
            "must be finite numbers, with std above 0",
            "e.g. mean (0.5,) and std (0.25,)",
        )
    if max(map(abs, numbers), default=0) > _MOST:
        given = [("--mean", mean, _MOST), ("--std", std, 1.0)]
        options = " ".join(
            f"{name} {_shrunk(v, least) if v else '...'}" for name, v, least in given
        )
        raise InputError(
            "the normalisation",
            stated,
            "must be for images in [0, 1], but is for pixels from 0 to 255",
            f"divide it by 255: {options} on the command line",
        )
    if mean is None or std is None or len(mean) != len(std) or not mean:
        raise InputError(
            "the normalisation",
            stated,
            "needs both, with as many numbers each",
            "e.g. mean (0.5, 0.5, 0.5) and std (0.25, 0.25, 0.25)",
        )


def _shrunk(values: tuple[float, ...], least: float) -> str:
    """Return the numbers as text, divided by 255 if the largest of them is at least that."""
    divisor = 255 if max(map(abs, values)) >= least else 1
    return ",".join(f"{value / divisor:.4g}" for value in values)


def require_trust(trust_code: bool, name: str, value: str, alternative: str) -> None:
    """Raise unless the user has stated that this code is to be trusted."""
    if not trust_code:
        raise InputError(
            name,
            value,
            "must come from someone you trust",
            f"pass --trust-code (in Python trust_code=True) if it does, {alternative}",
        )


class Classifier(nn.Module):
    """Map N x C x H x W images in [0, 1] to N x K logits, both float32; the input is not modified.

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

    def _get_name(self) -> str:
        return f"Classifier({type(self.network).__name__})"

    def forward(self, images: Tensor) -> Tensor:
        if self.mean is None or self.std is None:
            inputs = images
        elif self.mean.shape[1] in (1, images.shape[1]):
            inputs = (images - self.mean).div_(self.std)
        else:
            raise ModelError(
                "the image",
                f"of {images.shape[1]} channels",
                f"must have {self.mean.shape[1]}, as many as mean and std",
                "prepare it with channels=3 for colour or 1 for grey",
            )
        # One after the other: on a CPU, a cast that also changes the layout takes twice as long.
        inputs = inputs.to(self.dtype)
        if self.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self.mean is None and self._is_uncopied(images):
            inputs = inputs.clone()  # the network may work in place
        return read_logits(self.network(inputs)).float()

    def _is_uncopied(self, images: Tensor) -> bool:
        """Return whether casting and reordering these images returns the very same tensor."""
        layout = torch.channels_last
        ordered = not self.channels_last or images.is_contiguous(memory_format=layout)
        return images.dtype == self.dtype and ordered


def in_batches(run: Callable[[Tensor], Tensor], images: Tensor, size: int | None) -> Tensor:
    """Return `run(images)`, computed in batches of exactly `size`, the last one padded.

    None leaves the batch as it is.
    """
    if size is None:
        return run(images)
    outputs = []
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        padding = batch[-1:].expand(size - len(batch), *batch.shape[1:])
        outputs.append(run(torch.cat([batch, padding]))[: len(batch)])
    return torch.cat(outputs)
