"""What a training says: before it begins, while it goes, in the end; and how it is stopped."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import torch
from rich.console import Console

from deformrs import __version__
from deformrs.cli.defaults import find_trained
from deformrs.cli.jobs import plugin_digests
from deformrs.cli.options import (
    DataOptions,
    SmoothingOptions,
    StartOptions,
    TrainingOptions,
    plain_options,
)
from deformrs.cli.progress import step
from deformrs.config import Config, ConfigValue
from deformrs.data import HeldOut, ImageSet
from deformrs.data.download import DownloadProgress
from deformrs.data.preparation import Preparation
from deformrs.dataset import device_name
from deformrs.errors import InputError
from deformrs.models import InitialNetwork, check_num_classes
from deformrs.rounding import format_down
from deformrs.runs.folder import RELATIVE_TO, start_of
from deformrs.specs import parse_deformation, parse_noise
from deformrs.training.augmentation import fitting_augmentation, parse_augmentation
from deformrs.training.checkpoints import Checkpoints
from deformrs.training.distributed import Processes
from deformrs.training.images import Source, framed
from deformrs.training.loop import Moment, Trained, Watch
from deformrs.training.output import BEST, TrainingFolder
from deformrs.training.recipes import Plan, TrainingPrecision

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


FOLDER = "tensorboard"
_CURVES = ("loss", "accuracy", "held_out_accuracy", "learning_rate")


def board_missing() -> bool:
    """Is the package absent?"""
    return importlib.util.find_spec("tensorboard") is None


class Board:
    """Curves of a training for TensorBoard: `tensorboard --logdir runs`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._writer: SummaryWriter | None = None

    def add(self, moment: Moment) -> None:
        """A point on every curve. What an earlier go wrote beyond the first one is dropped."""
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            self._writer = SummaryWriter(str(self._folder), purge_step=moment.step)
        values = {"loss": moment.loss, "accuracy": moment.accuracy} | (moment.record or {})
        for name in _CURVES:
            if name in values:
                group = "epoch" if moment.record else "now"
                self._writer.add_scalar(f"{group}/{name}", values[name], moment.step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


_MOST_EMPTY = 1000
"""Classes there may be without an image, where labels are numbers."""


@dataclass(frozen=True)
class TrainingJob:
    """What there is to train, before anything costly is done."""

    start: InitialNetwork
    images: ImageSet
    class_names: tuple[str, ...] | None
    num_classes: int
    plan: Plan
    precision: TrainingPrecision
    compiled: bool
    config: Config

    @property
    def preparation(self) -> Preparation:
        """What certification does to an image before the network."""
        return self.start.spec.preparation


def prepare_training(
    start: StartOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
    processes: Processes,
    report: DownloadProgress | None = None,
) -> TrainingJob:
    """Find the images and the network, and see that they fit."""
    stored = data.load(Preparation(channels=start.channels), report=report)
    num_classes = len(stored.class_names) if stored.class_names else _numbered(stored)
    begun = start.load(num_classes, len(stored[0][0]), training.seed)
    names = stored.class_names or begun.spec.class_names
    if set(begun.spec.class_names or ()) == set(names or ()):
        names = begun.spec.class_names  # the last layer knows its classes in that order
    frame = framed(begun.spec.preparation)
    if start.channels is None and frame.channels == 1:
        # A colour image among grey ones would lose its colours: it is refused instead.
        frame = dataclasses.replace(frame, channels=None)
    images = data.load(frame, num_classes, names)
    _check_unseen(start, images, training)
    plan = _plan(begun, images, smoothing, training)
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
        "model": begun.about | {"mean": _plain(begun.spec.mean), "std": _plain(begun.spec.std)},
        "preparation": begun.spec.preparation.to_config(),
        "data": {key: value for key, value in images.about.items() if key != "source"}
        | {"hold_out": training.hold_out},
        **plan.to_config(),
        "precision": precision,
        "options": plain_options(start)
        | plain_options(data)
        | plain_options(smoothing)
        | {RELATIVE_TO: start_of(out)},
        "environment": environment,
    }
    return TrainingJob(begun, images, names, num_classes, plan, precision, compiled, config)


def _check_unseen(start: StartOptions, images: ImageSet, training: TrainingOptions) -> None:
    """Raise if the network has learnt before from images that are now to be held out."""
    trained = find_trained(start.model, start.weights)
    digest = str(images.about["sha256"])
    if not training.hold_out or trained is None or trained.seen.get("sha256") != digest:
        return
    if trained.held_out != HeldOut(training.hold_out, training.seed, digest):
        raise InputError(
            "the images to hold out",
            f"known to the network in {trained.folder}",
            "must be ones that it has not been trained on",
            "begin with a network that was trained with the same hold-out and seed",
        )


def _plan(
    start: InitialNetwork, images: ImageSet, smoothing: SmoothingOptions, training: TrainingOptions
) -> Plan:
    first = images[0][0]
    frame = (first.shape[1], first.shape[2])
    crop = start.spec.preparation.crop
    size = frame if crop is None else crop
    kept = round(len(images) * (1 - training.hold_out))
    recipe = training.recipe_for(pretrained=start.pretrained, images=kept)
    deformation = parse_deformation(smoothing.deformation)
    if training.augment == "auto":
        augmentation = fitting_augmentation(images.name, frame, size)
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


def _numbered(images: ImageSet) -> int:
    """The number of classes where labels are numbers and nothing else is known."""
    count, shown = max(images.labels) + 1, len(set(images.labels))
    if count > max(_MOST_EMPTY, 2 * shown):
        raise InputError(
            "the largest label",
            count - 1,
            f"must be near the number of classes, of which there are images of {shown}",
            "number them 0, 1, 2, … or give them names",
        )
    return count


def _plain(values: tuple[float, ...] | None) -> list[ConfigValue] | None:
    return None if values is None else list(values)


def check_answers(job: TrainingJob) -> None:
    """Raise unless the network takes the images and has a score for every class."""
    image = torch.from_numpy(job.images[0][0])[None]
    centre = job.plan.augmentation.centre(image)
    check_num_classes(job.start.spec, job.num_classes, torch.cat([centre, centre.flip(-1)]))


_NAMES = 5


def beginning(
    job: TrainingJob,
    processes: Processes,
    source: Source,
    held_out: Source | None,
    checkpoints: Checkpoints,
) -> list[str]:
    """What is about to happen, a line each."""
    recipe, plan = job.plan.recipe, job.plan
    space = plan.deformation.space(plan.augmentation.size or source.size)
    parameters = sum(p.numel() for p in job.start.spec.module.parameters())
    batch = min(recipe.batch_size, len(source))
    steps = len(source) // batch
    how = f"{job.precision}, {'compiled' if job.compiled else 'not compiled'}"
    machines = f" in {processes.count} processes" if processes.count > 1 else ""
    lines = [
        f"{job.start.network}, {parameters:,} weights, "
        + ("from pretrained ones" if job.start.pretrained else "from scratch"),
        f"{source.words}; augmentation {plan.augmentation.words}",
        _classes(job),
        f"{plan.noise.describe(space)} on {plan.deformation}",
        f"epochs: {recipe.epochs}, of {steps} steps with {batch} images, learning rate "
        f"{recipe.learning_rate:.3g}; {how}, on {processes.device}{machines}",
    ]
    if held_out is not None:
        lines.append(f"{len(held_out):,} images held out")
    begun = checkpoints.step()
    if begun:
        lines.append(f"going on after {begun / steps:.1f} epochs")
    return lines


def _classes(job: TrainingJob) -> str:
    """`10 classes: 0, 1, 2, 3, 4, …`, and how many of them no image shows."""
    names = job.class_names or tuple(map(str, range(job.num_classes)))
    some = ", ".join(names[:_NAMES]) + (", …" if len(names) > _NAMES else "")
    empty = job.num_classes - len(set(job.images.labels))
    without = f"; {empty} of them without images" if empty else ""
    return f"{job.num_classes} classes: {some}{without}"


@contextmanager
def shown(
    job: TrainingJob, training: TrainingOptions, folder: TrainingFolder | None, console: Console
) -> Iterator[Watch]:
    """A bar with loss, accuracy and time left, and curves for TensorBoard."""
    epochs = job.plan.recipe.epochs
    with ExitStack() as stack:
        board = None
        if folder is not None and training.tensorboard:
            if board_missing():
                console.print(
                    "no TensorBoard files: pip install 'deformrs[tensorboard]'", markup=False
                )
            else:
                board = stack.enter_context(closing(Board(folder.path)))
        advance = stack.enter_context(step(console, "training, epochs", epochs))

        def watch(moment: Moment) -> None:
            held = moment.record and moment.record.get("held_out_accuracy")
            words = f"loss {moment.loss:.3f}, {_percent(moment.accuracy)} right under noise"
            words += f", held out {_percent(float(held))}" if isinstance(held, float) else ""
            advance(epochs * moment.step / moment.steps, words)
            if board is not None:
                board.add(moment)
            if folder is not None and moment.record is not None:
                folder.add_epoch(moment.record)

        yield watch


def _percent(share: float) -> str:
    return f"{format_down(100 * share, 1)} %"


def outcome(job: TrainingJob, trained: Trained, out: Path) -> list[str]:
    """What came of it, a line each."""
    last, best = trained.history[-1], trained.best
    seconds, first = 0.0, 0.0
    for record in trained.history:
        seconds += _number(record, "seconds")
        first += _number(record, "first_step_seconds") if record["epoch"] == 1 else 0.0
    loss = _number(last, "loss")
    lines = [
        f"trained in {seconds:.1f} s, of which {first:.1f} s until the first step was done",
        f"last epoch: loss {loss:.3f}, {_percent(_number(last, 'accuracy'))} right under noise",
        f"best epoch: {best.epoch}, {_percent(best.accuracy)}, in {out / BEST}",
    ]
    if loss > 2 * math.log(job.num_classes):
        lines.append("note: the loss is far above that of guessing; try a lower --learning-rate")
    return lines


@contextmanager
def asked_to_stop(processes: Processes) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM came; a second one ends at once.

    Only the main thread receives signals; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and processes.count == 1:  # torchrun may pass on what this one has received
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _number(record: Config, key: str) -> float:
    value = record[key]
    assert isinstance(value, int | float)
    return float(value)
