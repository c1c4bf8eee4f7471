"""The learning rate as a function of the step: nothing to store, nothing to resume."""

from __future__ import annotations

import math

from deformrs.training.recipes import Recipe

START = 1 / 25
"""The share of the peak at which one cycle begins."""


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0.

    >>> from deformrs.training.recipes import read_recipe
    >>> [round(learning_rate(read_recipe("paper"), 100 * e, 100), 6) for e in (0, 29, 30, 60)]
    [0.1, 0.1, 0.01, 0.001]
    """
    if recipe.schedule == "steps":
        passed = sum(step >= epoch * steps_per_epoch for epoch in recipe.steps)
        return float(recipe.learning_rate * recipe.decay**passed)
    total = recipe.epochs * steps_per_epoch
    rising = recipe.warmup * total
    if step < rising:
        return recipe.learning_rate * (START + (1 - START) * step / rising)
    falling = (step - rising) / (total - rising)
    return recipe.learning_rate * (1 + math.cos(math.pi * falling)) / 2
