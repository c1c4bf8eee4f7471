"""What a training says: before it begins, while it goes, in the end; and how it is stopped."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from deformrs.config import Config
from deformrs.progress import step
from deformrs.rounding import format_down
from deformrs.tasks.board import Board, board_missing
from deformrs.tasks.training_jobs import TrainingJob
from deformrs.tasks.training_options import TrainingOptions
from deformrs.training.checkpoints import Checkpoints
from deformrs.training.folder import BEST, TrainingFolder
from deformrs.training.loop import Watch
from deformrs.training.pictures import Source
from deformrs.training.plan import Moment, Trained
from deformrs.training.processes import Processes

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
    parameters = sum(p.numel() for p in job.start.built.module.parameters())
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
        f"epochs: {recipe.epochs}, of {steps} steps with {batch} pictures, learning rate "
        f"{recipe.learning_rate:.3g}; {how}, on {processes.device}{machines}",
    ]
    if held_out is not None:
        lines.append(f"{len(held_out):,} pictures held out")
    begun = checkpoints.step()
    if begun:
        lines.append(f"going on after {begun / steps:.1f} epochs")
    return lines


def _classes(job: TrainingJob) -> str:
    """`10 classes: 0, 1, 2, 3, 4, …`, and how many of them no picture shows."""
    names = job.class_names or tuple(map(str, range(job.num_classes)))
    some = ", ".join(names[:_NAMES]) + (", …" if len(names) > _NAMES else "")
    empty = job.num_classes - len(set(job.pictures.labels))
    without = f"; {empty} of them without pictures" if empty else ""
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
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Was it interrupted, or told to end? A second time ends it at once.

    Only the main thread hears of signals; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
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
