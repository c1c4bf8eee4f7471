"""A small training that several tests share."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor, nn

from deformrs import Rotation, Uniform
from deformrs.data import load_digits
from deformrs.models import SmallCNN
from deformrs.training import Plan, Recipe
from deformrs.training.images import Held

CPU = torch.device("cpu")


def digits(first: int, last: int, device: torch.device = CPU) -> Held:
    images, labels = load_digits("train")
    return Held(images[first:last], labels[first:last], device)


def small_plan(
    epochs: int = 3, batch_size: int = 32, learning_rate: float = 0.1, seed: int = 0
) -> Plan:
    recipe = Recipe(epochs, batch_size, learning_rate, nesterov=True, weight_decay=5e-4)
    return Plan(Rotation(), Uniform(math.radians(54)), recipe, seed=seed)


def with_recipe(plan: Plan, *, copies: int, tilt: float = 0.0, consistency: float = 0.0) -> Plan:
    recipe = plan.recipe.changed(copies=copies, tilt=tilt, consistency=consistency)
    return dataclasses.replace(plan, recipe=recipe)


def small_network(seed: int = 0) -> nn.Module:
    return SmallCNN(width=4, seed=seed)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten().double() for value in model.state_dict().values()])
