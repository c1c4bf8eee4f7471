"""Does a network answer? For pictures of noise, as it need not have been said which it takes."""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor, nn

from deformrs.models.classifier import Classifier
from deformrs.models.parts import BuiltModel

_SIDES = (32, 28, 64, 96, 224, 16, 8)
"""Of the data sets that networks are usually for. Most networks take pictures of any size."""


def copied(built: BuiltModel) -> BuiltModel | None:
    """The same with a copy of its network, on the CPU, in float32 and in evaluation mode.

    None where it cannot be copied.
    """
    try:
        with torch.no_grad():  # the copy of a scripted network would have a history otherwise
            network = copy.deepcopy(built.module)
    except Exception:  # any kind: a network may hold anything
        return None
    network = network.cpu().float().eval()
    for value in network.parameters():
        value.requires_grad_(False)
    return dataclasses.replace(built, module=network)


def first_answer(built: BuiltModel) -> tuple[Tensor, Tensor] | None:
    """The first pictures that a network in float32 takes, and its scores for them."""
    answers = ((pictures, answer(built, pictures)) for pictures in probes(built))
    return next(((asked, scores) for asked, scores in answers if scores is not None), None)


def answer(
    built: BuiltModel, pictures: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor | None:
    """Its scores, if it gives any and all of them are numbers. Moves it to where the pictures are.

    `dtype` is that of its weights.
    """
    try:
        with torch.inference_mode():
            classifier = Classifier(built, dtype).eval().to(pictures.device)
            scores: Tensor = classifier(pictures)
    except Exception:  # it may fail in any way on pictures that are not for it
        return None
    return scores if bool(scores.isfinite().all()) else None


def probes(built: BuiltModel) -> list[Tensor]:
    """Pictures of noise, [2, c, h, w] in [0, 1] each: the network is likely to take one of them.

    >>> from deformrs.preparation import Preparation
    >>> [p.shape for p in probes(BuiltModel(nn.Flatten(), Preparation(crop=(8, 9), channels=1)))]
    [torch.Size([2, 1, 8, 9])]
    """
    said = built.preparation
    size = said.crop or said.resize
    if isinstance(size, int):  # of the shorter side
        size = (size, size)
    sizes = [(side, side) for side in _SIDES] if size is None else [size]
    generator = torch.Generator().manual_seed(0)
    channels = _channels(built)
    return [torch.rand(2, channels, *size, generator=generator) for size in sizes]


def _channels(built: BuiltModel) -> int:
    if built.preparation.channels is not None:
        return built.preparation.channels
    if built.mean is not None and len(built.mean) > 1:
        return len(built.mean)
    convolutions = (part for part in built.module.modules() if isinstance(part, nn.Conv2d))
    first = next(convolutions, None)
    return 3 if first is None else first.in_channels
