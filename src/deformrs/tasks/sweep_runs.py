"""The runs of a sweep as they are planned, and how one of them names another."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deformrs.errors import InputError
from deformrs.models.factory import of_file
from deformrs.models.saved import WEIGHTS
from deformrs.questions import Question
from deformrs.tasks.certifying import Sampling
from deformrs.tasks.options import DataOptions, ModelOptions, SmoothingOptions
from deformrs.tasks.training_options import StartOptions, TrainingOptions


@dataclass(frozen=True)
class PlannedRun:
    """One network: how it is trained, and how it is certified, in its folder."""

    name: str
    folder: Path
    start: StartOptions
    data: DataOptions
    smoothing: SmoothingOptions
    training: TrainingOptions
    model: ModelOptions
    test: DataOptions
    own_test_split: bool
    """Is it certified on the test split of the data it is trained on?"""
    sampling: Sampling
    questions: tuple[Question, ...]
    network: PlannedRun | None = None
    """The run whose network this one certifies; None: it trains its own."""
    begin: PlannedRun | None = None
    """The run whose weights its training begins with; None: it begins as `start` says."""

    @property
    def needed(self) -> PlannedRun | None:
        """The run that must be done before this one."""
        return self.network or self.begin

    @property
    def beginning(self) -> StartOptions:
        """What its training begins with."""
        if self.begin is None:
            return self.start
        model = network_in(self.start.model, self.begin.folder)
        return dataclasses.replace(
            self.start, model=model.model, weights=model.weights, pretrained=False
        )


@dataclass(frozen=True)
class Network:
    """What names a network: a folder, or a function in a file and its weights."""

    model: str
    weights: str | None = None


def network_in(model: str, folder: Path) -> Network:
    """The network that was trained into that folder as `model`: no folder makes a file run."""
    return Network(model, str(folder / WEIGHTS)) if of_file(model) else Network(str(folder))


@dataclass(frozen=True)
class Sweep:
    """Runs side by side in one folder."""

    out: Path
    runs: tuple[PlannedRun, ...]


def texts_of(runs: Sequence[PlannedRun], kind: type[Question]) -> tuple[str, ...]:
    """What is asked of any of these runs: radii or regions, each once."""
    asked = (q.text for run in runs for q in run.questions if isinstance(q, kind))
    return tuple(dict.fromkeys(asked))


def chosen_runs(sweep: Sweep, names: Sequence[str]) -> Sweep:
    """Those of these names only, in the order of the sweep; all without any."""
    for name in names:
        _check_known("the run", name, [run.name for run in sweep.runs], "must be one of the sweep")
    chosen = tuple(run for run in sweep.runs if not names or run.name in names)
    return dataclasses.replace(sweep, runs=chosen)


def trained_run(what: str, name: str | None, runs: Sequence[PlannedRun]) -> PlannedRun | None:
    """The run of that name, which trains a network of its own; None without a name."""
    if name is None:
        return None
    own = {run.name: run for run in runs if run.network is None}
    _check_known(what, name, list(own), "must be the name of a run above that is trained")
    return own[name]


def check_goes_on(start: StartOptions, begin: PlannedRun) -> None:
    """Raise unless it is the same network that goes on from the weights of another run."""
    for key in ("model", "resize", "crop", "interpolation", "channels", "mean", "std"):
        own, other = getattr(start, key), getattr(begin.start, key)
        if own != other:
            raise InputError(
                key,
                repr(own),
                f"must be that of {begin.name}, {other!r}, with whose weights training begins",
                "leave it out",
            )


def _check_known(what: str, name: str, known: Sequence[str], rule: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        there = f"there are {', '.join(known) or 'none'}"
        raise InputError(what, repr(name), rule, f"did you mean {near[0]!r}?" if near else there)
