"""Does a network give one score for each class?"""

from __future__ import annotations

import torch
from torch import Tensor

from deformrs.errors import InputError
from deformrs.models.classifier import Classifier
from deformrs.models.fixed import ask
from deformrs.models.parts import BuiltModel


def check_scores(built: BuiltModel, num_classes: int, pictures: Tensor) -> None:
    """Raise unless the network gives so many scores for these pictures, [n, c, h, w] in [0, 1].

    Its weights and its mode are left as they are.
    """
    modes = [(part, part.training) for part in built.module.modules()]
    try:
        with torch.no_grad():
            scores = ask(Classifier(built, torch.float32).eval().to(pictures.device), pictures)
    finally:
        for part, mode in modes:
            part.training = mode
    if scores.shape[1] != num_classes:
        raise InputError(
            "the number of scores of the network",
            scores.shape[1],
            f"must be {num_classes}, one for each class of the data",
            f"build it for {num_classes} classes",
        )
