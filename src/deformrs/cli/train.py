"""`deformrs train`."""

from __future__ import annotations

import dataclasses
import os
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch
from rich.console import Console

from deformrs.cli.options import (
    DataOptions,
    SmoothingOptions,
    StartOptions,
    TrainingOptions,
    chosen_device,
    smoothing_options,
    start_options,
    training_options,
)
from deformrs.cli.progress import Downloads, step
from deformrs.cli.training import (
    TrainingJob,
    asked_to_stop,
    beginning,
    check_answers,
    outcome,
    prepare_training,
    shown,
)
from deformrs.data.image_set import Indices, stratified_split
from deformrs.errors import InputError
from deformrs.execution import fastest_convolutions
from deformrs.models import NetworkSpec, save_model
from deformrs.models.types import Classifier
from deformrs.models.weights import fit_state
from deformrs.training.api import normalisation_of
from deformrs.training.checkpoints import Checkpoints, copy_weights
from deformrs.training.distributed import Processes, launch, open_processes, started_processes
from deformrs.training.images import Source, source_for
from deformrs.training.loop import Trained, fit
from deformrs.training.output import BEST, CHECKPOINTS, TrainingFolder, is_finished

if TYPE_CHECKING:
    from deformrs.cli.options import SmoothingOptions


def train_run(
    start: StartOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
    console: Console,
) -> None:
    """Train into the folder `out`, or resume what was begun there.

    A training that is finished with the same settings is left as it is. With several devices each
    gets a process; if torchrun has started them already, this is one of them.
    """
    count = started_processes()
    if training.devices > 1 and count == 1:
        arguments = (start, data, smoothing, training, out)
        launch(training.devices, training.device, _train_process, *arguments)
    elif training.devices in (1, count):
        _train_process(start, data, smoothing, training, out, console)
    else:
        raise InputError(
            "--devices",
            training.devices,
            f"must agree with torchrun, which has started {count} processes",
            "leave it out",
        )


def _train_process(
    start: StartOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
    console: Console | None = None,
) -> None:
    """Train in this process, which may be one of several: only the first one prints and writes."""
    with open_processes(chosen_device(training.device)) as processes, fastest_convolutions():
        if processes.rank or console is None:
            console = Console(highlight=False, quiet=processes.rank > 0)
        if processes.rank:
            processes.wait()  # until the first process has downloaded the data
        with Downloads(console) as fetched:
            job = prepare_training(start, data, smoothing, training, out, processes, fetched)
        if not processes.rank:
            processes.wait()
        opened = nullcontext() if processes.rank else TrainingFolder.open(out, job.config)
        with opened as folder:
            processes.wait()  # until the folder is checked
            if is_finished(out):
                console.print(f"trained already: {out}", markup=False, soft_wrap=True)
                Checkpoints(out / CHECKPOINTS).clear()
            else:
                _train(job, training, processes, out, folder, console)
            processes.wait()


def _train(
    job: TrainingJob,
    training: TrainingOptions,
    processes: Processes,
    out: Path,
    folder: TrainingFolder | None,
    console: Console,
) -> None:
    """One go at it. `folder` is None in the processes that do not write."""
    labels = job.images.labels
    seen, unseen = stratified_split(labels, training.hold_out, training.seed)
    check_answers(job)
    built = _normalising(job, seen)
    classifier = _classifier(built, processes.device)
    checkpoints = Checkpoints(out / CHECKPOINTS)
    with ExitStack() as opened:
        source = opened.enter_context(_source(job, seen, training, processes, console))
        held_out = None
        if len(unseen):
            held_out = opened.enter_context(_source(job, unseen, training, processes, console))
        for line in beginning(job, processes, source, held_out, checkpoints):
            console.print(line, markup=False, soft_wrap=True)
        watch = opened.enter_context(shown(job, training, folder, console))
        stop = opened.enter_context(asked_to_stop(processes))
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
        _save(job, built, classifier, trained, out)
        checkpoints.clear()
        for line in outcome(job, trained, out):
            console.print(line, markup=False, soft_wrap=True)


def _normalising(job: TrainingJob, seen: Indices) -> NetworkSpec:
    """The network with its mean and deviation: its own, those asked for, or those of the data."""
    built = job.start.spec
    if built.mean is not None or job.start.normalises:
        return built
    mean, std = normalisation_of(job.images, seen)
    return dataclasses.replace(built, mean=mean, std=std)


def _classifier(built: NetworkSpec, device: torch.device) -> Classifier:
    """The network behind its normalisation, as it will be certified."""
    classifier = Classifier(built, torch.float32).to(device)
    if built.channels_last:
        classifier.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier


def _source(
    job: TrainingJob,
    indices: Indices,
    training: TrainingOptions,
    processes: Processes,
    console: Console,
) -> AbstractContextManager[Source]:
    """The images of these places, for as long as they are needed."""
    with step(console, "reading images", len(indices)) as advance:
        source = source_for(
            job.images,
            indices,
            processes.device,
            num_classes=job.num_classes,
            hold=training.hold,
            workers=training.workers,
            looked=lambda count: advance(count, ""),
        )
    return closing(source)


def _save(
    job: TrainingJob, built: NetworkSpec, classifier: Classifier, trained: Trained, out: Path
) -> None:
    """The best epoch first, the last weights last: with them the training counts as finished."""
    last = copy_weights(classifier)
    for folder, weights in ((out / BEST, trained.best.weights), (out, last)):
        fit_state(classifier, weights, str(folder))
        save_model(
            folder,
            classifier.network,
            job.preparation,
            job.class_names,
            mean=built.mean,
            std=built.std,
            described=(job.start.network, job.start.arguments),
        )


@click.command()
@click.option(
    "--data",
    required=True,
    help="digits, mnist, cifar10 (mnist:FOLDER where they lie), a folder of class folders, "
    "a folder with labels.csv, or pictures.npz.",
)
@click.option("--data-root", help="Where downloads are kept.  [$DEFORMRS_DATA]")
@start_options(required=True)
@smoothing_options(required=True)
@training_options()
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The run folder; a training that was stopped there is taken up.",
)
def train(
    data: str,
    data_root: str | None,
    start: StartOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
) -> None:
    """Train a classifier under the noise it will be certified with.

    Interrupt it as you like: the same command goes on where it stopped. Then certify it: the
    folder knows its data, deformation and noise.

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
    console = Console(highlight=False, quiet=os.environ.get("RANK", "0") != "0")
    train_run(start, DataOptions(data, "train", data_root), smoothing, training, out, console)
    trained = str(out)
    if ".py:" in start.model:  # code, which is not executed because a folder names it
        trained = f"{start.model} --weights {out / 'model.safetensors'}"
    console.print(f"\nnext: deformrs certify --model {trained} --n 1000", soft_wrap=True)
