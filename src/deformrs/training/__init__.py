"""Training classifiers under the noise they will be certified with."""

from deformrs.training.augmentation import Augmentation
from deformrs.training.objective import Objective
from deformrs.training.plan import Moment, Plan, Trained
from deformrs.training.recipes import Recipe, read_recipe
from deformrs.training.tensors import train

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
