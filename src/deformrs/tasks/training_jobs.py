"""From options as people type them to a network, its pictures and the plan of its training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

from deformrs import __version__
from deformrs.config import Config, ConfigValue
from deformrs.data import HeldOut, PictureSet
from deformrs.engines.identity import device_name
from deformrs.errors import InputError
from deformrs.models import Start, check_scores
from deformrs.preparation import Preparation
from deformrs.runs.places import RELATIVE_TO, start_of
from deformrs.specs import parse_deformation, parse_noise
from deformrs.tasks.jobs import plugin_digests
from deformrs.tasks.options import DataOptions, DownloadReport, SmoothingOptions, plain_options
from deformrs.tasks.trained import find_trained
from deformrs.tasks.training_options import StartOptions, TrainingOptions
from deformrs.training.augmentation import fitting_augmentation, parse_augmentation
from deformrs.training.pictures import framed
from deformrs.training.plan import Plan
from deformrs.training.processes import Processes
from deformrs.training.recipes import TrainingPrecision

_MOST_EMPTY = 1000
"""Classes there may be without a picture, where labels are numbers."""


@dataclass(frozen=True)
class TrainingJob:
    """What there is to train, before anything costly is done."""

    start: Start
    pictures: PictureSet
    class_names: tuple[str, ...] | None
    num_classes: int
    plan: Plan
    precision: TrainingPrecision
    compiled: bool
    config: Config

    @property
    def preparation(self) -> Preparation:
        """What certification does to a picture before the network."""
        return self.start.built.preparation


def prepare_training(
    start: StartOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
    processes: Processes,
    report: DownloadReport | None = None,
) -> TrainingJob:
    """Find the pictures and the network, and see that they fit."""
    stored = data.load(Preparation(channels=start.channels), report=report)
    num_classes = len(stored.class_names) if stored.class_names else _numbered(stored)
    begun = start.load(num_classes, len(stored[0][0]), training.seed)
    names = stored.class_names or begun.built.class_names
    if set(begun.built.class_names or ()) == set(names or ()):
        names = begun.built.class_names  # the last layer knows its classes in that order
    frame = framed(begun.built.preparation)
    if start.channels is None and frame.channels == 1:
        # A colour picture among grey ones would lose its colours: it is refused instead.
        frame = dataclasses.replace(frame, channels=None)
    pictures = data.load(frame, num_classes, names)
    _check_unseen(start, pictures, training)
    plan = _plan(begun, pictures, smoothing, training)
    on_gpu = processes.device.type == "cuda"
    precision: TrainingPrecision = "float32"
    if training.precision != "auto":
        precision = training.precision
    elif on_gpu:
        precision = plan.recipe.precision
    compiled = training.compile == "yes" or (
        training.compile == "auto" and plan.recipe.compile and on_gpu
    )
    environment: Config = {
        "version": __version__,
        "torch": str(torch.__version__),
        "device": device_name(processes.device),
        "processes": processes.count,
        "compiled": compiled,
    }
    plugins = plugin_digests(smoothing)
    config: Config = {"plugins": plugins} if plugins else {}
    config |= {
        "command": "train",
        "model": begun.about | {"mean": _plain(begun.built.mean), "std": _plain(begun.built.std)},
        "preparation": begun.built.preparation.to_config(),
        "data": {key: value for key, value in pictures.about.items() if key != "source"}
        | {"hold_out": training.hold_out},
        **plan.to_config(),
        "precision": precision,
        "options": plain_options(start)
        | plain_options(data)
        | plain_options(smoothing)
        | {RELATIVE_TO: start_of(out)},
        "environment": environment,
    }
    return TrainingJob(begun, pictures, names, num_classes, plan, precision, compiled, config)


def _check_unseen(start: StartOptions, pictures: PictureSet, training: TrainingOptions) -> None:
    """Raise if the network has learnt before from pictures that are now to be held out."""
    trained = find_trained(start.model, start.weights)
    digest = str(pictures.about["sha256"])
    if not training.hold_out or trained is None or trained.seen.get("sha256") != digest:
        return
    if trained.held_out != HeldOut(training.hold_out, training.seed, digest):
        raise InputError(
            "the pictures to hold out",
            f"known to the network in {trained.folder}",
            "must be ones that it has not been trained on",
            "begin with a network that was trained with the same hold-out and seed",
        )


def _plan(
    start: Start, pictures: PictureSet, smoothing: SmoothingOptions, training: TrainingOptions
) -> Plan:
    first = pictures[0][0]
    frame = (first.shape[1], first.shape[2])
    crop = start.built.preparation.crop
    size = frame if crop is None else crop
    kept = round(len(pictures) * (1 - training.hold_out))
    recipe = training.recipe_for(pretrained=start.pretrained, pictures=kept)
    deformation = parse_deformation(smoothing.deformation)
    if training.augment == "auto":
        augmentation = fitting_augmentation(pictures.name, frame, size)
    else:
        augmentation = parse_augmentation(training.augment, size)
    return Plan(
        deformation,
        parse_noise(smoothing.noise, deformation.space(size)),
        recipe,
        augmentation,
        smoothing.padding,
        training.seed,
    )


def _numbered(pictures: PictureSet) -> int:
    """The number of classes where labels are numbers and nothing else is known."""
    count, shown = max(pictures.labels) + 1, len(set(pictures.labels))
    if count > max(_MOST_EMPTY, 2 * shown):
        raise InputError(
            "the largest label",
            count - 1,
            f"must be near the number of classes, of which there are pictures of {shown}",
            "number them 0, 1, 2, … or give them names",
        )
    return count


def _plain(values: tuple[float, ...] | None) -> list[ConfigValue] | None:
    return None if values is None else list(values)


def check_answers(job: TrainingJob) -> None:
    """Raise unless the network takes the pictures and has a score for every class."""
    image = torch.from_numpy(job.pictures[0][0])[None]
    centre = job.plan.augmentation.centre(image)
    check_scores(job.start.built, job.num_classes, torch.cat([centre, centre.flip(-1)]))
