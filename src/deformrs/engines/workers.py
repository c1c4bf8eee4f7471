"""The workers of a run on Ray, as the driver sees them: they begin, die, rest and are retired."""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from deformrs import __version__
from deformrs.config import Config
from deformrs.engines.actor import Place, Readiness, actor_class
from deformrs.engines.engine import Setup
from deformrs.engines.queue import Queue, Task
from deformrs.errors import DeformRSError, ModelError, ScarcityWarning
from deformrs.runs.folder import difference

PATIENCE = 3
"""The pieces that fail on a worker and succeed elsewhere, after which it gets no more. Also how
often it may die as it begins."""

PIECES_LOST = 6
"""The pieces of which a worker may be the first to die, one after another."""

SECONDS_BETWEEN_LOOKS = 5.0
"""The time after which the driver looks whether there is room for more workers."""

SECONDS_OF_REST = 1.0
"""The time after which the driver asks whether a worker that died runs again."""

_SECONDS_UNTIL_NOTE = 30.0
"""The time without any worker after which the driver says what it waits for."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Stage = Literal["versions", "begin", "ready", "rests"]


@dataclass(eq=False)
class RemoteWorker:
    """An actor, and the pieces it has."""

    actor: Any
    name: str = "a worker"
    waits_for: Any = None
    """The reference to its versions or its readiness; None once it is ready, or rests."""
    stage: Stage = "versions"
    rests_until: float = 0.0
    sees_images: bool = False
    tasks: deque[tuple[Any, Task]] = field(default_factory=deque)
    failures: int = 0
    """The pieces in a row that failed here and succeeded elsewhere."""
    deaths: int = 0
    """How often it died as it began, in a row."""
    lost: int = 0
    """The pieces of which it was the first to die, without another that it finished."""

    @property
    def reference(self) -> Any:
        """The reference to its next answer; None if none is due."""
        if self.waits_for is not None:
            return self.waits_for
        return self.tasks[0][0] if self.tasks else None

    def begin(self) -> None:
        """Let it begin, or begin again after its process died."""
        self.stage, self.waits_for = "versions", self.actor.versions.remote()

    def rest(self) -> None:
        """Let it wait for a moment before it begins again."""
        self.stage, self.waits_for = "rests", None
        self.rests_until = time.monotonic() + SECONDS_OF_REST

    def give_back(self, queue: Queue) -> None:
        """Return the pieces that it has not begun."""
        queue.put_back(task for _, task in self.tasks)
        self.tasks.clear()


class Workers:
    """The workers of a session: as many as are requested, or as fit the cluster.

    `order` is the reference to what they are to do, and `gpus` what each of them needs.
    """

    def __init__(self, ray: Any, order: Any, number: int | Literal["auto"], gpus: float) -> None:
        self._ray, self._order, self._number, self._gpus = ray, order, number, gpus
        self._actors = ray.remote(actor_class()).options(
            num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=0
        )
        self._used: list[RemoteWorker] = []
        self._retired: list[tuple[RemoteWorker, str, DeformRSError | None]] = []
        self._readiness: Readiness | None = None
        self._looked = -SECONDS_BETWEEN_LOOKS
        self._last_death = ""

    def __iter__(self) -> Iterator[RemoteWorker]:
        return iter([*self._used])

    def __len__(self) -> int:
        return len(self._used)

    @property
    def ready(self) -> list[RemoteWorker]:
        """Those that can sample now."""
        return [worker for worker in self._used if worker.stage == "ready"]

    @property
    def rest(self) -> bool:
        """Whether one of them rests."""
        return any(worker.stage == "rests" for worker in self._used)

    def first_setup(self) -> Setup:
        """Wait for the first worker that can sample, and return what it settled."""
        began, noted = time.monotonic(), False
        while self._readiness is None:
            self.recruit()
            self.check_left()
            self.welcome(self.answered(1.0))
            if not noted and time.monotonic() - began > _SECONDS_UNTIL_NOTE:
                noted = True
                what = f"{self._gpus:g} GPU" if self._gpus else "1 CPU"
                died = f"; the last one died: {self._last_death}" if self._last_death else ""
                note(f"waiting for a worker to begin; each needs {what} that is free{died}")
        return self._readiness.setup

    def next_ready(self) -> RemoteWorker:
        """Return a worker that is ready, as soon as there is one."""
        while not self.ready:
            self.recruit()
            self.check_left()
            self.welcome(self.answered(SECONDS_OF_REST))
        return self.ready[0]

    def recruit(self) -> None:
        """Make more actors, if more are requested or fit the cluster, and wake those that rest."""
        for worker in self._used:
            if worker.stage == "rests" and time.monotonic() >= worker.rests_until:
                worker.begin()
        if time.monotonic() - self._looked < SECONDS_BETWEEN_LOOKS:
            return
        self._looked = time.monotonic()
        if isinstance(self._number, int):
            number = self._number
        else:
            there = self._ray.cluster_resources()
            room = there.get("GPU", 0) / self._gpus if self._gpus else there.get("CPU", 1)
            number = max(1, int(room))
        for _ in range(number - len(self._used) - len(self._retired)):
            worker = RemoteWorker(self._actors.remote())
            worker.begin()
            self._used.append(worker)

    def answered(self, seconds: float) -> list[RemoteWorker]:
        """Return the workers that have answered, after some time at the latest."""
        waiting = [worker.reference for worker in self._used if worker.reference is not None]
        if not waiting:
            time.sleep(seconds)
            return []
        found, _ = self._ray.wait(waiting, timeout=seconds)
        if found:  # and whatever else there is by now
            found, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        there = set(found)
        return [worker for worker in self._used if worker.reference in there]

    def welcome(self, workers: Sequence[RemoteWorker]) -> list[RemoteWorker]:
        """Let the workers among them that begin go on; return those that have sampled a piece."""
        begin = [worker for worker in workers if worker.waits_for is not None]
        for worker in begin:
            self._welcome(worker)
        return [worker for worker in workers if worker not in begin]

    def _welcome(self, worker: RemoteWorker) -> None:
        """Take note of what a worker says as it begins, and let it go on."""
        try:
            answer = self._ray.get(worker.waits_for)
        except self._ray.exceptions.RayTaskError as error:
            self.retire(worker, reason(error))
            return
        except self._ray.exceptions.RayError as error:
            self.lost(worker, error)
            return
        if worker.stage == "versions":
            worker.name = f"the worker {answer.pop('pid')} on {answer.pop('host')}"
            ours: Config = {
                "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
                "deformrs": __version__,
                "torch": str(torch.__version__).partition("+")[0],
            }
            if answer != ours:
                self.retire(worker, f"other versions: {difference(answer, ours)}")
                return
            worker.stage = "begin"
            worker.waits_for = worker.actor.begin.remote(Place.here(), [self._order])
        elif isinstance(answer, DeformRSError):
            self.retire(worker, str(answer), answer)
        else:
            self._compare(worker, answer)

    def _compare(self, worker: RemoteWorker, answer: Readiness) -> None:
        """Use a worker that has the setup of the first one, and predicts as that one does."""
        if self._readiness is None:
            self._readiness = answer
        theirs, own = answer.setup, self._readiness.setup
        if theirs != own:
            there = {**theirs.config, "together": theirs.together}
            here = {**own.config, "together": own.together}
            self.retire(worker, f"not the same as the first one: {difference(there, here)}")
        elif answer.counts != self._readiness.counts:
            self.retire(worker, "its model predicts other classes for the same samples")
        else:
            worker.stage, worker.waits_for, worker.deaths = "ready", None, 0
            worker.sees_images = answer.sees_images

    def retire(self, worker: RemoteWorker, why: str, error: DeformRSError | None = None) -> None:
        """Give a worker no more pieces; `error` is what it raised, if it did."""
        self._used.remove(worker)
        self._retired.append((worker, why, error))
        self._ray.kill(worker.actor)
        if self._used:
            note(f"{worker.name} is not used ({why})")

    def lost(self, worker: RemoteWorker, error: Exception) -> None:
        """Let a worker whose process died begin again; Ray starts it where there is room.

        Meanwhile its calls fail at once: it rests between them. Whether a process died before it
        said its versions, or there is no room for one, Ray does not say: that is not counted.
        """
        self._last_death = reason(error)
        worker.deaths += worker.stage == "begin"
        if worker.deaths >= PATIENCE:
            self.retire(worker, f"it died {worker.deaths} times as it began: {reason(error)}")
            return
        if worker.lost >= PIECES_LOST:
            self.retire(worker, f"it died of {worker.lost} pieces in a row: {reason(error)}")
            return
        if isinstance(error, self._ray.exceptions.ActorDiedError):  # for good
            worker.actor = self._actors.remote()
        worker.rest()

    def restart(self, worker: RemoteWorker) -> None:
        """Let a worker go on in a fresh process."""
        self._ray.kill(worker.actor, no_restart=False)
        worker.rest()

    def check_left(self) -> None:
        """Raise if no worker is left."""
        if self._used:
            return
        worker, why, error = self._retired[-1]
        if error is not None:  # of the model, the images or the settings
            raise error
        raise ModelError(
            f"{worker.name}, the last of {len(self._retired)},",
            f"not usable ({why})",
            "must be able to sample",
            "install the same versions on all machines, and put models where all of them find "
            "them; then repeat the command",
        )

    def close(self) -> None:
        """Kill the actors."""
        for worker in self._used:
            self._ray.kill(worker.actor)
        self._used = []


def reason(error: Exception) -> str:
    """Return what Ray says of a death, in a line."""
    return " ".join(_COLOURS.sub("", str(error)).split())[:300]


def note(text: str) -> None:
    """Warn of something that makes the run slower, not wrong."""
    warnings.warn(text, ScarcityWarning, stacklevel=3)
