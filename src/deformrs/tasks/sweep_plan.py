"""From what a sweep asks to its runs, each checked as far as it can be before any is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

from deformrs.data.held_out import HELD_OUT
from deformrs.errors import DeformRSError, InputError, UnsupportedError
from deformrs.questions import Question, RadiusAsked, RegionAsked, questions
from deformrs.space import Space
from deformrs.specs import parse_deformation, parse_noise
from deformrs.tasks.certifying import Sampling
from deformrs.tasks.options import DataOptions, ModelOptions, SmoothingOptions
from deformrs.tasks.sweep_file import MACHINE, TRAIN, RunsAsked, SweepAsked
from deformrs.tasks.sweep_names import Names, made_name, option_parts
from deformrs.tasks.sweep_runs import (
    PlannedRun,
    Sweep,
    check_goes_on,
    network_in,
    texts_of,
    trained_run,
)
from deformrs.tasks.sweep_values import Values
from deformrs.tasks.training_apart import check_one_machine
from deformrs.tasks.training_options import StartOptions, TrainingOptions
from deformrs.training.augmentation import parse_augmentation

_SOME_SIZE = (224, 224)
"""Pictures are not looked at yet; whether a law or a question fits does not depend on them."""
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
    used = texts_of(runs, RadiusAsked) + texts_of(runs, RegionAsked)
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
    """Raise unless training holds pictures out, and they are what is to be certified."""
    if not training.hold_out:
        raise InputError(
            "split",
            HELD_OUT,
            "needs pictures that training holds out",
            "add hold_out = 0.1 to [train], or --hold-out 0.1",
        )
    if test.data != data.data:
        raise InputError(
            "data",
            test.data,
            f"must be what is trained on, {data.data}, for pictures held out of it",
            f"leave it out of [certify], or split = {HELD_OUT!r}",
        )


def _built(kind: type[Options], values: Values) -> Options:
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in values.items() if key in names})


def _fitting(
    certify: Values, space: Space, unfit: dict[str, DeformRSError]
) -> tuple[Question, ...]:
    """The questions that can be asked over that space; why others cannot goes to `unfit`."""
    found = []
    parts = [part.strip() for text in _texts(certify, "radii") for part in text.split(",")]
    radii = [part for part in parts if part]
    for question in questions(radii, _texts(certify, "regions")):
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
