"""Engines: where the pieces of a run are sampled. The interface, and the engine of one process.

Another engine is a file with two classes: an `Engine` of settings, whose `start` returns a
`Session` that hands pieces to `Worker` objects wherever they are, and yields their outcomes in any
order. What an image is counted as depends on the seed and its index only, so a piece may be sampled
anywhere, again, or twice.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor

from deformrs.bars import Progress
from deformrs.config import Config
from deformrs.determinism import Difference, Replay
from deformrs.errors import DeformRSError
from deformrs.fingerprints import Fingerprint, classifier_config, with_model
from deformrs.inputs import Dataset
from deformrs.pieces import ImageCounts, Piece, images_together
from deformrs.plan import SamplingPlan
from deformrs.runs import Result
from deformrs.runs.tally import Tally
from deformrs.smoothing import SmoothedClassifier

TallyOf = Callable[[Sequence[Config]], AbstractContextManager[Tally | None]]
"""Opens what stores the counts of images while they are sampled."""


@dataclass(frozen=True, eq=False)
class Work:
    """What all pieces of a run have in common."""

    images: Dataset
    index: int
    first: Tensor
    """The first image that is certified, and its index: [c, h, w]."""
    plan: SamplingPlan
    num_classes: int
    together: int | None
    """The number of images in a piece. None: as many as keep the device busy."""
    check_model: bool
    """Whether to check that the model is a fixed function before anything is sampled."""
    fingerprint: Fingerprint
    """What the classifier of every worker must agree with."""


@dataclass(frozen=True)
class Setup:
    """How the pieces of a run are sampled: what it records of classifier and device."""

    config: Config
    together: int
    """The number of images in a piece."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a piece."""

    indices: tuple[int, ...]
    """The images of the piece."""
    counts: Sequence[ImageCounts] = ()
    """One for each image; none if the piece failed."""
    seconds: float = 0.0
    difference: Difference | None = None
    """Predictions for earlier samples that the model did not repeat."""
    error: DeformRSError | None = None
    """Why the piece failed, wherever it was tried."""


class Worker:
    """Samples pieces with one classifier on one device, one after the other."""

    def __init__(
        self, work: Work, classifier: SmoothedClassifier, about: Config | None = None
    ) -> None:
        self._work, self._classifier, self._about = work, classifier, about or {}
        self._replay = Replay() if classifier.check_model else None
        self._together = work.together or images_together(classifier, work.first, work.plan)

    def setup(self) -> Setup:
        """Compile, if requested, and return how this worker samples.

        Guarantee: raises if noise, deformation or padding are not those of the run.
        """
        work, classifier = self._work, self._classifier
        work.fingerprint.check(classifier, work.first)
        if work.check_model:
            classifier.check_fixed(work.first, work.plan.n0 + work.plan.n)
        # Whether it compiles is part of the configuration.
        classifier.warm_up(work.first, together=self._together)
        config = with_model(classifier_config(classifier, work.first), self._about)
        return Setup(config, self._together)

    def read(self, indices: Sequence[int]) -> Piece:
        """Read the images of a piece."""
        return Piece.read(self._work.images, indices, self._work.num_classes)

    def sample(
        self, piece: Piece, progress: Progress | None = None, tally: Tally | None = None
    ) -> Outcome:
        """Return the counts of a piece."""
        began = time.monotonic()
        counts = piece.sample(
            self._classifier,
            self._work.plan,
            self._together,
            progress=progress or Progress(),
            tally=tally,
            replay=self._replay,
        )
        seconds = time.monotonic() - began if tally is None else tally.seconds
        return Outcome(piece.indices, counts, seconds, self.changed(end=False))

    def check_same_model(self, piece: Piece, done: Mapping[int, Result]) -> None:
        """Raise unless the model still gives the selection counts of stored results."""
        piece.check_same_model(self._classifier, self._work.plan, self._together, done)

    def changed(self, *, end: bool) -> Difference | None:
        """Return what the model did not repeat, if some batches are due, or at the end."""
        return None if self._replay is None else self._replay.difference(end=end)


class Session(ABC):
    """An engine at work on a run."""

    setup: Setup

    @property
    def workers(self) -> int:
        """The number of workers, also of those that have not begun."""
        return 1

    @abstractmethod
    def sample(
        self, pieces: Iterable[Sequence[int]], progress: Progress, tally_of: TallyOf
    ) -> Iterator[Outcome]:
        """Yield the outcome of each piece, given by the indices of its images, in any order.

        `tally_of` may be used by an engine that samples the pieces one after the other.
        """

    @abstractmethod
    def check_same_model(self, indices: Sequence[int], done: Mapping[int, Result]) -> None:
        """Raise unless the model still gives the selection counts of stored results."""

    @abstractmethod
    def changed(self) -> Difference | None:
        """Return what the model did not repeat, at the end of the run."""

    def close(self) -> None:  # noqa: B027 (nothing to release by default)
        """Release what the engine holds. May be called twice."""


class Engine(ABC):
    """Where the pieces of a run are sampled."""

    @abstractmethod
    def start(self, work: Work, classifier: SmoothedClassifier) -> Session:
        """Make everything ready to sample the pieces of a run with a classifier."""


@dataclass(frozen=True)
class InProcess(Engine):
    """Samples in this process, one piece after the other: the default."""

    def start(self, work: Work, classifier: SmoothedClassifier) -> Session:
        return _InProcessSession(Worker(work, classifier))


class _InProcessSession(Session):
    def __init__(self, worker: Worker) -> None:
        self._worker, self.setup = worker, worker.setup()

    def sample(
        self, pieces: Iterable[Sequence[int]], progress: Progress, tally_of: TallyOf
    ) -> Iterator[Outcome]:
        for indices in pieces:
            piece = self._worker.read(indices)
            with tally_of(piece.names) as tally:
                outcome = self._worker.sample(piece, progress, tally)
            yield outcome

    def check_same_model(self, indices: Sequence[int], done: Mapping[int, Result]) -> None:
        self._worker.check_same_model(self._worker.read(indices), done)

    def changed(self) -> Difference | None:
        return self._worker.changed(end=True)
