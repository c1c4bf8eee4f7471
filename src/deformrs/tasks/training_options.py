"""The options of training as people type them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deformrs.models import Start, start_model
from deformrs.preparation import Interpolation, Preparation
from deformrs.training.objective import Objective
from deformrs.training.recipes import Recipe, read_recipe


@dataclass(frozen=True)
class StartOptions:
    """Which network training begins with, and how its pictures are made ready."""

    model: str
    weights: str | None = None
    pretrained: bool = False
    resize: int | None = None
    crop: int | None = None
    interpolation: Interpolation | None = None
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def load(self, num_classes: int, channels: int, seed: int) -> Start:
        """The network as it begins."""
        start = start_model(
            self.model,
            num_classes,
            self.channels or channels,
            weights=None if self.weights is None else Path(self.weights),
            pretrained=self.pretrained,
            seed=seed,
        )
        preparation = self._prepared(start.built.preparation)
        built = dataclasses.replace(start.built, preparation=preparation)
        if self.mean is not None or self.std is not None:
            built = dataclasses.replace(built, mean=self.mean, std=self.std)
        return dataclasses.replace(start, built=built)

    def _prepared(self, preparation: Preparation) -> Preparation:
        if self.resize is not None:
            preparation = dataclasses.replace(preparation, resize=self.resize)
        if self.crop is not None:
            preparation = dataclasses.replace(preparation, crop=(self.crop, self.crop))
        if self.interpolation is not None:
            preparation = dataclasses.replace(preparation, interpolation=self.interpolation)
        if self.channels is not None:
            preparation = dataclasses.replace(preparation, channels=self.channels)
        return preparation


@dataclass(frozen=True)
class TrainingOptions:
    """How it is trained, and with which machines. None: as the recipe says."""

    recipe: str = "fast"
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    copies: int | None = None
    consistency: float = 0.0
    entropy: float = 0.5
    tilt: float = 0.0
    augment: str = "auto"
    hold_out: float = 0.0
    seed: int = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "yes", "no"] = "auto"
    hold: Literal["auto", "yes", "no"] = "auto"
    workers: int | None = None
    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: str = "ddp"
    checkpoint_seconds: float = 60.0
    tensorboard: bool = True

    def __post_init__(self) -> None:
        # Before data and network are loaded, not after it.
        self.objective(self.recipe_for(pretrained=False))

    def recipe_for(self, *, pretrained: bool) -> Recipe:
        """The recipe with what was asked in place of its own."""
        return read_recipe(self.recipe, pretrained=pretrained).changed(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )

    def objective(self, recipe: Recipe) -> Objective:
        """Two copies where they are to be compared and nothing else was asked."""
        copies = self.copies
        if copies is None:
            copies = 2 if self.consistency or self.tilt else 1
        return Objective(copies, self.consistency, self.entropy, self.tilt, recipe.label_smoothing)
