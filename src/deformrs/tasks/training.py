"""A whole training on the terminal: made ready, trained, saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from deformrs.config import Config
from deformrs.models import save_model
from deformrs.models.classifier import Classifier
from deformrs.models.weights import fit_state
from deformrs.progress import Downloads, step
from deformrs.rounding import format_down
from deformrs.tasks.board import Board, board_missing
from deformrs.tasks.options import DataOptions, SmoothingOptions, chosen_device
from deformrs.tasks.training_jobs import TrainingJob, check_answers, prepare_training
from deformrs.tasks.training_options import StartOptions, TrainingOptions
from deformrs.training.checkpoints import Checkpoints, copied
from deformrs.training.fabric import open_processes
from deformrs.training.folder import BEST, CHECKPOINTS, TrainingFolder, is_finished
from deformrs.training.loop import Watch, fit
from deformrs.training.normalisation import normalisation_of
from deformrs.training.pictures import Source, source_for
from deformrs.training.plan import Moment, Trained
from deformrs.training.processes import Processes
from deformrs.training.splitting import Places, split


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
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # all batches are of one size
    with open_processes(device, training.devices, training.nodes, training.strategy) as processes:
        if processes.rank:
            console = Console(quiet=True)
        if processes.rank:
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
    classifier = _classifier(job, seen, processes.device)
    checkpoints = Checkpoints(out / CHECKPOINTS)
    with ExitStack() as opened:
        source = opened.enter_context(_source(job, seen, training, processes, console))
        held_out = None
        if len(unseen):
            held_out = opened.enter_context(_source(job, unseen, training, processes, console))
        for line in _summary(job, processes, source, held_out):
            console.print(line, markup=False, soft_wrap=True)
        watch = opened.enter_context(_shown(job, training, folder, console))
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
        )
    if folder is not None:
        folder.write_epochs(trained.history)
        _save(job, classifier, trained, out)
        checkpoints.clear()
        for line in _outcome(trained, out):
            console.print(line, markup=False, soft_wrap=True)


def _classifier(job: TrainingJob, seen: Places, device: torch.device) -> Classifier:
    """The network behind its normalisation, as it will be certified."""
    built = job.start.built
    if built.mean is None and not job.start.normalises:
        mean, std = normalisation_of(job.pictures, seen)
        built = dataclasses.replace(built, mean=mean, std=std)
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


def _summary(
    job: TrainingJob, processes: Processes, source: Source, held_out: Source | None
) -> list[str]:
    """What is about to happen, a line each."""
    recipe, plan = job.plan.recipe, job.plan
    space = plan.deformation.space(plan.augmentation.size or source.size)
    parameters = sum(p.numel() for p in job.start.built.module.parameters())
    how = f"{job.precision}, {'compiled' if job.compiled else 'not compiled'}"
    machines = f" in {processes.count} processes" if processes.count > 1 else ""
    lines = [
        f"{job.start.network}, {parameters:,} weights, "
        + ("from pretrained ones" if job.start.pretrained else "from scratch"),
        f"{source.words}; augmentation {plan.augmentation.words}",
        f"{plan.noise.describe(space)} on {plan.deformation}",
        f"{recipe.epochs} epochs in batches of {min(recipe.batch_size, len(source))}, {how}, "
        f"on {processes.device}{machines}",
    ]
    return lines if held_out is None else [*lines, f"{len(held_out):,} pictures held out"]


@contextmanager
def _shown(
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

        yield watch


def _percent(share: float) -> str:
    return f"{format_down(100 * share, 1)} %"


def _save(job: TrainingJob, classifier: Classifier, trained: Trained, out: Path) -> None:
    """The best epoch first, the last weights last: with them the training counts as finished."""
    last = copied(classifier)
    for folder, weights in ((out / BEST, trained.best.weights), (out, last)):
        fit_state(classifier, weights, str(folder))
        save_model(
            folder,
            classifier.network,
            job.preparation,
            job.class_names,
            mean=_values(classifier.mean),
            std=_values(classifier.std),
            described=(job.start.network, job.start.arguments),
        )


def _values(column: Tensor | None) -> tuple[float, ...] | None:
    """Of a normalisation, as they were given: float32 holds their four digits."""
    return None if column is None else tuple(round(value, 6) for value in column.flatten().tolist())


def _outcome(trained: Trained, out: Path) -> list[str]:
    last, best = trained.history[-1], trained.best
    seconds, first = 0.0, 0.0
    for record in trained.history:
        seconds += _number(record, "seconds")
        first += _number(record, "first_step_seconds") if record["epoch"] == 1 else 0.0
    return [
        f"trained in {seconds:.1f} s, of which {first:.1f} s until the first step was done",
        f"last epoch: loss {_number(last, 'loss'):.3f}, "
        f"{_percent(_number(last, 'accuracy'))} right under noise",
        f"best epoch: {best.epoch}, {_percent(best.accuracy)}, in {out / BEST}",
    ]


def _number(record: Config, key: str) -> float:
    value = record[key]
    assert isinstance(value, int | float)
    return float(value)
