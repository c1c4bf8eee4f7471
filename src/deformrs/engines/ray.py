"""Sampling on Ray: pieces go to actors, on one machine or on many.

The driver is the process that was started. It alone writes the run folder; only counts come back
from the workers. A worker that dies costs the pieces it has, which are given to others.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pickle import PicklingError
from typing import Any, Literal

from deformrs.bars import Progress
from deformrs.checks import check_integer, is_real
from deformrs.determinism import Difference
from deformrs.engines.actor import Copy, Loader, Order, Report, digests_of
from deformrs.engines.engine import Engine, Outcome, Session, TallyOf, Work
from deformrs.engines.queue import Queue, Task
from deformrs.engines.workers import (
    PATIENCE,
    SECONDS_BETWEEN_LOOKS,
    SECONDS_OF_REST,
    RemoteWorker,
    Workers,
    note,
    reason,
)
from deformrs.errors import DeformRSError, InputError, ModelError, install_command, reason_of
from deformrs.pieces import Piece
from deformrs.runs import Result
from deformrs.smoothing import SmoothedClassifier

ATTEMPTS = 3
"""How often a piece may fail, on another worker each time where there is one."""

DEATHS = 6
"""How many workers may die while they sample a piece: machines come and go."""

MOST_GIVEN_UP = 10
"""The pieces that are given up before the run ends, if no other one succeeded."""

_COMPARED = 16
"""The images that a worker must find as the driver does, to read all of them itself."""

_IN_FLIGHT = 2
"""The pieces that a worker has at a time: one is sampled, the other waits for it."""

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


class _RaySession(Session):
    def __init__(self, engine: RayEngine, work: Work, classifier: SmoothedClassifier) -> None:
        self._ray = _import_ray()
        self._work = work
        self._workers: Workers | None = None
        self._busy = self._capacity = 0.0
        self._given_up: list[int] = []
        self._connected = not self._ray.is_initialized()
        self._terminate = signal.getsignal(signal.SIGTERM)
        try:
            _connect(self._ray, engine)
            if self._connected and _is_main_thread():
                # Ray's own handler would exit. Schedulers send it at the end of a job's time.
                signal.signal(signal.SIGTERM, signal.default_int_handler)
            gpus = engine.gpus_per_worker
            if gpus is None:
                gpus = float(bool(self._ray.cluster_resources().get("GPU", 0)))
            order = _sent(self._ray, _order(engine, work, classifier))
            self._workers = Workers(self._ray, order, engine.workers, gpus)
            self.setup = self._workers.first_setup()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        return len(self._crew)

    @property
    def _crew(self) -> Workers:
        assert self._workers is not None
        return self._workers

    def sample(
        self, pieces: Iterable[Sequence[int]], progress: Progress, tally_of: TallyOf
    ) -> Iterator[Outcome]:
        queue, crew = Queue(pieces), self._crew
        seen = time.monotonic()
        while True:
            crew.recruit()
            self._assign(queue)
            if not queue and not any(worker.tasks for worker in crew):
                return
            crew.check_left()
            answered = crew.answered(SECONDS_OF_REST if crew.rest else SECONDS_BETWEEN_LOOKS)
            now = time.monotonic()
            self._capacity += (now - seen) * len(crew.ready)
            seen = now
            for worker in crew.welcome(answered):
                outcome = self._take(worker, queue)
                if outcome is not None:
                    self._show(outcome, progress)
                    yield outcome

    def _assign(self, queue: Queue) -> None:
        """Give pieces to the workers that have too few, first to those that have none."""
        ready = self._crew.ready
        for held in range(_IN_FLIGHT):
            for worker in ready:
                if len(worker.tasks) != held:
                    continue
                task = queue.take(worker, ready)
                if task is not None:
                    piece = None if worker.sees_images else self._piece(task.indices)
                    reference = worker.actor.call.remote("sample", task.indices, piece)
                    worker.tasks.append((reference, task))

    def _piece(self, indices: Sequence[int]) -> Piece:
        """Read images to be sent."""
        piece = Piece.read(self._work.images, indices, self._work.num_classes)
        return replace(piece, images=tuple(image.cpu() for image in piece.images))

    def _take(self, worker: RemoteWorker, queue: Queue) -> Outcome | None:
        """Return the outcome of the first piece of a worker; None if it is to be tried again."""
        if not worker.tasks:  # taken back meanwhile
            return None
        reference, task = worker.tasks.popleft()
        try:
            report: Report | None = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            # The one that was being sampled may be the cause; those behind it are not.
            worker.give_back(queue)
            worker.lost += not task.deaths  # of a piece that others died of, the piece is the cause
            task.deaths += 1
            task.tried.append(worker)
            self._crew.lost(worker, error)
            if task.deaths < DEATHS:
                queue.try_again(task)
                return None
            dead = f"dead ({reason(error)})"
            return self._give_up(task, ModelError(worker.name, dead, "must go on", "see Ray's log"))
        if report is None:  # it died before, and runs again
            queue.put_back([task])
            worker.give_back(queue)
            worker.begin()
            return None
        for text in report.notes:
            note(f"{worker.name}: {text}")
        outcome = report.outcome
        if outcome.error is None:
            self._busy += outcome.seconds
            worker.failures = worker.lost = 0
            self._blame(task, worker, queue)
            return outcome
        task.tried.append(worker)
        task.failures += 1
        if report.is_suspect:  # a fresh process may do better, at this piece and at others
            worker.give_back(queue)
            self._crew.restart(worker)
        if task.failures < ATTEMPTS:
            queue.try_again(task)
            return None
        return self._give_up(task, outcome.error)

    def _blame(self, task: Task, finisher: RemoteWorker, queue: Queue) -> None:
        """Count a piece against the workers on which it failed before it succeeded elsewhere."""
        for worker in self._crew:
            if worker is finisher or worker not in task.tried:
                continue
            worker.failures += 1
            if worker.failures >= PATIENCE and len(self._crew) > 1:
                worker.give_back(queue)
                why = f"{worker.failures} pieces failed there and succeeded elsewhere"
                self._crew.retire(worker, why)

    def _give_up(self, task: Task, error: DeformRSError) -> Outcome:
        """Return the outcome of a piece that failed too often."""
        self._given_up.append(task.indices[0])
        if len(self._given_up) >= MOST_GIVEN_UP and not self._busy:
            # Nothing works: the rest of the dataset would not either.
            first = ", ".join(map(str, self._given_up))
            raise ModelError(
                f"each of the first {len(self._given_up)} pieces (from the images {first} on)",
                f"not sampled ({error})",
                "must be, or at least one of them",
                "remove the cause, and repeat the command",
            )
        return Outcome(task.indices, error=error)

    def _show(self, outcome: Outcome, progress: Progress) -> None:
        samples = sum(each.counts.n0 + each.counts.n for each in outcome.counts)
        progress.sampled(samples)
        progress.decided(len(outcome.counts))
        number = len(self._crew.ready)
        share = min(1.0, self._busy / self._capacity) if self._capacity else 1.0
        progress.workers(f"{number} worker{'s' * (number != 1)}, {share:.0%} busy")

    def check_same_model(self, indices: Sequence[int], done: Mapping[int, Result]) -> None:
        deaths = 0
        while True:
            worker = self._crew.next_ready()
            piece = None if worker.sees_images else self._piece(indices)
            call = worker.actor.call.remote("check_same_model", tuple(indices), piece, dict(done))
            try:
                answer: tuple[DeformRSError | None] | None = self._ray.get(call)
            except self._ray.exceptions.RayError as error:
                deaths += 1
                if deaths >= DEATHS:
                    raise ModelError(
                        f"{worker.name} and {deaths - 1} before it",
                        f"dead ({reason(error)})",
                        f"must sample the image {indices[0]} again, to compare the models",
                        "see Ray's log",
                    ) from None
                self._crew.lost(worker, error)
                continue
            if answer is None:  # it died before, and runs again
                worker.begin()
                continue
            if answer[0] is not None:
                raise answer[0]
            return

    def changed(self) -> Difference | None:
        calls = [worker.actor.call.remote("changed") for worker in self._crew.ready]
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
        if self._workers is not None and self._ray.is_initialized():
            self._workers.close()
        if self._connected:
            with _uninterrupted():
                self._ray.shutdown()
            if _is_main_thread():
                signal.signal(signal.SIGTERM, self._terminate)


def _connect(ray: Any, engine: RayEngine) -> None:
    """Connect to the cluster, or start one, unless this process is connected already."""
    if ray.is_initialized():
        if engine.address is None:
            return
        raise InputError(
            "the address",
            f"{engine.address!r}, while this process is connected to a Ray already",
            "must be left out then",
            "leave it out to use that one, or call ray.shutdown() before",
        )
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


def _order(engine: RayEngine, work: Work, classifier: SmoothedClassifier) -> Order:
    """Return what workers are to do."""
    images = work.images if getattr(work.images, "reads_files", False) else None
    some = {work.index, *range(0, len(work.images), 1 + len(work.images) // _COMPARED)}
    return Order(
        replace(work, images=(), first=work.first.cpu()),
        engine.load or Copy.of(classifier),
        images,
        {} if images is None else digests_of(images, some, work.num_classes),
        threads=1,
    )


def _sent(ray: Any, order: Order) -> Any:
    """Return the reference to an order that workers can fetch."""
    try:
        return ray.put(order)
    except (TypeError, AttributeError, RuntimeError, ValueError, PicklingError) as error:
        raise InputError(
            "the classifier",
            f"not to be copied to another process ({reason_of(error)[:200]})",
            "must be sent to the workers, with its model and deformation",
            "define them in a module, or let workers load them: RayEngine(load=...)",
        ) from error


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off Ctrl-C until the block ends."""
    if not _is_main_thread():
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
