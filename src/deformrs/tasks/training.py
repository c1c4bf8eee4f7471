"""A whole training on the terminal: made ready, trained, saved."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path

import torch
from rich.console import Console

from deformrs.compiling import fastest_convolutions
from deformrs.models import BuiltModel, save_model
from deformrs.models.classifier import Classifier
from deformrs.models.weights import fit_state
from deformrs.progress import Downloads, step
from deformrs.splitting import Places, split
from deformrs.tasks.options import DataOptions, SmoothingOptions, chosen_device
from deformrs.tasks.training_jobs import TrainingJob, check_answers, prepare_training
from deformrs.tasks.training_options import StartOptions, TrainingOptions
from deformrs.tasks.training_shown import asked_to_stop, beginning, outcome, shown
from deformrs.training.checkpoints import Checkpoints, copied
from deformrs.training.fabric import open_processes
from deformrs.training.folder import BEST, CHECKPOINTS, TrainingFolder, is_finished
from deformrs.training.loop import fit
from deformrs.training.normalisation import normalisation_of
from deformrs.training.pictures import Source, source_for
from deformrs.training.plan import Trained
from deformrs.training.processes import Processes


def train_run(
    start: StartOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
    console: Console,
) -> None:
    """Train into the folder `out`, or go on with what was begun there.

    A training that is finished with the same settings is left as it is.
    """
    device = chosen_device(training.device)
    opening = open_processes(device, training.devices, training.nodes, training.strategy)
    with opening as processes, fastest_convolutions():
        if processes.rank:
            console = Console(quiet=True)
            processes.wait()  # until what is downloaded is there
        with Downloads(console) as fetched:
            job = prepare_training(start, data, smoothing, training, out, processes, fetched)
        if not processes.rank:
            processes.wait()
        opened = nullcontext() if processes.rank else TrainingFolder.open(out, job.config)
        with opened as folder:
            processes.wait()  # the folder is checked by now
            if is_finished(out):
                console.print(f"trained already: {out}", markup=False, soft_wrap=True)
                Checkpoints(out / CHECKPOINTS).clear()
                return
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
    labels = job.pictures.labels
    seen, unseen = split(labels, training.hold_out, training.seed)
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
        stop = opened.enter_context(asked_to_stop())
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


def _normalising(job: TrainingJob, seen: Places) -> BuiltModel:
    """The network with its mean and deviation: its own, those asked for, or those of the data."""
    built = job.start.built
    if built.mean is not None or job.start.normalises:
        return built
    mean, std = normalisation_of(job.pictures, seen)
    return dataclasses.replace(built, mean=mean, std=std)


def _classifier(built: BuiltModel, device: torch.device) -> Classifier:
    """The network behind its normalisation, as it will be certified."""
    classifier = Classifier(built, torch.float32).to(device)
    if built.channels_last:
        classifier.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier


def _source(
    job: TrainingJob,
    indices: Places,
    training: TrainingOptions,
    processes: Processes,
    console: Console,
) -> AbstractContextManager[Source]:
    """The pictures of these places, for as long as they are needed."""
    with step(console, "reading pictures", len(indices)) as advance:
        source = source_for(
            job.pictures,
            indices,
            processes.device,
            num_classes=job.num_classes,
            hold=training.hold,
            workers=training.workers,
            looked=lambda count: advance(count, ""),
        )
    return closing(source)


def _save(
    job: TrainingJob, built: BuiltModel, classifier: Classifier, trained: Trained, out: Path
) -> None:
    """The best epoch first, the last weights last: with them the training counts as finished."""
    last = copied(classifier)
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
