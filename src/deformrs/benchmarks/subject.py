"""A trained classifier and its images: how many samples a question needs depends on both."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from deformrs.benchmarks.plan import Execution
from deformrs.benchmarks.questions import Questions
from deformrs.cli.arguments import (
    DataOptions,
    ModelOptions,
    SmoothingOptions,
    StartOptions,
    TrainingOptions,
)
from deformrs.cli.jobs import prepare
from deformrs.cli.progress import Downloads
from deformrs.cli.train import train_run
from deformrs.cli.trained import certification
from deformrs.data.digits import SIDE
from deformrs.dataset import Labelled
from deformrs.deformations import Rotation
from deformrs.geometry import size_of
from deformrs.smoothing import SmoothedClassifier
from deformrs.space import Space

_NETWORK = "small_cnn:width=32"
_EPOCHS = 8


@dataclass(frozen=True)
class SubjectOptions:
    """Which network and images. Without a network, a small one is trained on digits first."""

    model: str = ""
    data: str = ""
    data_root: str | None = None
    deformation: str = ""
    noise: str = ""
    batch_size: int | None = None


@dataclass(frozen=True, eq=False)
class Subject:
    """What is certified."""

    classifier: SmoothedClassifier
    images: Labelled
    model: str
    data: str

    def image_at(self, place: int) -> Tensor:
        """One of them: [c, h, w]."""
        pixels, _ = self.images[place]
        return pixels if isinstance(pixels, Tensor) else torch.from_numpy(pixels)

    @property
    def image(self) -> Tensor:
        """The first image."""
        return self.image_at(0)

    @property
    def space(self) -> Space:
        """That of the parameters, for images of the first one's size."""
        return self.classifier.deformation.space(size_of(self.image))


def load_subject(
    options: SubjectOptions, how: Execution, questions: Questions, console: Console
) -> Subject:
    """The classifier, executed as asked and warmed up, and the images it was not trained on."""
    if not options.model:
        questions.check(Rotation().space((SIDE, SIDE)))  # before training, not after it
        return _trained(options, how, console)
    subject = _loaded(options, how, console, options.model)
    questions.check(subject.space)
    return subject


def _trained(options: SubjectOptions, how: Execution, console: Console) -> Subject:
    with tempfile.TemporaryDirectory() as folder:
        console.print(f"training {_NETWORK} on digits, {_EPOCHS} epochs", markup=False)
        _train(Path(folder))
        return _loaded(options, how, console, folder)


def _loaded(options: SubjectOptions, how: Execution, console: Console, folder: str) -> Subject:
    model = ModelOptions(
        folder,
        precision=how.precision,
        compile=how.compiled,
        device=how.device,
        batch_size=options.batch_size,
    )
    asked = certification(
        model,
        DataOptions(options.data, data_root=options.data_root),
        SmoothingOptions(options.deformation, options.noise),
        Path(folder),
        padding_given=False,
    )
    with Downloads(console) as fetched:
        job = prepare(model, asked.data, asked.smoothing, None, fetched)
    name = options.model or f"{_NETWORK}, trained at uniform:54deg"
    subject = Subject(job.classifier, job.images, name, job.images.name)
    subject.classifier.warm_up(subject.image, together=2)  # images share their batches
    return subject


def _train(folder: Path) -> None:
    train_run(
        StartOptions(_NETWORK),
        DataOptions("digits", "train"),
        SmoothingOptions("rotation", "uniform:54deg"),
        TrainingOptions(
            epochs=_EPOCHS,
            batch_size=128,
            learning_rate=0.1,
            copies=1,
            tilt=0.0,
            device="cpu",
            tensorboard=False,
        ),
        folder,
        Console(quiet=True),
    )
