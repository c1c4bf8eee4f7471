"""From what a sweep asks to its runs, each checked as far as it can be before any is trained."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

from deformrs.cli.arguments import (
    DataOptions,
    ModelOptions,
    SmoothingOptions,
    StartOptions,
    TrainingOptions,
)
from deformrs.cli.certify import Sampling
from deformrs.cli.sweep_file import (
    MACHINE,
    TRAIN,
    Names,
    RunsAsked,
    SweepAsked,
    Values,
    made_name,
    option_parts,
)
from deformrs.cli.training_process import check_one_machine
from deformrs.data.image_set import HELD_OUT
from deformrs.errors import DeformRSError, InputError, UnsupportedError
from deformrs.models.saved import WEIGHTS, of_file
from deformrs.space import Space
from deformrs.specs import parse_deformation, parse_noise
from deformrs.stopping import Query, RadiusQuery, RegionQuery, parse_queries
from deformrs.training.augmentation import parse_augmentation


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
    questions: tuple[Query, ...]
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


def texts_of(runs: Sequence[PlannedRun], kind: type[Query]) -> tuple[str, ...]:
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


_SOME_SIZE = (224, 224)
"""Images are not looked at yet; whether a law or a question fits does not depend on them."""
_WATCHED = ("radii", "regions")

Options = TypeVar("Options")


def plan_sweep(asked: SweepAsked) -> Sweep:
    """The runs that are asked for, no two of one name; nothing is loaded or written yet.

    A radius or a region is asked of the runs that it can be asked of, which must be some.
    """
    runs: list[PlannedRun] = []
    names = Names()
    tables: dict[str, Values] = {}  # what each run is trained with, by its name
    unfit: dict[str, DeformRSError] = {}
    for entry in asked.runs:
        with _told(entry.where):
            network = trained_run("the network", entry.network, runs)
            begin = trained_run("begin", entry.begin, runs)
        train = asked.train | (entry.train if network is None else tables[network.name])
        certify = asked.certify | entry.certify
        for deformation, noise in _pairs(entry, network):
            name = _name(entry, deformation, noise, names)
            tables[name] = train
            planning = _Planning(train, certify, network, begin, unfit)
            with _told(entry.where):
                runs.append(planning.run(deformation, noise, asked.out / name))
    used = texts_of(runs, RadiusQuery) + texts_of(runs, RegionQuery)
    for text, fault in unfit.items():
        if text not in used:
            with _told(asked.where):
                raise fault
    return Sweep(asked.out, tuple(runs))


def _pairs(entry: RunsAsked, network: PlannedRun | None) -> Iterator[tuple[str, str]]:
    """Each deformation with each noise; those of the network's run where none are given."""
    deformations, noises = entry.deformations, entry.noises
    if network is not None:
        deformations = deformations or (network.smoothing.deformation,)
        noises = noises or (network.smoothing.noise,)
    return product(deformations, noises)


def _name(entry: RunsAsked, deformation: str, noise: str, names: Names) -> str:
    if entry.name is None:
        train = {key: value for key, value in entry.train.items() if key not in MACHINE}
        certify = {key: v for key, v in entry.certify.items() if key not in (*MACHINE, *_WATCHED)}
        both = {key: value for key, value in certify.items() if key in TRAIN}
        only = {key: value for key, value in certify.items() if key not in TRAIN}
        own = option_parts(train) + option_parts(both, "certify-") + option_parts(only)
        others = {"network": entry.network, "begin": entry.begin}
        named: Values = {key: value for key, value in others.items() if value is not None}
        meaning = (deformation, noise, train | named, certify)
        name = made_name(deformation, noise, *option_parts(named), *own)
        return names.add(name, meaning, made=True, where=entry.where)
    several = (
        deformation if len(entry.deformations) > 1 else "",
        noise if len(entry.noises) > 1 else "",
    )
    name = f"{entry.name}_{made_name(*several)}" if any(several) else entry.name
    return names.add(name, entry.name, made=False, where=entry.where)


@dataclass(frozen=True)
class _Planning:
    """What the runs of one entry have in common."""

    train: Values
    certify: Values
    network: PlannedRun | None
    begin: PlannedRun | None
    unfit: dict[str, DeformRSError]

    def run(self, deformation: str, noise: str, folder: Path) -> PlannedRun:
        train, certify = self.train, self.certify
        for key in ("data", "model"):
            if not train.get(key):
                raise InputError(key, "missing", "is needed to train", f"add {key} to [train]")
        start, training = _built(StartOptions, train), _built(TrainingOptions, train)
        check_one_machine(training)
        if training.augment != "auto":
            parse_augmentation(training.augment)
        if self.begin is not None:
            check_goes_on(start, self.begin)
        smoothing = _built(SmoothingOptions, train | {"deformation": deformation, "noise": noise})
        space = parse_deformation(deformation).space(_SOME_SIZE)
        _check_noise(deformation, noise, space)
        data = _built(DataOptions, train | {"split": "train"})
        test = _built(DataOptions, train | certify)
        if test.split == HELD_OUT:
            _check_held_out(training, data, test)
        named = network_in(start.model, self.network.folder if self.network else folder)
        device: Values = {"device": training.device}
        return PlannedRun(
            name=folder.name,
            folder=folder,
            start=start,
            data=data,
            smoothing=smoothing,
            training=training,
            model=_built(ModelOptions, device | certify | dataclasses.asdict(named)),
            test=test,
            own_test_split=test.data == data.data and test.split == "test",
            sampling=_built(Sampling, certify),
            questions=_fitting(certify, space, self.unfit),
            network=self.network,
            begin=self.begin,
        )


def _check_noise(deformation: str, noise: str, space: Space) -> None:
    try:
        parse_noise(noise, space)
    except InputError as fault:
        raise InputError(
            fault.name,
            f"{fault.value} in the noise {noise!r} on {deformation}",
            fault.rule,
            f"{fault.remedy} (a FILE can give each deformation noise of its own)",
        ) from None


def _check_held_out(training: TrainingOptions, data: DataOptions, test: DataOptions) -> None:
    """Raise unless training holds images out, and they are what is to be certified."""
    if not training.hold_out:
        raise InputError(
            "split",
            HELD_OUT,
            "needs images that training holds out",
            "add hold_out = 0.1 to [train], or --hold-out 0.1",
        )
    if test.data != data.data:
        raise InputError(
            "data",
            test.data,
            f"must be what is trained on, {data.data}, for images held out of it",
            f"leave it out of [certify], or split = {HELD_OUT!r}",
        )


def _built(kind: type[Options], values: Values) -> Options:
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in values.items() if key in names})


def _fitting(certify: Values, space: Space, unfit: dict[str, DeformRSError]) -> tuple[Query, ...]:
    """The questions that can be asked over that space; why others cannot goes to `unfit`."""
    found = []
    parts = [part.strip() for text in _texts(certify, "radii") for part in text.split(",")]
    radii = [part for part in parts if part]
    for question in parse_queries(radii, _texts(certify, "regions")):
        try:
            question.check(space)
            found.append(question)
        except (InputError, UnsupportedError) as fault:
            unfit[question.text] = fault
    return tuple(found)


def _texts(values: Values, key: str) -> tuple[str, ...]:
    found = values.get(key)
    return tuple(map(str, found)) if isinstance(found, tuple) else ()


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Say of an error in which part of the file it lies."""
    try:
        yield
    except DeformRSError as error:
        if not where:
            raise
        name = f"{error.name} for {where}"
        raise type(error)(name, error.value, error.rule, error.remedy) from None
