"""The training loop: noisy batches, forward, backward, step; reports and checkpoints in between."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from deformrs.config import Config
from deformrs.errors import InputError, ModelError
from deformrs.execution import scores_of
from deformrs.training.batches import NoisyBatches, network_randomness
from deformrs.training.checkpoints import (
    Best,
    Checkpoints,
    Snapshot,
    copy_weights,
    momentum_of,
    restore,
)
from deformrs.training.distributed import Processes
from deformrs.training.images import Source
from deformrs.training.recipes import Plan, Recipe, TrainingPrecision

INITIAL_SHARE = 1 / 25
"""The share of the peak learning rate at which one cycle begins."""
SECONDS_BETWEEN_REPORTS = 0.5
STEPS_BETWEEN_REPORTS = 10
"""With several processes, which must report at the same step."""


@dataclass(frozen=True)
class Moment:
    """The state of a training. Loss and accuracy are of the epoch so far, under noise.

    `record` is what is stored of an epoch, at the moment it ends.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    accuracy: float
    record: Config | None = None


@dataclass(frozen=True)
class Trained:
    """The result of a training: the best epoch's weights, and a record of every epoch.

    The network itself holds the weights of the last epoch.
    """

    best: Best
    history: list[Config]


Forward = Callable[[Tensor], Tensor]
Watch = Callable[[Moment], None]


def fit(
    model: nn.Module,
    source: Source,
    plan: Plan,
    *,
    held_out: Source | None = None,
    processes: Processes | None = None,
    precision: TrainingPrecision = "float32",
    compiled: bool = False,
    checkpoints: Checkpoints | None = None,
    checkpoint_seconds: float = 60.0,
    watch: Watch | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trained:
    """Train `model`, which is on the device of `processes`, and leave it in evaluation mode.

    The best epoch has the highest accuracy under noise, on `held_out` if given, else on the
    training images. An existing checkpoint is resumed. When `stop` returns true, a checkpoint is
    written and KeyboardInterrupt raised.

    Guarantee: on one CPU the weights are the same however often training is stopped and resumed.
    """
    processes = processes or Processes(torch.device("cpu"))
    recipe, objective = plan.recipe, plan.recipe.objective
    batches = NoisyBatches(source, plan, processes)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
        fused=processes.device.type == "cuda",
    )
    run = _Run(model, optimizer, processes, recipe.epochs, batches.steps_per_epoch)
    if checkpoints is not None:
        run.resume(checkpoints)
    forward = training_forward(model, processes, precision, compiled=compiled)

    model.train()
    saved = reported = time.monotonic()
    while run.step < run.steps:
        epoch, done = divmod(run.step, run.steps_per_epoch)
        run.begin_epoch()
        for images, labels in batches.epoch(epoch, skip=done):
            optimizer.param_groups[0]["lr"] = learning_rate(recipe, run.step, run.steps_per_epoch)
            number = run.step * processes.count + processes.rank
            with network_randomness(plan.seed, number, processes.device):
                logits = scores_of(forward, images)
            loss = objective(logits, labels)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
            run.end_step(loss, logits, labels)

            stopped = stop is not None and stop()
            ended = run.step % run.steps_per_epoch == 0
            if processes.count > 1:  # they must agree without a message in every step
                due = run.step % STEPS_BETWEEN_REPORTS == 0
            else:
                due = stopped or time.monotonic() - reported > SECONDS_BETWEEN_REPORTS
            if not (ended or due):
                continue

            moment = run.moment()
            if ended:
                record = run.record(moment)
                if held_out is not None:
                    accuracy = accuracy_under_noise(model, batches, held_out, processes, precision)
                    record["held_out_accuracy"] = accuracy
                moment = run.end_epoch(moment, record)
            if watch is not None:
                watch(moment)
            reported = time.monotonic()
            stopped, late = processes.any(stopped, reported - saved > checkpoint_seconds)
            finished = run.step == run.steps
            if checkpoints is not None and (stopped or late or finished):
                run.save(checkpoints)
                saved = time.monotonic()
            if stopped and not finished:
                raise KeyboardInterrupt
    model.eval()
    assert run.best is not None
    return Trained(run.best, run.history)


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0.

    >>> from deformrs.training.recipes import read_recipe
    >>> [round(learning_rate(read_recipe("paper"), 100 * e, 100), 6) for e in (0, 29, 30, 60)]
    [0.1, 0.1, 0.01, 0.001]
    """
    if recipe.schedule == "steps":
        passed = sum(step >= epoch * steps_per_epoch for epoch in recipe.steps)
        return float(recipe.learning_rate * recipe.decay**passed)
    total = recipe.epochs * steps_per_epoch
    rising = recipe.warmup * total
    if step < rising:
        return recipe.learning_rate * (INITIAL_SHARE + (1 - INITIAL_SHARE) * step / rising)
    falling = (step - rising) / (total - rising)
    return recipe.learning_rate * (1 + math.cos(math.pi * falling)) / 2


def training_forward(
    model: nn.Module, processes: Processes, precision: TrainingPrecision, *, compiled: bool
) -> Forward:
    """Return the function that a step calls in place of the model.

    Compiled and alone on a GPU, the network runs as CUDA graphs: launching its kernels one by one
    takes the processor longer than the GPU computes.
    """
    if not compiled:
        return in_precision(processes.wrap(model, model), processes.device, precision)
    graphs = processes.count == 1 and processes.device.type == "cuda"
    module = torch.compile(model, mode="reduce-overhead" if graphs else "default")
    assert isinstance(module, nn.Module)
    # The compiled model is wrapped, not the wrapper compiled: that would break the graph.
    forward = in_precision(processes.wrap(model, module), processes.device, precision)
    if not graphs:
        return forward

    def call(images: Tensor) -> Tensor:
        # CUDA graphs may overwrite what the last step returned from here on.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return forward(images)

    return call


def in_precision(forward: Forward, device: torch.device, precision: TrainingPrecision) -> Forward:
    """Return `forward` under autocast for bfloat16; weights and updates stay in float32."""
    if precision == "float32":
        return forward

    def call(images: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return forward(images)

    return call


@torch.no_grad()
def accuracy_under_noise(
    model: nn.Module,
    batches: NoisyBatches,
    held_out: Source,
    processes: Processes,
    precision: TrainingPrecision,
) -> float:
    """Return the accuracy on held-out images; every process computes all of it."""
    model.eval()
    forward = in_precision(model, processes.device, precision)
    hits = torch.zeros((), dtype=torch.int64, device=processes.device)
    for images, labels in batches.evaluation(held_out):
        hits += (forward(images).argmax(dim=1) == labels).sum()
    model.train()
    return int(hits) / len(held_out)


class _Run:
    """The state of a training: what a checkpoint stores, and the clock of the current epoch."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.SGD,
        processes: Processes,
        epochs: int,
        steps_per_epoch: int,
    ) -> None:
        self.model, self.optimizer, self.processes = model, optimizer, processes
        self.steps_per_epoch, self.steps = steps_per_epoch, epochs * steps_per_epoch
        self.step = 0
        self.sums = torch.zeros(2, dtype=torch.float64, device=processes.device)
        """Of the epoch so far: the loss and the accuracy of every step."""
        self.history: list[Config] = []
        self.best: Best | None = None

    def resume(self, checkpoints: Checkpoints) -> None:
        """Restore the state from a checkpoint, if there is one."""
        snapshot = checkpoints.read()
        if snapshot is None:
            return
        if snapshot.step > self.steps:
            raise InputError(
                f"the checkpoint in {checkpoints.folder}",
                f"of step {snapshot.step}",
                f"must be of at most {self.steps} steps",
                "remove that folder to begin again",
            )
        restore(snapshot, self.model, self.optimizer, str(checkpoints.folder))
        self.step, self.history, self.best = snapshot.step, snapshot.history, snapshot.best
        self.sums.copy_(torch.tensor(snapshot.sums, dtype=torch.float64))

    def save(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint, unless a weight is not finite: then raise."""
        weights = copy_weights(self.model)
        for name, value in weights.items():
            if not bool(value.isfinite().all()):
                raise _diverged(f"the weight {name} after step {self.step}", "not finite")
        loss, accuracy = (self.processes.total(self.sums) / self.processes.count).tolist()
        if self.processes.rank == 0:
            momentum = momentum_of(self.model, self.optimizer)
            checkpoints.write(
                Snapshot(self.step, weights, momentum, (loss, accuracy), self.history, self.best)
            )

    def begin_epoch(self) -> None:
        """Start the clock."""
        self._began = time.monotonic()
        self._first_step_seconds: float | None = None

    def end_step(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count a step."""
        hits = logits.detach().argmax(dim=1).view(-1, len(labels)) == labels
        # They stay on the device: reading them would wait for it.
        self.sums += torch.stack((loss.detach().double(), hits.double().mean()))
        self.step += 1
        if self._first_step_seconds is None:
            # The very first step compiles; later ones are not waited for.
            if not self.history and self.processes.device.type == "cuda":
                torch.cuda.synchronize(self.processes.device)
            self._first_step_seconds = time.monotonic() - self._began

    def moment(self) -> Moment:
        """Return the state of the epoch so far; a loss that is not finite raises."""
        epoch = (self.step - 1) // self.steps_per_epoch
        parts = (self.step - epoch * self.steps_per_epoch) * self.processes.count
        loss, accuracy = (self.processes.total(self.sums) / parts).tolist()
        if not math.isfinite(loss):
            raise _diverged(f"the loss in epoch {epoch + 1}", loss)
        return Moment(self.step, self.steps, epoch + 1, loss, accuracy)

    def record(self, moment: Moment) -> Config:
        """Return what is stored of an epoch."""
        return {
            "epoch": moment.epoch,
            "loss": moment.loss,
            "accuracy": moment.accuracy,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "seconds": round(time.monotonic() - self._began, 3),
            "first_step_seconds": round(self._first_step_seconds or 0.0, 3),
        }

    def end_epoch(self, moment: Moment, record: Config) -> Moment:
        """Add an epoch to the history, and keep its weights unless an earlier one was better."""
        self.history.append(record)
        self.sums.zero_()
        accuracy = record.get("held_out_accuracy", moment.accuracy)
        assert isinstance(accuracy, float)
        # Of equals the later one: it was trained longer.
        if self.best is None or accuracy >= self.best.accuracy:
            self.best = Best(moment.epoch, accuracy, copy_weights(self.model))
        return replace(moment, record=record)


def _diverged(name: str, value: object) -> ModelError:
    return ModelError(
        name,
        value,
        "must be a finite number",
        "train with a lower learning rate, in another folder; nothing bad was written to this one",
    )
