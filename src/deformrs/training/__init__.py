"""Training classifiers under the noise they will be certified with."""

from deformrs.training.api import train
from deformrs.training.augmentation import Augmentation
from deformrs.training.loop import Moment, Trained
from deformrs.training.recipes import Objective, Plan, Recipe, read_recipe

__all__ = [
    "Augmentation",
    "Moment",
    "Objective",
    "Plan",
    "Recipe",
    "Trained",
    "read_recipe",
    "train",
]
