"""Actors: the workers of an engine that are processes of their own, on this machine or another."""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deformrs.config import Config
from deformrs.determinism import Difference
from deformrs.engines.engine import Outcome, Setup, Work, Worker
from deformrs.errors import (
    DeformRSError,
    InputError,
    LogitError,
    ModelError,
    ScarcityWarning,
    reason_of,
)
from deformrs.execution import chosen_device
from deformrs.fingerprints import tensor_digest
from deformrs.inputs import Dataset, read_image
from deformrs.memory import keep_freed_memory
from deformrs.pieces import Piece
from deformrs.randomness import Stage
from deformrs.runs import Result
from deformrs.smoothing import SmoothedClassifier

Loader = Callable[[Tensor], tuple[SmoothedClassifier, Config]]
"""Returns a classifier for images like this one, and what else a run records of it."""


@dataclass(frozen=True)
class Place:
    """Where the driver runs: a worker that finds the same folders works there too."""

    folder: str
    paths: tuple[str, ...]

    @classmethod
    def here(cls) -> Place:
        return cls(str(Path.cwd()), tuple(path or str(Path.cwd()) for path in sys.path))

    def enter(self) -> None:
        """Change into the folder, from which paths are meant, and import from those of its code."""
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        sys.path += [path for path in self.paths if path not in sys.path and os.path.exists(path)]


@dataclass(frozen=True)
class Order:
    """What a worker needs to begin."""

    work: Work
    load: Loader
    images: Dataset | None
    """The images, where a worker may find them itself."""
    digests: dict[int, str]
    """Those of some images, by which a worker sees that it finds the same."""
    threads: int


@dataclass(frozen=True)
class Readiness:
    """What a worker says when it is ready."""

    setup: Setup
    sees_images: bool
    counts: tuple[int, ...]
    """The classes that a plain function predicts for some samples; empty for a network."""


@dataclass(frozen=True)
class Report:
    """The outcome of a piece, and what the worker had to say."""

    outcome: Outcome
    notes: tuple[str, ...]
    is_suspect: bool = False
    """Whether the process may have been harmed: by what is no error of an image."""


class Remote:
    """The part of the actor that needs this package."""

    def __init__(self, order: Order) -> None:
        keep_freed_memory()
        torch.set_num_threads(order.threads)
        classifier, about = order.load(order.work.first)
        images = order.images
        self._worker = Worker(replace(order.work, images=images or ()), classifier, about)
        setup = self._worker.setup()
        counts: tuple[int, ...] = ()
        model = setup.config["model"]
        if isinstance(model, dict) and "function" in model:
            plan = order.work.plan
            counts = classifier.count(order.work.first, plan.n0, Stage.PREDICT, seed=plan.seed)
        self.readiness = Readiness(setup, _sees(images, order), counts)

    def sample(self, indices: tuple[int, ...], piece: Piece | None) -> Report:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always", ScarcityWarning)
            try:
                outcome = self._worker.sample(piece or self._worker.read(indices))
                suspect = False
            except (Exception, SystemExit) as error:  # of anyone's model, deformation or dataset
                outcome = Outcome(indices, error=portable(error))
                suspect = not isinstance(error, LogitError | InputError)
        own = (note for note in notes if issubclass(note.category, ScarcityWarning))
        return Report(outcome, tuple(str(note.message) for note in own), suspect)

    def check_same_model(
        self, indices: tuple[int, ...], piece: Piece | None, done: Mapping[int, Result]
    ) -> tuple[DeformRSError | None]:
        try:
            self._worker.check_same_model(piece or self._worker.read(indices), done)
        except (Exception, SystemExit) as error:
            return (portable(error),)
        return (None,)

    def changed(self) -> Difference | None:
        return self._worker.changed(end=True)


def _sees(images: Dataset | None, order: Order) -> bool:
    """Return whether a worker finds the images that the driver has."""
    if images is None:
        return False
    return digests_of(images, order.digests, order.work.num_classes) == order.digests


def digests_of(images: Dataset, indices: Iterable[int], num_classes: int) -> dict[int, str]:
    """Return the digest of each of these images that can be read."""
    found = {}
    for index in indices:
        with suppress(InputError, OSError):
            found[index] = tensor_digest(read_image(images, index, num_classes)[0])
    return found


def portable(error: BaseException) -> DeformRSError:
    """Return an error that can be sent to the driver, whatever was raised."""
    if isinstance(error, DeformRSError):
        same = copy.copy(error)
        same.value = str(error.value)
        same.args = (error.name, same.value, error.rule, error.remedy)
        return same
    return ModelError(
        "the sampling",
        f"ended by an error ({reason_of(error)})",
        "must not raise",
        "fix the model, the deformation or the dataset",
    )


def actor_class() -> type:
    """Return the class of actors. Made here, Ray sends its code: it also runs, and can say so, on
    a machine where this package is missing or another version."""

    class Actor:
        def __init__(self) -> None:
            self._remote: Any = None

        def versions(self) -> dict[str, str]:
            import os
            import socket
            import sys
            from importlib import import_module

            found = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
            for package in ("deformrs", "torch"):
                try:
                    version = str(import_module(package).__version__)
                    found[package] = version.partition("+")[0]  # of the build for a device
                except ImportError:
                    found[package] = "not installed"
            return found | {"host": socket.gethostname(), "pid": str(os.getpid())}

        def begin(self, place: Any, boxed: Any) -> Any:
            import ray

            from deformrs.engines.actor import Remote, portable

            try:
                place.enter()  # before the order is read, whose modules lie there
                self._remote = Remote(ray.get(boxed[0]))
            except (Exception, SystemExit) as error:
                return portable(error)
            return self._remote.readiness

        def call(self, name: str, *arguments: Any) -> Any:
            # None after it died and was started again, until it begins.
            return self._remote and getattr(self._remote, name)(*arguments)

    return Actor


@dataclass(frozen=True, eq=False)
class Copy:
    """Moves a classifier that was sent to the device of its worker."""

    classifier: SmoothedClassifier
    name: str
    """The model's class as the driver names it: of a local class, pickles keep less."""

    @classmethod
    def of(cls, classifier: SmoothedClassifier) -> Copy:
        model = classifier.model
        if isinstance(model, nn.Module) and any(p.is_cuda for p in model.parameters()):
            model = copy.deepcopy(model).cpu()
        device = None if classifier.device is None else torch.device(classifier.device).type
        # A new one, without what the driver has compiled.
        moved = replace(classifier, model=model, device="cpu" if device == "cpu" else None)
        return cls(moved, type(model).__qualname__)

    def __call__(self, image: Tensor) -> tuple[SmoothedClassifier, Config]:
        model, device = self.classifier.model, chosen_device(str(self.classifier.device or "auto"))
        if isinstance(model, nn.Module):
            type(model).__qualname__ = self.name
            model.to(device)
        return replace(self.classifier, device=device), {}
