"""Recipes: epochs, batch size, learning rate, objective and precision of a training.

A recipe is a small TOML file. `paper` and `fast` come with the package; one of your own is named
by its path.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from deformrs.checks import check_choice, check_integer, check_seed, is_real
from deformrs.config import Config
from deformrs.deformations import Deformation
from deformrs.errors import InputError, did_you_mean
from deformrs.geometry import Padding
from deformrs.limits import TOML_BYTES, parse_toml, read_text
from deformrs.noise import NoiseLaw
from deformrs.training.augmentation import Augmentation


@dataclass(frozen=True)
class Objective:
    """Cross-entropy over `copies` deformed copies of each image, with terms for larger radii.

    With ℓ₁ … ℓ_m the losses of the copies, p₁ … p_m the predicted probabilities and p̄ their mean:

    `tilt` t > 0 takes (1/t) log mean exp(t ℓ_i) for the mean of the losses, so that misclassified
    copies count most: a certificate is lost by the few deformations that fool the network.
    (Tilted empirical risk: Li, Beirami, Sanjabi and Smith, 2021.)

    `consistency` adds consistency · mean KL(p̄ ‖ p_i) + entropy · H(p̄): predictions should
    be confident and not depend on the noise (Jeong and Shin, 2020). It lowers accuracy at small
    radii.

    More copies show an image under more noise in each step, and cost as much more time.
    """

    copies: int = 1
    tilt: float = 0.0
    consistency: float = 0.0
    entropy: float = 0.5
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_integer("copies", self.copies, least=1)
        for name in ("tilt", "consistency", "entropy"):
            value = getattr(self, name)
            if not is_real(value) or value < 0:
                raise InputError(name, repr(value), "must be a number of at least 0", "e.g. 2")
        if not is_real(self.label_smoothing) or not 0 <= self.label_smoothing < 1:
            raise InputError("label_smoothing", self.label_smoothing, "must lie in [0, 1)", "0.1")
        if (self.consistency or self.tilt) and self.copies < 2:
            raise InputError(
                "copies",
                self.copies,
                "must be at least 2 for consistency and tilt, which compare them",
                "e.g. 2",
            )

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of logits [copies · b, k], copy after copy, and labels [b]."""
        losses = cross_entropy(
            logits,
            labels.repeat(self.copies),
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        if self.tilt:
            tilted = (self.tilt * losses).view(self.copies, len(labels)).logsumexp(dim=0)
            loss = (tilted - math.log(self.copies)).mean() / self.tilt
        else:
            loss = losses.mean()
        if not self.consistency:
            return loss
        logs = log_softmax(logits, dim=1).view(self.copies, len(labels), -1)
        # The mean of probabilities, by their logarithms: no underflow, and a gradient everywhere.
        mean = logs.logsumexp(dim=0) - math.log(self.copies)
        spread = kl_div(logs, mean.expand_as(logs), log_target=True, reduction="none")
        entropy = -(mean.exp() * mean).sum(dim=1)
        return loss + self.consistency * spread.sum(dim=2).mean() + self.entropy * entropy.mean()


Schedule = Literal["one_cycle", "steps"]
TrainingPrecision = Literal["float32", "bfloat16"]

RECIPES = ("fast", "paper")
SMALLEST_BATCH, STEPS_AN_EPOCH = 32, 16
PRETRAINED = "pretrained"
"""The table of a recipe that applies when training begins with existing weights."""


@dataclass(frozen=True)
class Recipe:
    """Stochastic gradient descent: `epochs` passes in batches of `batch_size`.

    `schedule` "one_cycle" raises the learning rate over the share `warmup` of all steps and brings
    it down to zero; "steps" multiplies it by `decay` after each epoch named in `steps`. The
    fields from `copies` to `label_smoothing` are those of `Objective`. `precision` and `compile`
    are for a GPU.

    >>> read_recipe("paper").steps
    (30, 60)
    """

    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    schedule: Schedule = "one_cycle"
    warmup: float = 0.2
    steps: tuple[int, ...] = ()
    decay: float = 0.1
    copies: int = 1
    tilt: float = 0.0
    consistency: float = 0.0
    entropy: float = 0.5
    label_smoothing: float = 0.0
    precision: TrainingPrecision = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        check_integer("epochs", self.epochs, least=1)
        check_integer("batch_size", self.batch_size, least=1)
        _check_number("learning_rate", self.learning_rate, above=0.0)
        _check_number("momentum", self.momentum, least=0.0, below=1.0)
        _check_number("weight_decay", self.weight_decay, least=0.0)
        _check_number("warmup", self.warmup, least=0.0, below=1.0)
        _check_number("decay", self.decay, above=0.0)
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("precision", self.precision, get_args(TrainingPrecision))
        for name in ("nesterov", "compile"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(name, getattr(self, name), "must be true or false", "choose one")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov", True, "needs a momentum above 0", "e.g. momentum 0.9")
        if not isinstance(self.steps, list | tuple):
            raise InputError("steps", self.steps, "must be a list of epochs", "e.g. [30, 60]")
        object.__setattr__(self, "steps", tuple(self.steps))
        for epoch in self.steps:
            check_integer("an epoch of steps", epoch, least=1)
        if list(self.steps) != sorted(set(self.steps)):
            raise InputError("steps", list(self.steps), "must rise", "e.g. [30, 60]")
        _ = self.objective  # which checks its own numbers

    @property
    def objective(self) -> Objective:
        """The function that training minimises."""
        return Objective(
            self.copies, self.tilt, self.consistency, self.entropy, self.label_smoothing
        )

    def changed(
        self,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        copies: int | None = None,
        tilt: float | None = None,
        consistency: float | None = None,
        entropy: float | None = None,
    ) -> Recipe:
        """Return a copy with the values that are not None.

        `steps` keep their share of all epochs. `tilt` and `consistency` imply two copies; one copy
        switches both off.

        >>> read_recipe("paper").changed(epochs=30).steps
        (10, 20)
        """
        steps = self.steps
        if epochs is not None:
            check_integer("epochs", epochs, least=1)
            steps = tuple(sorted({max(1, round(s * epochs / self.epochs)) for s in self.steps}))
        if copies is None and (tilt or consistency):
            copies = max(2, self.copies)
        if copies == 1:
            tilt, consistency = tilt or 0.0, consistency or 0.0
        values = {
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "copies": copies,
            "tilt": tilt,
            "consistency": consistency,
            "entropy": entropy,
        }
        given = {key: value for key, value in values.items() if value is not None}
        return dataclasses.replace(self, steps=steps, **given)  # type: ignore[arg-type]

    def fitted(self, images: int) -> Recipe:
        """Return a copy for a small dataset: batches of 32 or more that give 16 steps an epoch.

        The learning rate falls with the root of the batch size.

        >>> small = read_recipe("fast").fitted(4000)
        >>> small.batch_size, small.learning_rate
        (128, 0.2)
        """
        size = self.batch_size
        while size > SMALLEST_BATCH and images < STEPS_AN_EPOCH * size:
            size = max(SMALLEST_BATCH, size // 2)
        rate = self.learning_rate * math.sqrt(size / self.batch_size)
        return dataclasses.replace(self, batch_size=size, learning_rate=rate)

    def to_config(self) -> Config:
        """Return its plain values."""
        return dataclasses.asdict(self) | {"steps": list(self.steps)}


def read_recipe(name: str, *, pretrained: bool = False) -> Recipe:
    """Return the recipe of that name or TOML file; `pretrained` applies its table of that name."""
    if name in RECIPES:
        text = (files("deformrs.training") / f"{name}.toml").read_text(encoding="utf-8")
        return _parsed(name, text, pretrained)
    path = Path(name)
    if path.suffix != ".toml" or not path.is_file():
        raise InputError(
            "the recipe",
            repr(name),
            "must be one of " + ", ".join(RECIPES) + ", or a .toml file of your own",
            did_you_mean(name, RECIPES, "check the path"),
        )
    try:
        return _parsed(name, read_text(path, TOML_BYTES), pretrained)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the recipe {name}", "unreadable", str(error), "check it") from None


def _parsed(name: str, text: str, pretrained: bool) -> Recipe:
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise InputError(
            f"the recipe {name}", f"no TOML ({error})", "must be lines key = value", "fix it"
        ) from None
    other = values.pop(PRETRAINED, {})
    known = [field.name for field in dataclasses.fields(Recipe)]
    for key in [*values, *(other if isinstance(other, dict) else [PRETRAINED])]:
        if key not in known:
            raise InputError(
                f"the key {key!r} of the recipe {name}",
                "unknown",
                "must be one of " + ", ".join(known),
                did_you_mean(key, known, f"or the table [{PRETRAINED}]"),
            )
    chosen = values | other if pretrained else values
    for key in ("epochs", "batch_size", "learning_rate"):
        if key not in chosen:
            raise InputError(f"{key} in the recipe {name}", "missing", "is needed", "add it")
    try:
        return Recipe(**chosen)
    except InputError as error:
        raise InputError(
            f"{error.name} in the recipe {name}", error.value, error.rule, error.remedy
        ) from None


def _check_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
) -> None:
    fits = (
        is_real(value)
        and (above is None or value > above)  # type: ignore[operator]
        and (least is None or value >= least)  # type: ignore[operator]
        and (below is None or value < below)  # type: ignore[operator]
    )
    if fits:
        return
    rules = (("above", above), ("of at least", least), ("below", below))
    rule = " and ".join(f"{word} {bound:g}" for word, bound in rules if bound is not None)
    raise InputError(name, repr(value), f"must be a number {rule}", "e.g. 0.1")


@dataclass(frozen=True)
class Plan:
    """All that determines the weights besides the network, the images and the machine."""

    deformation: Deformation
    noise: NoiseLaw
    recipe: Recipe
    augmentation: Augmentation = field(default_factory=Augmentation)
    padding: Padding = "zeros"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("padding", self.padding, get_args(Padding))
        check_seed("seed", self.seed)
        self.deformation.check_registered()
        self.noise.check_registered()

    def to_config(self) -> Config:
        """Return its plain values."""
        return {
            "deformation": self.deformation.to_config(),
            "noise": self.noise.to_config(),
            "recipe": self.recipe.to_config(),
            "augmentation": self.augmentation.to_config(),
            "padding": self.padding,
            "seed": self.seed,
        }
