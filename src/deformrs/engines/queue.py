"""The pieces that are to be sampled, and those that failed and are to be tried again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Task:
    """A piece that is to be sampled."""

    indices: tuple[int, ...]
    tried: list[object] = field(default_factory=list)
    """The workers on which it failed, or that died of it."""
    failures: int = 0
    deaths: int = 0
    """How often a worker died meanwhile."""


class Queue:
    """The pieces that no worker has: those to be tried again first, then the others in order."""

    def __init__(self, pieces: Iterable[Sequence[int]]) -> None:
        self._source = (Task(tuple(indices)) for indices in pieces)
        self._again: deque[Task] = deque()
        self._next = next(self._source, None)

    def __bool__(self) -> bool:
        return bool(self._again) or self._next is not None

    def put_back(self, tasks: Iterable[Task]) -> None:
        """Take back pieces that were not begun."""
        self._again.extendleft(reversed([*tasks]))

    def try_again(self, task: Task) -> None:
        """Take back a piece that failed."""
        self._again.append(task)

    def take(self, worker: object, workers: Sequence[object]) -> Task | None:
        """Return a piece for a worker; one that failed there only if all of them tried it."""
        for task in self._again:
            if worker not in task.tried or all(other in task.tried for other in workers):
                self._again.remove(task)
                return task
        following = self._next
        self._next = None if following is None else next(self._source, None)
        return following
