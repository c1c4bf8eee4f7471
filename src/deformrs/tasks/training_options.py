"""The options of training as people type them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deformrs.checks import check_seed, check_whole
from deformrs.models import Start, start_model
from deformrs.preparation import Interpolation
from deformrs.splitting import check_share
from deformrs.tasks.prepared import prepared
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
        preparation = prepared(self, start.built.preparation)
        built = dataclasses.replace(start.built, preparation=preparation)
        if self.mean is not None or self.std is not None:
            built = dataclasses.replace(built, mean=self.mean, std=self.std)
        return dataclasses.replace(start, built=built)


@dataclass(frozen=True)
class TrainingOptions:
    """How it is trained, and with which machines. None: as the recipe says."""

    recipe: str = "fast"
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    copies: int | None = None
    tilt: float | None = None
    consistency: float | None = None
    entropy: float | None = None
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
        self.recipe_for(pretrained=False)
        check_share(self.hold_out)
        check_seed("seed", self.seed)
        if self.workers is not None:
            check_whole("workers", self.workers, least=0)
        check_whole("devices", self.devices, least=1)
        check_whole("nodes", self.nodes, least=1)

    def recipe_for(self, *, pretrained: bool, pictures: int | None = None) -> Recipe:
        """The recipe with what was asked in place of its own, fitted to so many pictures.

        It is not fitted where batch size or learning rate were asked for.
        """
        recipe = read_recipe(self.recipe, pretrained=pretrained)
        if pictures is not None and self.batch_size is None and self.learning_rate is None:
            recipe = recipe.fitted(pictures)
        return recipe.changed(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            copies=self.copies,
            tilt=self.tilt,
            consistency=self.consistency,
            entropy=self.entropy,
        )
