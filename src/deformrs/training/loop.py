"""The training loop: a batch under noise, forward, backward, step; look, keep, go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from deformrs.config import Config
from deformrs.errors import InputError, ModelError
from deformrs.execution import scores_of
from deformrs.training.batches import NoisyBatches, network_randomness
from deformrs.training.checkpoints import Best, Checkpoints, Snapshot, copied, momentum_of, restore
from deformrs.training.distributed import Alone, Processes
from deformrs.training.images import Source
from deformrs.training.recipes import Moment, Plan, Recipe, Trained, TrainingPrecision

START = 1 / 25
"""The share of the peak at which one cycle begins."""


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0.

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
        return recipe.learning_rate * (START + (1 - START) * step / rising)
    falling = (step - rising) / (total - rising)
    return recipe.learning_rate * (1 + math.cos(math.pi * falling)) / 2


Forward = Callable[[Tensor], Tensor]


def execution(
    model: nn.Module,
    optimizer: Optimizer,
    processes: Processes,
    precision: TrainingPrecision,
    *,
    compiled: bool,
) -> tuple[Forward, Optimizer]:
    """What to call in place of the model, and what to step with in place of the optimizer.

    Compiled and alone on a GPU, the network runs as CUDA graphs: to launch its kernels one by one
    takes the processor longer than the GPU computes.
    """
    if not compiled:
        forward, stepped = processes.prepare(model, optimizer)
        return in_precision(forward, processes.device, precision), stepped
    graphs = processes.count == 1 and processes.device.type == "cuda"
    module = torch.compile(model, mode="reduce-overhead" if graphs else "default")
    assert isinstance(module, nn.Module)
    forward, stepped = processes.prepare(module, optimizer)
    forward = in_precision(forward, processes.device, precision)
    return _marked(forward) if graphs else forward, stepped


def in_precision(forward: Forward, device: torch.device, precision: TrainingPrecision) -> Forward:
    """The same in bfloat16 where that is asked for; weights and their updates stay in float32."""
    if precision == "float32":
        return forward

    def call(images: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return forward(images)

    return call


def _marked(forward: Forward) -> Forward:
    """Tell CUDA graphs where a step begins: what the last one returned may be overwritten then."""

    def call(images: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return forward(images)

    return call


SECONDS_BETWEEN_LOOKS = 0.5
STEPS_BETWEEN_LOOKS = 10
"""Where several processes must look at the same moment."""

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
    """Train `model`, which lies on the device of `processes`, and leave it in evaluation mode.

    The best epoch is that of the highest accuracy under noise, on `held_out` if there are such
    images, else on those it was trained with. A checkpoint that is there is taken up. `stop` is
    asked after every step: where it says yes a checkpoint is written, and KeyboardInterrupt raised.

    Guarantee: on one CPU the weights are the same however often training was stopped on the way.
    """
    processes = processes or Alone(torch.device("cpu"))
    training = _Training(model, source, plan, held_out, processes, precision)
    if checkpoints is not None:
        training.resume(checkpoints)
    training.run(compiled, checkpoints, checkpoint_seconds, watch, stop)
    assert training.best is not None
    return Trained(training.best, training.history)


class _Training:
    """What a training carries from step to step."""

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        plan: Plan,
        held_out: Source | None,
        processes: Processes,
        precision: TrainingPrecision,
    ) -> None:
        self.model, self.plan, self.held_out = model, plan, held_out
        self.processes, self.precision = processes, precision
        self.batches = NoisyBatches(source, plan, processes)
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.steps = plan.recipe.epochs * self.steps_per_epoch
        self.objective = plan.recipe.objective
        self.optimizer = torch.optim.SGD(
            model.parameters(),
            lr=plan.recipe.learning_rate,
            momentum=plan.recipe.momentum,
            nesterov=plan.recipe.nesterov,
            weight_decay=plan.recipe.weight_decay,
            fused=processes.device.type == "cuda",
        )
        self.step = 0
        self.sums = torch.zeros(2, dtype=torch.float64, device=processes.device)
        """Of the epoch so far: the loss, and the share that was right, of every step."""
        self.history: list[Config] = []
        self.best: Best | None = None

    def run(
        self,
        compiled: bool,
        checkpoints: Checkpoints | None,
        checkpoint_seconds: float,
        watch: Watch | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        forward, optimizer = execution(
            self.model, self.optimizer, self.processes, self.precision, compiled=compiled
        )
        alone = self.processes.count == 1
        asked_to_stop = stop or (lambda: False)
        self.model.train()
        saved = looked = time.monotonic()
        while self.step < self.steps:
            epoch, done = divmod(self.step, self.steps_per_epoch)
            began = ready = time.monotonic()
            for place, (images, labels) in enumerate(self.batches.epoch(epoch, done)):
                self._step(forward, optimizer, images, labels)
                if place == 0:
                    ready = self._warm()
                ended = self.step % self.steps_per_epoch == 0
                if not ended and asked_to_stop():
                    if checkpoints and alone:
                        self._save(checkpoints)
                    raise KeyboardInterrupt
                if not ended and self._look(looked):
                    looked = time.monotonic()
                    moment = self._moment(epoch)
                    if watch is not None:
                        watch(moment)
                    # Several processes keep only whole epochs: each knows its own part of one.
                    if checkpoints and alone and looked - saved > checkpoint_seconds:
                        saved = self._save(checkpoints)
            moment = self._end_epoch(epoch, began, ready)
            if watch is not None:
                watch(moment)
            late = time.monotonic() - saved > checkpoint_seconds
            stopped = self.step < self.steps and asked_to_stop()
            if checkpoints and (late or stopped or self.step == self.steps or not alone):
                saved = self._save(checkpoints)
            if stopped:
                raise KeyboardInterrupt
        self.model.eval()

    def resume(self, checkpoints: Checkpoints) -> None:
        """Go back to where a checkpoint was written, if there is one."""
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

    def _step(
        self,
        forward: Forward,
        optimizer: torch.optim.Optimizer,
        images: Tensor,
        labels: Tensor,
    ) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.plan.recipe, self.step, self.steps_per_epoch)
        number = self.step * self.processes.count + self.processes.rank
        with network_randomness(self.plan.seed, number, self.processes.device):
            scores = scores_of(forward, images)
        loss = self.objective(scores, labels)
        optimizer.zero_grad(set_to_none=True)
        self.processes.backward(loss)
        optimizer.step()
        right = scores.detach().argmax(dim=1).view(-1, len(labels)) == labels
        # They stay on the device: looking at them would make it wait.
        self.sums += torch.stack((loss.detach().double(), right.double().mean()))
        self.step += 1

    def _warm(self) -> float:
        """When the first step was done, which compiles; later ones are not waited for."""
        if not self.history and self.processes.device.type == "cuda":
            torch.cuda.synchronize(self.processes.device)
        return time.monotonic()

    def _look(self, looked: float) -> bool:
        """Is it time to look at loss and accuracy? Several processes must agree on it."""
        if self.processes.count > 1:
            return self.step % STEPS_BETWEEN_LOOKS == 0
        return time.monotonic() - looked > SECONDS_BETWEEN_LOOKS

    def _moment(self, epoch: int) -> Moment:
        parts = (self.step - epoch * self.steps_per_epoch) * self.processes.count
        loss, right = (self.processes.total(self.sums.clone()) / parts).tolist()
        if not abs(loss) < float("inf"):  # neither infinite nor NaN
            raise _diverged(f"the loss in epoch {epoch + 1}", loss)
        return Moment(self.step, self.steps, epoch + 1, loss, right)

    def _end_epoch(self, epoch: int, began: float, ready: float) -> Moment:
        """Look back on an epoch, and keep the weights if there was no better one."""
        moment = self._moment(epoch)
        record: Config = {
            "epoch": moment.epoch,
            "loss": moment.loss,
            "accuracy": moment.accuracy,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "seconds": round(time.monotonic() - began, 3),
            "first_step_seconds": round(ready - began, 3),
        }
        accuracy = moment.accuracy
        if self.held_out is not None:
            accuracy = record["held_out_accuracy"] = self._accuracy_on(self.held_out)
        self.history.append(record)
        self.sums.zero_()
        # Of equals the later one: it was trained longer.
        if self.best is None or accuracy >= self.best.accuracy:
            self.best = Best(moment.epoch, accuracy, copied(self.model))
        return Moment(self.step, self.steps, moment.epoch, moment.loss, moment.accuracy, record)

    @torch.no_grad()
    def _accuracy_on(self, held_out: Source) -> float:
        """Under noise; every process looks at all of it."""
        self.model.eval()
        forward = in_precision(self.model, self.processes.device, self.precision)
        hits = torch.zeros((), dtype=torch.int64, device=self.processes.device)
        for images, labels in self.batches.still(held_out):
            hits += (forward(images).argmax(dim=1) == labels).sum()
        self.model.train()
        return int(hits) / len(held_out)

    def _save(self, checkpoints: Checkpoints) -> float:
        """Write a checkpoint, never one that is broken; returns when."""
        weights = copied(self.model)
        for name, value in weights.items():
            if not bool(value.isfinite().all()):
                raise _diverged(f"the weight {name} after step {self.step}", "not finite")
        if self.processes.rank == 0:
            loss, right = self.sums.tolist()
            momentum = momentum_of(self.model, self.optimizer)
            checkpoints.write(
                Snapshot(self.step, weights, momentum, (loss, right), self.history, self.best)
            )
        return time.monotonic()


def _diverged(name: str, value: object) -> ModelError:
    return ModelError(
        name,
        value,
        "must be a finite number",
        "train with a lower learning rate, in another folder; nothing bad was written to this one",
    )
