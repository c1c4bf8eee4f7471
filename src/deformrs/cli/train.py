"""`deformrs train`."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
import torch
from rich.console import Console

from deformrs import __version__
from deformrs.cli.defaults import find_trained
from deformrs.cli.options import (
    DataOptions,
    SmoothingOptions,
    data_option,
    plain_options,
    smoothing_options,
)
from deformrs.cli.progress import Downloads, step
from deformrs.cli.terminal import echo, print_plain
from deformrs.cli.training_options import (
    StartOptions,
    TrainingOptions,
    TrainingRequest,
    start_options,
    training_options,
)
from deformrs.config import Config
from deformrs.data import HeldOut, ImageSet
from deformrs.data.image_set import Indices, stratified_split
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, install_command, quoted
from deformrs.execution import chosen_device, fastest_convolutions
from deformrs.fingerprints import device_name
from deformrs.job import plugin_digests
from deformrs.models import InitialNetwork, NetworkSpec, check_num_classes, save_model
from deformrs.models.saved import BEST, WEIGHTS
from deformrs.models.types import Classifier
from deformrs.models.weights import fit_state
from deformrs.rounding import format_down
from deformrs.runs.files import below
from deformrs.runs.folder import RELATIVE_TO, start_of
from deformrs.specs import parse_deformation, parse_noise
from deformrs.training.augmentation import fitting_augmentation, parse_augmentation
from deformrs.training.checkpoints import Checkpoints, copy_weights
from deformrs.training.distributed import (
    Processes,
    end_process,
    launch,
    open_processes,
    started_processes,
)
from deformrs.training.images import (
    Source,
    check_classes,
    framed,
    normalisation_of,
    source_for,
)
from deformrs.training.loop import Moment, Trained, Watch, fit
from deformrs.training.output import CHECKPOINTS, TrainingFolder, is_finished
from deformrs.training.recipes import Plan, TrainingPrecision

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

TENSORBOARD = "tensorboard"
_CURVES = ("loss", "accuracy", "held_out_accuracy", "learning_rate")
_NAMES_SHOWN = 5
_MAX_EMPTY_CLASSES = 1000
"""Classes that may be without an image where labels are numbers."""


def train_run(request: TrainingRequest, out: Path) -> None:
    """Train into the folder `out`, or resume what was begun there.

    A training that is finished with the same settings is left as it is. With several devices each
    gets a process; if torchrun has started them already, this is one of them.
    """
    count = started_processes()
    devices = request.training.devices
    if devices > 1 and count == 1:
        launch(devices, request.training.device, _train_process, request, out)
    elif devices in (1, count):
        _train_process(request, out)
    else:
        raise InputError(
            "--devices",
            devices,
            f"must agree with torchrun, which has started {count} processes",
            "leave it out",
        )


def _train_process(request: TrainingRequest, out: Path) -> None:
    """Train in this process, which may be one of several: only the first one prints and writes."""
    device = chosen_device(request.training.device)
    with open_processes(device) as processes, fastest_convolutions():
        console = Console(highlight=False, quiet=processes.rank > 0)
        if processes.rank:
            processes.wait()  # until the first process has downloaded the data
        job = prepare_training(request, out, processes, console)
        if not processes.rank:
            processes.wait()
        opened = nullcontext() if processes.rank else TrainingFolder.open(out, job.config)
        with opened as folder:
            processes.wait()  # until the folder is checked
            if is_finished(out):
                print_plain(console, f"trained already: {out}")
                Checkpoints(out / CHECKPOINTS).clear()
            else:
                _train(job, request.training, processes, out, folder, console)
            processes.wait()


def _train(
    job: TrainingJob,
    training: TrainingOptions,
    processes: Processes,
    out: Path,
    folder: TrainingFolder | None,
    console: Console,
) -> None:
    """Train the job and save its network; `folder` is None in processes that do not write."""
    seen, unseen = stratified_split(job.images.labels, training.hold_out, training.seed)
    spec = job.network.spec
    centre = job.plan.augmentation.centre(torch.from_numpy(job.images[0][0])[None])
    check_num_classes(spec, job.num_classes, torch.cat([centre, centre.flip(-1)]))
    if spec.mean is None and not job.network.normalises:
        mean, std = normalisation_of(job.images, seen)
        spec = dataclasses.replace(spec, mean=mean, std=std)
    classifier = Classifier(spec, torch.float32).to(processes.device)
    if spec.channels_last:
        classifier.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    checkpoints = Checkpoints(out / CHECKPOINTS)

    def read(indices: Indices) -> Source:
        with step(console, "reading images", len(indices)) as advance:
            return source_for(
                job.images,
                indices,
                processes.device,
                workers=training.workers,
                progress=lambda count: advance(count, ""),
            )

    source, held_out = read(seen), read(unseen) if len(unseen) else None
    with ExitStack() as stack:
        introduction = _introduction(job, processes, source, held_out, checkpoints)
        print_plain(console, *introduction)
        watch = stack.enter_context(_progress(job, training, folder, console))
        stop = stack.enter_context(_stop_signals(processes))
        trained = fit(
            classifier,
            source,
            job.plan,
            held_out=held_out,
            processes=processes,
            precision=job.precision,
            compiled=job.compiled,
            checkpoints=checkpoints,
            checkpoint_seconds=training.checkpoint_seconds,
            watch=watch,
            stop=stop,
        )
    if folder is not None:
        _save(job, spec, classifier, trained, out)
        checkpoints.clear()
        print_plain(console, *_outcome(job, trained, out))


def _save(
    job: TrainingJob, spec: NetworkSpec, classifier: Classifier, trained: Trained, out: Path
) -> None:
    """Save the best epoch, then the last weights, which mark the training as finished."""
    last = copy_weights(classifier)
    for folder, weights in ((out / BEST, trained.best.weights), (out, last)):
        fit_state(classifier, weights, str(folder))
        save_model(
            folder,
            classifier.network,
            spec.preparation,
            job.class_names,
            mean=spec.mean,
            std=spec.std,
            described=(job.network.network, job.network.arguments),
        )


@dataclass(frozen=True)
class TrainingJob:
    """The images, the initial network and the settings of a training, checked to fit."""

    network: InitialNetwork
    images: ImageSet
    class_names: tuple[str, ...] | None
    num_classes: int
    plan: Plan
    precision: TrainingPrecision
    compiled: bool
    config: Config
    """The content of training.json."""


def prepare_training(
    request: TrainingRequest,
    out: Path,
    processes: Processes,
    console: Console,
) -> TrainingJob:
    """Load the images and the initial network, and check that they fit."""
    start, data, training = request.start, request.data, request.training
    with Downloads(console) as report:
        limited = start.preparation(Preparation())
        stored = data.load(dataclasses.replace(limited, resize=None, crop=None), report=report)
    check_classes(stored.labels)
    num_classes = len(stored.class_names) if stored.class_names else _count_classes(stored)
    network = start.load(num_classes, len(stored[0][0]), training.seed)
    names = stored.class_names or network.spec.class_names
    if set(network.spec.class_names or ()) == set(names or ()):
        names = network.spec.class_names  # the last layer has its classes in that order
    frame = framed(network.spec.preparation)
    if start.channels is None and frame.channels == 1:
        # A colour image among grey ones would lose its colours: it is refused instead.
        frame = dataclasses.replace(frame, channels=None)
    images = data.load(frame, num_classes, names)
    _check_unseen(start, images, training)
    plan = _plan(network, images, request.smoothing, training)
    on_gpu = processes.device.type == "cuda"
    precision: TrainingPrecision = plan.recipe.precision if on_gpu else "float32"
    if training.precision != "auto":
        precision = training.precision
    compiled = plan.recipe.compile and on_gpu
    if training.compile != "auto":
        compiled = training.compile == "yes"
    environment: Config = {
        "version": __version__,
        "torch": str(torch.__version__),
        "device": device_name(processes.device),
        "processes": processes.count,
        "compiled": compiled,
    }
    plugins = plugin_digests(request.smoothing.deformation)
    config: Config = {"plugins": plugins} if plugins else {}
    spec = network.spec
    config |= {
        "command": "train",
        "model": network.about
        | {
            "mean": None if spec.mean is None else list(spec.mean),
            "std": None if spec.std is None else list(spec.std),
        },
        "preparation": spec.preparation.to_config(),
        "data": {key: value for key, value in images.about.items() if key != "source"}
        | {"hold_out": training.hold_out},
        **plan.to_config(),
        "precision": precision,
        "options": plain_options(start)
        | plain_options(data)
        | plain_options(request.smoothing)
        | {RELATIVE_TO: start_of(out)},
        "environment": environment,
    }
    return TrainingJob(network, images, names, num_classes, plan, precision, compiled, config)


def _plan(
    network: InitialNetwork,
    images: ImageSet,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
) -> Plan:
    first = images[0][0]
    frame = (first.shape[1], first.shape[2])
    size = network.spec.preparation.crop or frame
    kept = round(len(images) * (1 - training.hold_out))
    recipe = training.recipe_for(pretrained=network.pretrained, images=kept)
    if training.augment == "auto":
        augmentation = fitting_augmentation(images.name, frame, size)
    else:
        augmentation = parse_augmentation(training.augment, size)
    deformation = parse_deformation(smoothing.deformation)
    noise = parse_noise(smoothing.noise, deformation.space(size))
    return Plan(deformation, noise, recipe, augmentation, smoothing.padding, training.seed)


def _count_classes(images: ImageSet) -> int:
    """Return the number of classes where labels are numbers and have no names."""
    count, distinct = max(images.labels) + 1, len(set(images.labels))
    if count > max(_MAX_EMPTY_CLASSES, 2 * distinct):
        raise InputError(
            "the largest label",
            count - 1,
            f"must be near the number of classes, of which there are images of {distinct}",
            "number them 0, 1, 2, … or give them names",
        )
    return count


def _check_unseen(start: StartOptions, images: ImageSet, training: TrainingOptions) -> None:
    """Raise if the initial network was trained on images that are to be held out."""
    trained = find_trained(start.model, start.weights)
    digest = str(images.about["sha256"])
    if not training.hold_out or trained is None or trained.seen.get("sha256") != digest:
        return
    if trained.held_out != HeldOut(training.hold_out, training.seed, digest):
        raise InputError(
            "the images to hold out",
            f"known to the network in {trained.folder}",
            "must be images that it was not trained on",
            "begin with a network that was trained with the same hold-out and seed",
        )


def _introduction(
    job: TrainingJob,
    processes: Processes,
    source: Source,
    held_out: Source | None,
    checkpoints: Checkpoints,
) -> list[str]:
    """Describe the training that is about to begin, in lines."""
    recipe, plan, network = job.plan.recipe, job.plan, job.network
    space = plan.deformation.space(plan.augmentation.size or source.size)
    parameters = sum(p.numel() for p in network.spec.module.parameters())
    origin = "from pretrained ones" if network.pretrained else "from scratch"
    names = job.class_names or tuple(map(str, range(job.num_classes)))
    classes = f"{job.num_classes} classes: {', '.join(names[:_NAMES_SHOWN])}"
    classes += ", …" if len(names) > _NAMES_SHOWN else ""
    empty = job.num_classes - len(set(job.images.labels))
    batch = min(recipe.batch_size, len(source))
    steps = len(source) // batch
    lines = [
        f"{network.network}, {parameters:,} weights, {origin}",
        f"{source.description}; augmentation {plan.augmentation.spec}",
        classes + (f"; {empty} of them without images" if empty else ""),
        f"{plan.noise.describe(space)} on {plan.deformation}",
        f"epochs: {recipe.epochs}, of {steps} steps with {batch} images, learning rate "
        f"{recipe.learning_rate:.3g}; {job.precision}, "
        f"{'compiled' if job.compiled else 'not compiled'}, on {processes.device}"
        + (f" in {processes.count} processes" if processes.count > 1 else ""),
    ]
    if held_out is not None:
        lines.append(f"{len(held_out):,} images held out")
    begun = checkpoints.step()
    if begun:
        lines.append(f"resuming after {begun / steps:.1f} epochs")
    return lines


@contextmanager
def _progress(
    job: TrainingJob, training: TrainingOptions, folder: TrainingFolder | None, console: Console
) -> Iterator[Watch]:
    """Show a progress bar with loss and accuracy, and store epochs and TensorBoard curves."""
    epochs = job.plan.recipe.epochs
    with ExitStack() as stack:
        board = None
        if folder is not None and training.tensorboard:
            if importlib.util.find_spec("tensorboard") is None:
                hint = f"no TensorBoard files: {install_command('tensorboard')}"
                print_plain(console, hint)
            else:
                board = stack.enter_context(closing(_Board(below(folder.path, TENSORBOARD))))
        advance = stack.enter_context(step(console, "training, epochs", epochs))

        def watch(moment: Moment) -> None:
            held_out = (moment.record or {}).get("held_out_accuracy")
            words = f"loss {moment.loss:.3f}, {_percent(moment.accuracy)} correct under noise"
            words += f", held out {_percent(held_out)}" if isinstance(held_out, float) else ""
            advance(epochs * moment.step / moment.steps, words)
            if board is not None:
                board.add(moment)
            if folder is not None and moment.record is not None:
                folder.add_epoch(moment.record)

        yield watch


class _Board:
    """The curves of a training for TensorBoard: `tensorboard --logdir runs`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def add(self, moment: Moment) -> None:
        """Add a point to every curve; the first one drops what an earlier process wrote beyond."""
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


def _outcome(job: TrainingJob, trained: Trained, out: Path) -> list[str]:
    """Describe a finished training, in lines."""
    first, last, best = trained.history[0], trained.history[-1], trained.best
    seconds = sum(_number(record, "seconds") for record in trained.history)
    startup = _number(first, "first_step_seconds") if first["epoch"] == 1 else 0.0
    loss = _number(last, "loss")
    lines = [
        f"trained in {seconds:.1f} s, of which {startup:.1f} s until the first step was done",
        f"last epoch: loss {loss:.3f}, {_percent(_number(last, 'accuracy'))} correct under noise",
        f"best epoch: {best.epoch}, {_percent(best.accuracy)}, in {out / BEST}",
    ]
    if loss > 2 * math.log(job.num_classes):
        lines.append("note: the loss is far above that of guessing; try a lower --learning-rate")
    return lines


def _number(record: Config, key: str) -> float:
    value = record[key]
    assert isinstance(value, int | float)
    return float(value)


def _percent(share: float) -> str:
    return f"{format_down(100 * share, 1)} %"


@contextmanager
def _stop_signals(processes: Processes) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM came; a second one ends at once.

    Only the main thread receives signals; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received and processes.count == 1:  # torchrun may pass on what this one has received
            raise KeyboardInterrupt
        received = True

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command()
@data_option(required=True)
@start_options()
@smoothing_options(required=True)
@training_options()
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The run folder; a training that was interrupted there is resumed.",
)
def train(
    data: str,
    start: StartOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
) -> None:
    """Train a classifier under the noise that will certify it.

    Interrupt it at any time: the same command resumes it. To certify the result, name the folder:
    it stores its data, deformation and noise.

    \b
    Examples:
      deformrs train --data digits --model small_cnn --deformation rotation \\
          --noise uniform:54deg --epochs 20 --out runs/first
      deformrs certify --model runs/first --n 1000 --max 50 --radii 10deg,30deg
      deformrs train --data cifar10 --model resnet18 --deformation rotation \\
          --noise uniform:54deg --consistency 10 --out runs/cifar
      deformrs train --data photos/ --model resnet50 --pretrained --recipe paper \\
          --deformation translation --noise gaussian:20px --out runs/photos
    """
    request = TrainingRequest(start, DataOptions(data, "train"), smoothing, training)
    train_run(request, out)
    model = quoted(out)
    if ".py:" in start.model:  # code, which is not executed because a folder names it
        model = f"{quoted(start.model)} --weights {quoted(out / WEIGHTS)}"
    if os.environ.get("RANK", "0") == "0":
        trained, images = find_trained(str(out)), ""
        if trained is not None and trained.split != "train":  # there are no test images
            unseen = " --data DIR  (of images that it was not trained on)"
            images = " --split held-out" if trained.held_out else unseen
        echo("", f"next: deformrs certify --model {model} --n 1000{images}")
    if started_processes() > 1:
        end_process(0)
