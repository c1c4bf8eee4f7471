"""What is trained for and how; where training stands; what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from deformrs.checks import check_seed
from deformrs.config import Config
from deformrs.deformations import Deformation
from deformrs.geometry import Padding, check_padding
from deformrs.noise import NoiseLaw
from deformrs.training.augmentation import Augmentation
from deformrs.training.checkpoints import Best
from deformrs.training.recipes import Recipe


@dataclass(frozen=True)
class Plan:
    """All that the weights follow from, beside the network, the pictures and the machine."""

    deformation: Deformation
    noise: NoiseLaw
    recipe: Recipe
    augmentation: Augmentation = field(default_factory=Augmentation)
    padding: Padding = "zeros"
    seed: int = 0

    def __post_init__(self) -> None:
        check_padding(self.padding)
        check_seed("seed", self.seed)
        self.deformation.check_registered()
        self.noise.check_registered()

    def to_config(self) -> Config:
        """Its plain values."""
        return {
            "deformation": self.deformation.to_config(),
            "noise": self.noise.to_config(),
            "recipe": self.recipe.to_config(),
            "augmentation": self.augmentation.to_config(),
            "padding": self.padding,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Moment:
    """Where training stands. Loss and accuracy are of the epoch so far, under noise.

    `record` is what is kept of an epoch, at the moment when one has ended.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    accuracy: float
    record: Config | None = None


@dataclass(frozen=True)
class Trained:
    """The network holds the last weights, `best` those of the best epoch."""

    best: Best
    history: list[Config]
