"""The trained classifier and the images that samples, agreement and cost are measured on."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import torch
from torch import Tensor, nn

from deformrs import Rotation, SmoothedClassifier, Uniform, load_data, load_model
from deformrs.cli.parameters import AutomaticNumber
from deformrs.config import Config
from deformrs.data import ImageSet, load_digits
from deformrs.data.preparation import Preparation
from deformrs.execution import Compiled, chosen_device
from deformrs.fingerprints import device_name
from deformrs.geometry import size_of
from deformrs.models import NetworkSpec, Precision, PrecisionChoice, SmallCNN
from deformrs.models.inference import natural_precision
from deformrs.specs import parse_deformation, parse_noise
from deformrs.training import train

NETWORK, EPOCHS = "small_cnn:width=32", 8


@dataclass(frozen=True)
class Options:
    """The options that the scripts share."""

    model: str | None = None
    data: str = "digits"
    deformation: str = "rotation"
    noise: str = "uniform:54deg"
    device: str = "auto"
    precision: PrecisionChoice = "auto"
    compiled: Compiled = "no"
    batch_size: int | None = None


@dataclass(frozen=True, eq=False)
class Subject:
    """A smoothed classifier, its test images, and their names in records."""

    classifier: SmoothedClassifier
    images: ImageSet
    model: str
    data: str
    precision: Precision
    device: torch.device

    @property
    def names(self) -> Config:
        """What is measured and how it is executed, as records store it."""
        return {
            "data": self.data,
            "model": self.model,
            "precision": self.precision,
            "compiled": self.classifier.sampler.compiled,
            "device": device_name(self.device),
        }

    def image(self, index: int) -> Tensor:
        """Return one image: [c, h, w]."""
        return torch.from_numpy(self.images[index][0])


def subject_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which receives them as one argument, `options`."""

    @functools.wraps(command)
    def call(**values: Any) -> None:
        own = {field.name: values.pop(field.name) for field in dataclasses.fields(Options)}
        command(options=Options(**own), **values)

    for option in (
        click.option("--batch-size", type=AutomaticNumber(), default="auto", show_default=True),
        click.option("--compile", "compiled", default="no", show_default=True),
        click.option("--precision", default="auto", show_default=True),
        click.option("--device", default="auto", show_default=True),
        click.option("--noise", default=Options.noise, show_default=True),
        click.option("--deformation", default=Options.deformation, show_default=True),
        click.option("--data", default=Options.data, show_default=True),
        click.option("--model", help="A trained run.  [a small network, trained on digits]"),
    ):
        call = option(call)
    return call


def load_subject(options: Options) -> Subject:
    """Return the classifier, compiled if requested. Without a model, train one on digits."""
    device = chosen_device(options.device)
    precision = natural_precision(device) if options.precision == "auto" else options.precision
    network: nn.Module
    if options.model is None:
        name, preparation = f"{NETWORK}, trained at uniform:54deg", Preparation(channels=1)
        network = load_model(_trained_network(), precision=precision, device=device).module
    else:
        loaded = load_model(options.model, precision=precision, device=device)
        name, preparation, network = options.model, loaded.preparation, loaded.module
    images = load_data(options.data, preparation)
    image = torch.from_numpy(images[0][0])
    deformation = parse_deformation(options.deformation)
    with torch.inference_mode():
        num_classes = network(image[None].to(device)).shape[1]
    classifier = SmoothedClassifier(
        network,
        deformation,
        parse_noise(options.noise, deformation.space(size_of(image))),
        num_classes,
        batch_size=options.batch_size or (8192 if device.type == "cuda" else 256),
        device=device,
        compiled=options.compiled,
    )
    classifier.warm_up(image, together=2)  # images share batches
    return Subject(classifier, images, name, images.name, precision, device)


def _trained_network() -> NetworkSpec:
    images, labels = load_digits("train")
    network = SmallCNN(width=32)
    train(network, images, labels, Rotation(), Uniform(math.radians(54)), epochs=EPOCHS)
    return NetworkSpec(network, channels_last=True)
