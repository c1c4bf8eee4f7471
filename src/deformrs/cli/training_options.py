"""The options of training, each group handed over as one frozen dataclass."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from deformrs.checks import check_integer, check_seed
from deformrs.cli.options import (
    DataOptions,
    Decorator,
    PreparationOptions,
    SmoothingOptions,
    grouped,
    preparation_options,
)
from deformrs.cli.parameters import Word
from deformrs.data.image_set import check_share
from deformrs.data.preparation import Interpolation
from deformrs.errors import InputError
from deformrs.models import InitialNetwork, initial_network
from deformrs.training.recipes import Recipe, read_recipe


@dataclass(frozen=True)
class StartOptions(PreparationOptions):
    """The network that training starts from, and how its images are prepared."""

    model: str
    weights: str | None = None
    pretrained: bool = False
    resize: int | None = None
    crop: int | None = None
    interpolation: Interpolation | None = None
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    max_pixels: int | None = None

    def load(self, num_classes: int, channels: int, seed: int) -> InitialNetwork:
        """Return the initial network."""
        start = initial_network(
            self.model,
            num_classes,
            self.channels or channels,
            weights=None if self.weights is None else Path(self.weights),
            pretrained=self.pretrained,
            seed=seed,
        )
        preparation = self.preparation(start.spec.preparation)
        spec = dataclasses.replace(start.spec, preparation=preparation)
        if self.mean is not None or self.std is not None:
            spec = dataclasses.replace(spec, mean=self.mean, std=self.std)
        return dataclasses.replace(start, spec=spec)


@dataclass(frozen=True)
class TrainingOptions:
    """The recipe of a training, and the devices it runs on. None: as the recipe says."""

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
    workers: int | None = None
    device: str = "auto"
    devices: int = 1
    checkpoint_seconds: float = 60.0
    tensorboard: bool = True

    def __post_init__(self) -> None:
        # Checked here, before data and network are loaded.
        self.recipe_for(pretrained=False)
        check_share(self.hold_out)
        check_seed("seed", self.seed)
        if self.workers is not None:
            check_integer("workers", self.workers, least=0)
        check_integer("devices", self.devices, least=1)
        if not self.checkpoint_seconds >= 0:  # written so that NaN is refused too
            raise InputError(
                "checkpoint_seconds", self.checkpoint_seconds, "must be 0 or above", "e.g. 60"
            )

    def recipe_for(self, *, pretrained: bool, images: int | None = None) -> Recipe:
        """Return the recipe with these options in place of its own, fitted to so many images.

        It is not fitted if batch size or learning rate are given.
        """
        recipe = read_recipe(self.recipe, pretrained=pretrained)
        if images is not None and self.batch_size is None and self.learning_rate is None:
            recipe = recipe.fitted(images)
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


@dataclass(frozen=True)
class TrainingRequest:
    """All options of a training but its folder."""

    start: StartOptions
    data: DataOptions
    smoothing: SmoothingOptions
    training: TrainingOptions


def start_options() -> Decorator:
    """Add `--model` and its preparation: the argument `start`, a `StartOptions`."""
    return grouped(
        "start",
        StartOptions,
        click.option(
            "--model",
            required=True,
            help="small_cnn, resnet18, resnet18:width=32 (small images), resnet50, timm:NAME, "
            "torchvision:NAME, net.py:build, or a run folder to continue from.",
        ),
        click.option("--weights", help="A .safetensors or .pth state dict to start from."),
        click.option("--pretrained", is_flag=True, help="Start from the published weights."),
        *preparation_options,
    )


def training_options() -> Decorator:
    """Add the recipe and the devices: the argument `training`, a `TrainingOptions`."""
    return grouped(
        "training",
        TrainingOptions,
        click.option(
            "--recipe", default="fast", show_default=True, help="fast, paper, or your own .toml."
        ),
        click.option("--epochs", type=int, help="Replaces that of the recipe."),
        click.option("--batch-size", type=int, help="Likewise; summed over all processes."),
        click.option("--learning-rate", type=float, help="Likewise."),
        click.option("--weight-decay", type=float, help="Likewise."),
        click.option("--copies", type=int, help="Deformed copies of an image in a step."),
        click.option(
            "--tilt",
            type=float,
            help="Weight misclassified copies more, e.g. 2; 0 is the plain mean.",
        ),
        click.option(
            "--consistency",
            type=float,
            help="Weight of consistency regularisation; 10 raises accuracy at large radii.",
        ),
        click.option("--entropy", type=float, help="Weight of its entropy term."),
        click.option(
            "--augment",
            default="auto",
            show_default=True,
            help="auto, none, crop:4+flip, zoom:0.25+flip.",
        ),
        click.option(
            "--hold-out",
            default=0.0,
            show_default=True,
            help="Share of the training images kept out to choose the best epoch, e.g. 0.05.",
        ),
        click.option("--seed", default=0, show_default=True, help="Seed of everything random."),
        click.option(
            "--precision",
            type=Word("auto", "float32", "bfloat16"),
            default="auto",
            show_default=True,
            help="Precision of the computation; weights stay in float32.",
        ),
        click.option(
            "--compile",
            type=Word("auto", "yes", "no"),
            default="auto",
            show_default=True,
            help="Whether to use torch.compile.",
        ),
        click.option("--workers", type=int, help="Processes that read images.  [one per core]"),
        click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1."),
        click.option(
            "--devices", default=1, show_default=True, help="GPUs (or CPU processes) to train on."
        ),
        click.option(
            "--checkpoint-seconds",
            default=60.0,
            show_default=True,
            help="Seconds between checkpoints: what a kill may cost at most.",
        ),
        click.option("--tensorboard/--no-tensorboard", default=True, show_default=True),
    )
