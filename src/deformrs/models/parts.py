"""What a source gives, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from deformrs.checks import is_real
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.preparation import Preparation


@dataclass(frozen=True)
class BuiltModel:
    """A network and what it wants before it. A factory may return one in place of a bare network.

    `mean` and `std` (one number, or one a channel) normalise pictures in [0, 1] before the
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
class Found:
    """What a source gives. `about` says which files, by their digests, and which libraries.

    `frozen_graph`: the computation was fixed when the file was written, precision included.
    """

    built: BuiltModel
    about: Config
    frozen_graph: bool = False


@dataclass(frozen=True)
class LoadedModel:
    """A classifier that is ready to be certified.

    `module` maps N x C x H x W pictures in [0, 1] (float32) to N x K scores (float32). It is in
    evaluation mode, on its device, and its weights take no gradients. `preparation` is what is
    done to a stored picture before. `about` holds the plain values that reproduce the model.
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
