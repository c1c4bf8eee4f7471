"""Sampling on Ray: pieces go to actors, on one machine or on many.

The driver is the process that was started. It alone writes the run folder; only counts come back
from the workers. A worker that dies costs the pieces it has, which are given to others.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pickle import PicklingError
from typing import Any, Literal

import torch

from deformrs import __version__
from deformrs.bars import Progress
from deformrs.checks import check_integer, is_real
from deformrs.config import Config
from deformrs.determinism import Difference
from deformrs.engines.actor import (
    Copy,
    Loader,
    Order,
    Place,
    Readiness,
    Report,
    actor_class,
    digests_of,
)
from deformrs.engines.engine import Engine, Outcome, Session, TallyOf, Work
from deformrs.errors import (
    DeformRSError,
    InputError,
    ModelError,
    ScarcityWarning,
    install_command,
    reason_of,
)
from deformrs.pieces import Piece
from deformrs.runs import Result
from deformrs.runs.folder import difference
from deformrs.smoothing import SmoothedClassifier

ATTEMPTS = 3
"""How often a piece may fail, on another worker each time where there is one."""

DEATHS = 6
"""How many workers may die while they sample a piece: machines come and go."""

PATIENCE = 3
"""The pieces that fail on a worker and succeed elsewhere, after which it gets no more. Also how
often it may die as it begins."""

MOST_GIVEN_UP = 10
"""The pieces that are given up before the run ends, if no other one succeeded."""

_COMPARED = 16
"""The images that a worker must find as the driver does, to read all of them itself."""

_IN_FLIGHT = 2
"""The pieces that a worker has at a time: one is sampled, the other waits for it."""

_SECONDS_BETWEEN_LOOKS = 5.0
"""The time after which the driver looks whether there is room for more workers."""

_SECONDS_OF_REST = 1.0
"""The time after which the driver asks whether a worker that died runs again."""

_SECONDS_UNTIL_NOTE = 30.0
"""The time without any worker after which the driver says what it waits for."""


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_SECONDS_TO_CONNECT = 5.0


@dataclass(frozen=True)
class RayEngine(Engine):
    """Samples the pieces of a run on Ray.

    `address` is that of a cluster ("auto" on one of its machines); None starts Ray on this machine.
    `workers` is their number; "auto" is one for each GPU, or for each core where there is none, and
    more as machines join. `gpus_per_worker` is 1 where there are GPUs. It may be a fraction.

    Each worker has a copy of the classifier on its own device. `load` makes one on the worker
    instead, for a model that is read from files there. Images of a folder are read by the workers
    where they find them; other images are sent.

    >>> RayEngine(workers=2)
    RayEngine(address=None, workers=2, gpus_per_worker=None, load=None)
    """

    address: str | None = None
    workers: int | Literal["auto"] = "auto"
    gpus_per_worker: float | None = None
    load: Loader | None = None

    def __post_init__(self) -> None:
        if self.workers != "auto":
            check_integer("the number of workers", self.workers, least=1)
        gpus = self.gpus_per_worker
        if gpus is not None and not (is_real(gpus) and gpus >= 0 and (gpus <= 1 or gpus % 1 == 0)):
            raise InputError(
                "the number of GPUs of a worker",
                repr(gpus),
                "must be at least 0, and an integer above 1",
                "e.g. 1, 0.5 for two workers on each GPU, or 0 for workers on CPUs",
            )

    def start(self, work: Work, classifier: SmoothedClassifier) -> Session:
        return _RaySession(self, work, classifier)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off Ctrl-C until the block ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _check_answers(address: str) -> None:
    """Raise OSError unless something listens there. Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()


def _import_ray() -> Any:
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        raise InputError(
            "the package ray",
            "not installed",
            "is needed for this engine",
            install_command("ray"),
        ) from None


@dataclass(eq=False)
class _Task:
    """A piece that is to be sampled."""

    indices: tuple[int, ...]
    tried: list[_Handle] = field(default_factory=list)
    """The workers on which it failed."""
    deaths: int = 0
    """How many workers died meanwhile."""


@dataclass(eq=False)
class _Handle:
    """A worker, as the driver sees it."""

    actor: Any
    name: str = "a worker"
    waits_for: Any = None
    """The reference to its versions or its readiness; None once it is ready, or rests."""
    stage: Literal["versions", "begin", "ready", "rests"] = "versions"
    rests_until: float = 0.0
    sees_images: bool = False
    tasks: deque[tuple[Any, _Task]] = field(default_factory=deque)
    failures: int = 0
    """The pieces that failed here and succeeded elsewhere."""
    deaths: int = 0
    """How often it died as it began, in a row."""


class _Queue:
    """The pieces that no worker has: those to be tried again first, then the others in order."""

    def __init__(self, pieces: Iterable[Sequence[int]]) -> None:
        self._source = (_Task(tuple(indices)) for indices in pieces)
        self._again: deque[_Task] = deque()
        self._next = next(self._source, None)

    def __bool__(self) -> bool:
        return bool(self._again) or self._next is not None

    def put_back(self, tasks: Iterable[_Task]) -> None:
        """Take back pieces that were not begun."""
        self._again.extendleft(reversed([*tasks]))

    def try_again(self, task: _Task) -> None:
        """Take back a piece that failed."""
        self._again.append(task)

    def take(self, handle: _Handle, handles: Sequence[_Handle]) -> _Task | None:
        """Return a piece for a worker; one that failed there only if all of them tried it."""
        for task in self._again:
            if handle not in task.tried or all(other in task.tried for other in handles):
                self._again.remove(task)
                return task
        following = self._next
        self._next = None if following is None else next(self._source, None)
        return following


class _RaySession(Session):
    def __init__(self, engine: RayEngine, work: Work, classifier: SmoothedClassifier) -> None:
        self._ray = _import_ray()
        self._engine, self._work = engine, work
        self._handles: list[_Handle] = []
        self._retired: list[tuple[_Handle, str, DeformRSError | None]] = []
        self._readiness: Readiness | None = None
        self._looked = -_SECONDS_BETWEEN_LOOKS
        self._busy = self._capacity = 0.0
        self._given_up = 0
        self._connected = False
        try:
            self._connect()
            self._gpus = self._gpus_of_a_worker()
            self._actors = self._ray.remote(actor_class()).options(
                num_cpus=1,
                num_gpus=self._gpus,
                max_restarts=-1,
                max_task_retries=0,
            )
            self._order = self._sent(self._order_for(classifier))
            self._wait_for_the_first()
        except BaseException:
            self.close()
            raise

    # -------------------------------------------------- the cluster

    def _connect(self) -> None:
        """Connect to the cluster, or start one, unless this process is connected already."""
        ray, engine = self._ray, self._engine
        if ray.is_initialized():
            if engine.address is None:
                return
            raise InputError(
                "the address",
                f"{engine.address!r}, while this process is connected to a Ray already",
                "must be left out then",
                "leave it out to use that one, or call ray.shutdown() before",
            )
        self._connected = True
        quiet = {"logging_level": "error", "log_to_driver": False}
        if engine.address is not None:
            address = engine.address
            if address not in ("auto", "local") and ":" not in address:
                address += ":6379"  # Ray's own port
            try:
                _check_answers(address)
                ray.init(address=address, **quiet)
            except (ConnectionError, ValueError, RuntimeError, OSError) as error:
                raise InputError(
                    "the address",
                    f"{engine.address!r}, where no Ray answers ({reason_of(error)[:200]})",
                    "must be that of a running cluster",
                    "ray start --head on one machine; then --address auto on it, or HOST:6379",
                ) from error
            return
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        wanted = engine.workers if isinstance(engine.workers, int) else 1
        with _uninterrupted():  # else some of Ray's processes would be left
            ray.init(
                address="local", num_cpus=max(cores or 1, wanted), include_dashboard=False, **quiet
            )

    def _gpus_of_a_worker(self) -> float:
        there = self._ray.cluster_resources().get("GPU", 0)
        if self._engine.gpus_per_worker is not None:
            return self._engine.gpus_per_worker
        return 1.0 if there else 0.0

    def _order_for(self, classifier: SmoothedClassifier) -> Order:
        work = self._work
        images = work.images if getattr(work.images, "reads_files", False) else None
        some = {work.index, *range(0, len(work.images), 1 + len(work.images) // _COMPARED)}
        return Order(
            replace(work, images=(), first=work.first.cpu()),
            self._engine.load or Copy.of(classifier),
            images,
            {} if images is None else digests_of(images, some, work.num_classes),
            threads=1,
        )

    def _sent(self, order: Order) -> Any:
        """Return the reference to an order that workers can fetch."""
        try:
            return self._ray.put(order)
        except (TypeError, AttributeError, RuntimeError, ValueError, PicklingError) as error:
            raise InputError(
                "the classifier",
                f"not to be copied to another process ({reason_of(error)[:200]})",
                "must be sent to the workers, with its model and deformation",
                "define them in a module, or let workers load them: RayEngine(load=...)",
            ) from error

    def _recruit(self) -> None:
        """Make more actors, if more are requested or fit the cluster."""
        if time.monotonic() - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked = time.monotonic()
        if isinstance(self._engine.workers, int):
            number = self._engine.workers
        else:
            there = self._ray.cluster_resources()
            room = there.get("GPU", 0) / self._gpus if self._gpus else there.get("CPU", 1)
            number = max(1, int(room))
        for _ in range(number - len(self._handles) - len(self._retired)):
            handle = _Handle(self._actors.remote())
            self._revive(handle)
            self._handles.append(handle)

    def _wake(self) -> None:
        """Let workers that have rested begin again."""
        for handle in self._handles:
            if handle.stage == "rests" and time.monotonic() >= handle.rests_until:
                self._revive(handle)

    def _revive(self, handle: _Handle) -> None:
        """Let a worker begin, or begin again after its process died."""
        handle.stage, handle.waits_for = "versions", handle.actor.versions.remote()

    def _wait_for_the_first(self) -> None:
        began, noted = time.monotonic(), False
        while self._readiness is None:
            self._recruit()
            self._wake()
            self._check_left()
            ready = self._wait(1.0)
            for handle in self._of(ready):
                self._welcome(handle)
            if not noted and time.monotonic() - began > _SECONDS_UNTIL_NOTE:
                noted = True
                what = f"{self._gpus:g} GPU" if self._gpus else "1 CPU"
                _note(f"waiting for a worker to begin; each needs {what} that is free")
        self.setup = self._readiness.setup

    def _wait(self, seconds: float) -> list[Any]:
        """Return the references to what workers have answered, after some time at the latest."""
        waiting = [
            handle.waits_for if handle.waits_for is not None else _first(handle)
            for handle in self._handles
            if handle.waits_for is not None or handle.tasks
        ]
        if not waiting:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(waiting, timeout=seconds)
        if ready:  # and whatever else there is by now
            ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return list(ready)

    def _of(self, references: Sequence[Any]) -> list[_Handle]:
        """Return the workers that wait for these references, or have a piece of that reference."""
        found = set(references)
        return [
            handle
            for handle in self._handles
            if (handle.waits_for if handle.waits_for is not None else _first(handle)) in found
        ]

    def _welcome(self, handle: _Handle) -> None:
        """Take note of what a worker says as it begins, and let it go on."""
        try:
            answer = self._ray.get(handle.waits_for)
        except self._ray.exceptions.RayTaskError as error:
            self._retire(handle, _reason(error), None)
            return
        except self._ray.exceptions.RayError as error:
            self._lost(handle, error)
            return
        if handle.stage == "versions":
            handle.name = f"the worker {answer.pop('pid')} on {answer.pop('host')}"
            ours: Config = {
                "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
                "deformrs": __version__,
                "torch": str(torch.__version__).partition("+")[0],
            }
            if answer != ours:
                self._retire(handle, f"other versions: {difference(answer, ours)}", None)
                return
            handle.stage, handle.waits_for = (
                "begin",
                handle.actor.begin.remote(Place.here(), [self._order]),
            )
            return
        if isinstance(answer, DeformRSError):
            self._retire(handle, str(answer), answer)
            return
        if self._readiness is None:
            self._readiness = answer
        theirs, own = answer.setup, self._readiness.setup
        if theirs != own:
            there = {**theirs.config, "together": theirs.together}
            here = {**own.config, "together": own.together}
            reason = f"not the same as the first one: {difference(there, here)}"
            self._retire(handle, reason, None)
        elif answer.counts != self._readiness.counts:
            reason = "its model predicts other classes for the same samples"
            self._retire(handle, reason, None)
        else:
            handle.stage, handle.waits_for, handle.deaths = "ready", None, 0
            handle.sees_images = answer.sees_images

    def _retire(self, handle: _Handle, reason: str, error: DeformRSError | None) -> None:
        """Give a worker no more pieces; `error` is what it raised, if it did."""
        self._handles.remove(handle)
        self._retired.append((handle, reason, error))
        self._ray.kill(handle.actor)
        if self._handles:
            _note(f"{handle.name} is not used ({reason})")

    def _lost(self, handle: _Handle, error: Exception) -> None:
        """Let a worker whose process died begin again; Ray starts it where there is room.

        Meanwhile its calls fail at once: it rests between them. Only deaths while it begins count.
        """
        handle.deaths += handle.stage == "begin"
        if handle.deaths >= PATIENCE:
            reason = f"it died {handle.deaths} times as it began: {_reason(error)}"
            self._retire(handle, reason, None)
            return
        if isinstance(error, self._ray.exceptions.ActorDiedError):  # for good
            handle.actor = self._actors.remote()
        handle.stage, handle.waits_for = "rests", None
        handle.rests_until = time.monotonic() + _SECONDS_OF_REST

    def _check_left(self) -> None:
        """Raise if no worker is left."""
        if self._handles:
            return
        handle, reason, error = self._retired[-1]
        if error is not None:  # of the model, the images or the settings
            raise error
        raise ModelError(
            f"{handle.name}, the last of {len(self._retired)},",
            f"not usable ({reason})",
            "must be able to sample",
            "install the same versions on all machines, and put models where all of them find "
            "them; then repeat the command",
        )

    # -------------------------------------------------- sampling

    @property
    def workers(self) -> int:
        return len(self._handles)

    def sample(
        self, pieces: Iterable[Sequence[int]], progress: Progress, tally_of: TallyOf
    ) -> Iterator[Outcome]:
        queue = _Queue(pieces)
        seen = time.monotonic()
        while True:
            self._recruit()
            self._wake()
            self._assign(queue)
            if not queue and not any(handle.tasks for handle in self._handles):
                return
            self._check_left()
            rests = any(handle.stage == "rests" for handle in self._handles)
            ready = self._wait(_SECONDS_OF_REST if rests else _SECONDS_BETWEEN_LOOKS)
            now = time.monotonic()
            self._capacity += (now - seen) * sum(
                handle.stage == "ready" for handle in self._handles
            )
            seen = now
            for handle in self._of(ready):
                if handle.waits_for is not None:
                    self._welcome(handle)
                    continue
                outcome = self._take(handle, queue)
                if outcome is not None:
                    self._show(outcome, progress)
                    yield outcome

    def _assign(self, queue: _Queue) -> None:
        """Give pieces to the workers that have too few, first to those that have none."""
        ready = [handle for handle in self._handles if handle.stage == "ready"]
        for held in range(_IN_FLIGHT):
            for handle in ready:
                if len(handle.tasks) != held:
                    continue
                task = queue.take(handle, ready)
                if task is not None:
                    piece = None if handle.sees_images else self._piece(task.indices)
                    reference = handle.actor.call.remote("sample", task.indices, piece)
                    handle.tasks.append((reference, task))

    def _piece(self, indices: tuple[int, ...]) -> Piece:
        """Read images to be sent."""
        piece = Piece.read(self._work.images, indices, self._work.num_classes)
        return replace(piece, images=tuple(image.cpu() for image in piece.images))

    def _take(self, handle: _Handle, queue: _Queue) -> Outcome | None:
        """Return the outcome of the first piece of a worker; None if it is to be tried again."""
        reference, task = handle.tasks.popleft()
        try:
            report: Report | None = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            # The one that was being sampled may be the cause; those behind it are not.
            self._take_back(handle, queue)
            self._lost(handle, error)
            task.deaths += 1
            if task.deaths < DEATHS:
                queue.try_again(task)
                return None
            dead = f"dead ({_reason(error)})"
            return self._give_up(task, ModelError(handle.name, dead, "must go on", "see Ray's log"))
        if report is None:  # it died before, and runs again
            queue.put_back([task])
            self._take_back(handle, queue)
            self._revive(handle)
            return None
        for note in report.notes:
            _note(f"{handle.name}: {note}")
        outcome = report.outcome
        if outcome.error is None:
            self._busy += outcome.seconds
            self._blame(task, queue)
            return outcome
        task.tried.append(handle)
        if report.is_suspect:  # a fresh process may do better, at this piece and at others
            self._take_back(handle, queue)
            self._ray.kill(handle.actor, no_restart=False)
            handle.stage, handle.rests_until = "rests", time.monotonic() + _SECONDS_OF_REST
        if len(task.tried) < ATTEMPTS:
            queue.try_again(task)
            return None
        return self._give_up(task, outcome.error)

    def _blame(self, task: _Task, queue: _Queue) -> None:
        """Count a piece against the workers on which it failed before it succeeded."""
        for handle in {*task.tried} & {*self._handles}:
            handle.failures += 1
            if handle.failures >= PATIENCE and len(self._handles) > 1:
                self._take_back(handle, queue)
                reason = f"{handle.failures} pieces failed there and succeeded elsewhere"
                self._retire(handle, reason, None)

    def _give_up(self, task: _Task, error: DeformRSError) -> Outcome:
        """Return the outcome of a piece that failed too often."""
        self._given_up += 1
        if self._given_up >= MOST_GIVEN_UP and not self._busy:
            raise error  # nothing works: the rest of the dataset would not either
        return Outcome(task.indices, error=error)

    def _take_back(self, handle: _Handle, queue: _Queue) -> None:
        """Take the pieces that a worker has not begun."""
        queue.put_back(task for _, task in handle.tasks)
        handle.tasks.clear()

    def _show(self, outcome: Outcome, progress: Progress) -> None:
        samples = sum(each.counts.n0 + each.counts.n for each in outcome.counts)
        progress.sampled(samples)
        progress.decided(len(outcome.counts))
        number = sum(handle.stage == "ready" for handle in self._handles)
        share = min(1.0, self._busy / self._capacity) if self._capacity else 1.0
        progress.workers(f"{number} worker{'s' * (number != 1)}, {share:.0%} busy")

    # -------------------------------------------------- the model

    def check_same_model(self, indices: Sequence[int], done: Mapping[int, Result]) -> None:
        while True:
            handle = self._next_ready()
            piece = None if handle.sees_images else self._piece(tuple(indices))
            call = handle.actor.call.remote("check_same_model", tuple(indices), piece, dict(done))
            try:
                answer: tuple[DeformRSError | None] | None = self._ray.get(call)
            except self._ray.exceptions.RayError as error:
                self._lost(handle, error)
                continue
            if answer is None:  # it died before, and runs again
                self._revive(handle)
                continue
            if answer[0] is not None:
                raise answer[0]
            return

    def _next_ready(self) -> _Handle:
        """Return a worker that is ready, as soon as there is one."""
        while True:
            for handle in self._handles:
                if handle.stage == "ready":
                    return handle
            self._wake()
            self._check_left()
            for handle in self._of(self._wait(_SECONDS_OF_REST)):
                self._welcome(handle)

    def changed(self) -> Difference | None:
        calls = [
            handle.actor.call.remote("changed")
            for handle in self._handles
            if handle.stage == "ready"
        ]
        for call in calls:
            try:
                difference: Difference | None = self._ray.get(call)
            except self._ray.exceptions.RayError:
                continue  # it died, and with it what it remembered
            if difference is not None:
                return difference
        return None

    def close(self) -> None:
        """Kill the actors, and leave the cluster; one that was started here ends."""
        if self._ray.is_initialized():
            for handle in self._handles:
                self._ray.kill(handle.actor)
        self._handles = []
        if self._connected:
            self._ray.shutdown()


def _first(handle: _Handle) -> Any:
    """Return the reference to the piece that a worker samples, if it has one."""
    return handle.tasks[0][0] if handle.tasks else None


def _reason(error: Exception) -> str:
    """Return what Ray says of a death, in a line."""
    return " ".join(_COLOURS.sub("", str(error)).split())[:300]


def _note(text: str) -> None:
    warnings.warn(text, ScarcityWarning, stacklevel=3)
