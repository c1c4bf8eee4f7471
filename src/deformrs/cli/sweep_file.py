"""Sweep files: which networks to train and certify, and how their options expand into runs.

    out = "runs/cifar10"                  # folder of the runs, relative to this file; --out wins
    [train]                               # options of deformrs train
    data = "cifar10"
    model = "resnet18"
    [certify]                             # options of deformrs certify
    n = 1000
    [[runs]]
    deformation = "rotation"
    noise = ["uniform:54deg", "uniform:180deg"]     # one run each
    train = { consistency = 10 }          # for these runs only

docs/training.md describes all of it. Other paths are relative to the working directory, as on the
command line.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from deformrs.checks import is_real
from deformrs.cli.options import (
    DataOptions,
    ModelOptions,
    SamplingOptions,
    SmoothingOptions,
    options_from,
)
from deformrs.cli.sweep_run import MACHINE_OPTIONS, SweepRun, network_in
from deformrs.cli.training_options import StartOptions, TrainingOptions
from deformrs.data.image_set import HELD_OUT
from deformrs.errors import DeformRSError, InputError, UnsupportedError, did_you_mean, quoted
from deformrs.geometry import Padding
from deformrs.limits import TOML_BYTES, parse_toml, read_text
from deformrs.models.types import require_trust
from deformrs.noise import NoiseLaw
from deformrs.space import Space
from deformrs.specs import parse_deformation, parse_noise
from deformrs.stopping import Query, parse_queries
from deformrs.training.augmentation import parse_augmentation
from deformrs.training.distributed import started_processes

REPORT = "report"
"""The folder of the report, next to those of the runs."""

Hint = object
"""A type as an annotation says it."""
Value = str | int | float | bool | tuple[str, ...] | tuple[float, ...] | None
Values = dict[str, Value]
"""Options by name, each of its own type."""

Strings, Numbers = tuple[str, ...], tuple[float, ...]
_RULES: dict[Hint, tuple[str, str]] = {
    bool: ("must be true or false", "without quotes"),
    int: ("must be an integer", "without quotes, e.g. 100"),
    float: ("must be a number", "without quotes, e.g. 0.1"),
    str: ("must be text", 'in quotes, e.g. "cifar10"'),
    Strings: ("must be a list of texts", 'e.g. ["10deg", "30deg"]'),
    Numbers: ("must be a list of numbers", "e.g. [0.5, 0.5, 0.5]"),
}


def _hints(kind: type, *names: str) -> dict[str, Hint]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in names or hints}


TRAIN: dict[str, Hint] = {
    "data": str,
    **_hints(StartOptions),
    **_hints(TrainingOptions),
    "padding": Padding,
}
"""The options of [train]."""
CERTIFY: dict[str, Hint] = {
    **_hints(SamplingOptions),
    **_hints(ModelOptions, "precision", "compile", "device", "batch_size"),
    "data": str,
    "split": Literal["test", "held-out"],
    "radii": Strings,
    "regions": Strings,
}
"""The options of [certify]."""
_RUNS: dict[str, Hint] = {
    "name": str,
    "network": str,
    "begin": str,
    "deformation": Strings,
    "noise": Strings,
}
_TABLES = ("out", "train", "certify", "runs")


@dataclass(frozen=True)
class Sweep:
    """Runs side by side in one folder, no two of one name."""

    out: Path
    runs: tuple[SweepRun, ...]

    def only(self, names: Sequence[str]) -> Sweep:
        """Return the sweep of the runs with these names; of all without any."""
        for name in names:
            _check_known("the run", name, [run.name for run in self.runs], "must be in the sweep")
        return Sweep(self.out, tuple(run for run in self.runs if not names or run.name in names))


def read_sweep(
    path: Path, out: Path | None = None, device: str | None = None, *, trust_code: bool = False
) -> Sweep:
    """Read a sweep file; `out` and `device` take the place of what it says.

    Guarantee: without `trust_code`, no Python file that it names is executed. Unless `out` is
    given, the folder of the runs lies in that of the file or in the working directory.
    """
    try:
        table = parse_toml(read_text(path, TOML_BYTES))
    except FileNotFoundError:
        raise InputError(f"the sweep {path}", "missing", "must be a file", "check it") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"the sweep {path}", f"not readable ({reason})", "must be a TOML file", "fix it"
        ) from None
    name = _fit(f"out in {path}", table.get("out", path.stem), str)
    if not name:
        raise InputError(f"out in {path}", repr(name), "must name a folder", 'e.g. "runs/cifar10"')
    place = path.parent / str(name)
    if out is None:
        homes = (Path(os.path.abspath(folder)) for folder in (path.parent, Path.cwd()))
        if not any(Path(os.path.abspath(place)).is_relative_to(home) for home in homes):
            raise InputError(
                f"out in {path}",
                repr(name),
                "must lie in the folder of this file or in the working directory",
                f"if you want the runs there, say so yourself: --out {quoted(place)}",
            )
        out = place
    return plan_sweep(table, out, str(path), device=device, trust_code=trust_code)


def plan_sweep(
    table: Mapping[str, object],
    out: Path,
    where: str = "",
    *,
    device: str | None = None,
    trust_code: bool = False,
) -> Sweep:
    """Expand the tables of a sweep file into runs, without loading or writing anything.

    A radius or region applies to the runs whose deformation it fits, which must be at least one.
    """
    if started_processes() > 1:
        raise InputError(
            "this command",
            f"started {started_processes()} times by torchrun",
            "must be started once: it starts the processes of each training itself",
            "set devices among the options of training",
        )
    for key in table:
        _check_key(key, _TABLES, where)
    shared_train = _options(table.get("train", {}), TRAIN, f"[train] of {where}")
    shared_certify = _options(table.get("certify", {}), CERTIFY, f"[certify] of {where}")
    if device is not None:
        shared_train["device"] = shared_certify["device"] = device
    entries = table.get("runs")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"runs in {where}", "missing", "must be at least one", "add [[runs]]")
    runs: list[SweepRun] = []
    misfits: dict[str, DeformRSError] = {}
    for number, content in enumerate(entries, start=1):
        place = f"[[runs]] {number} of {where}" if where else ""
        entry = _entry(content, place)
        train, certify = shared_train | entry.train, shared_certify | entry.certify
        with _located(place):
            network = _earlier("the network", entry.network, runs)
            begin = _earlier("begin", entry.begin, runs)
            for deformation, noise in entry.pairs(network):
                folder = out / _new_name(entry, deformation, noise, runs)
                for what, text in (("model", train.get("model")), ("deformation", deformation)):
                    if ".py:" in str(text):
                        code = f"{text}, a Python file that is executed"
                        require_trust(trust_code, f"the {what}", code, "or leave the run out")
                padding = train.get("padding", "zeros")
                if network is not None:
                    padding = network.smoothing.padding
                smoothing = SmoothingOptions(deformation, noise, padding)  # type: ignore[arg-type]
                queries = _fitting_queries(certify, smoothing, misfits)
                runs.append(_run(folder, smoothing, train, certify, queries, network, begin))
    applied = {query.text for run in runs for query in run.queries}
    for text, error in misfits.items():
        if text not in applied:
            with _located(where):
                raise error
    return Sweep(out, tuple(runs))


@dataclass(frozen=True)
class _Entry:
    """One [[runs]]: a run for each pair of a deformation and a noise."""

    deformations: tuple[str, ...]
    noises: tuple[str, ...]
    name: str | None
    network: str | None
    begin: str | None
    train: Values
    certify: Values

    def pairs(self, network: SweepRun | None) -> list[tuple[str, str]]:
        """Return each deformation with each noise; without any, those of the network's run."""
        deformations, noises = self.deformations, self.noises
        if network is not None:
            deformations = deformations or (network.smoothing.deformation,)
            noises = noises or (network.smoothing.noise,)
        for key, values, example in (
            ("deformation", deformations, '"rotation"'),
            ("noise", noises, '"uniform:30deg"'),
        ):
            if not values:
                raise InputError(key, "missing", "is needed", f"e.g. {key} = {example}")
        return list(product(deformations, noises))


def _entry(content: object, where: str) -> _Entry:
    own = dict(content) if isinstance(content, dict) else {}
    train = _options(own.pop("train", {}), TRAIN, f"train of {where}")
    certify = _options(own.pop("certify", {}), CERTIFY, f"certify of {where}")
    for key in own:
        table = "train" if key in TRAIN else "certify" if key in CERTIFY else None
        if table is not None:
            raise InputError(
                f"the key {key!r} in {where}",
                f"an option of deformrs {table}",
                "must be in a table",
                f"write {table} = {{ {key} = … }}",
            )
        _check_key(key, (*_RUNS, "train", "certify"), where)
    values = _options(own if isinstance(content, dict) else content, _RUNS, where)
    name, network, begin = (_text(values, key) for key in ("name", "network", "begin"))
    if network is not None and (train or begin is not None):
        raise InputError(
            f"network of {where}",
            f"given with {'train' if train else 'begin'}",
            "leaves nothing to train",
            "remove one of the two",
        )
    deformations, noises = _texts(values, "deformation"), _texts(values, "noise")
    return _Entry(deformations, noises, name, network, begin, train, certify)


def _earlier(what: str, name: str | None, runs: Sequence[SweepRun]) -> SweepRun | None:
    """Return the run of that name, which must train a network of its own; None without a name."""
    if name is None:
        return None
    trained = {run.name: run for run in runs if run.network is None}
    _check_known(what, name, list(trained), "must be the name of a run above that is trained")
    return trained[name]


def _run(
    folder: Path,
    smoothing: SmoothingOptions,
    train: Values,
    certify: Values,
    queries: tuple[Query, ...],
    network: SweepRun | None,
    begin: SweepRun | None,
) -> SweepRun:
    """Return one run, checked as far as it can be without data."""
    if network is not None:
        start, data, training = network.start, network.data, network.training
    else:
        for key in ("data", "model"):
            if not train.get(key):
                raise InputError(key, "missing", "is needed to train", f"add {key} to [train]")
        start, training = options_from(StartOptions, train), options_from(TrainingOptions, train)
        data = options_from(DataOptions, train | {"split": "train"})
        if training.augment != "auto":
            parse_augmentation(training.augment)
        if begin is not None:
            _check_same_network(start, begin)
    test = options_from(DataOptions, {"data": data.data, **certify})
    if test.split == HELD_OUT:
        _check_held_out(training, data, test)
    model, weights = network_in(folder if network is None else network.folder, start.model)
    execution: Values = {"device": training.device, **certify}
    return SweepRun(
        folder=folder,
        start=start,
        data=data,
        smoothing=smoothing,
        training=training,
        model=options_from(ModelOptions, execution | {"model": model, "weights": weights}),
        test=test,
        sampling=options_from(SamplingOptions, certify),
        queries=queries,
        network=network,
        begin=begin,
    )


def _check_same_network(start: StartOptions, begin: SweepRun) -> None:
    for key in ("model", "resize", "crop", "interpolation", "channels", "mean", "std"):
        own, other = getattr(start, key), getattr(begin.start, key)
        if own != other:
            raise InputError(
                key,
                repr(own),
                f"must be that of {begin.name}, {other!r}, with whose weights training begins",
                "remove it",
            )


_ANY_SIZE = (28, 28)
"""No image is read yet; whether a law or a query fits a deformation does not depend on its size."""


def _noise(smoothing: SmoothingOptions, space: Space) -> NoiseLaw:
    """Return the noise of a run; an error names its deformation, of which a sweep may have many."""
    try:
        return parse_noise(smoothing.noise, space)
    except InputError as error:
        raise InputError(
            error.name,
            f"{error.value} in the noise {smoothing.noise!r} on {smoothing.deformation}",
            error.rule,
            error.remedy,
        ) from None


def _check_held_out(training: TrainingOptions, data: DataOptions, test: DataOptions) -> None:
    if not training.hold_out:
        raise InputError(
            "split",
            HELD_OUT,
            "needs images that training holds out",
            "add hold_out = 0.1 to [train]",
        )
    if test.data != data.data:
        raise InputError(
            "data",
            test.data,
            f"must be the training data, {data.data}, for images held out of it",
            f"remove it, or split = {HELD_OUT!r}",
        )


def _fitting_queries(
    certify: Values, smoothing: SmoothingOptions, misfits: dict[str, DeformRSError]
) -> tuple[Query, ...]:
    """Return the queries that deformation and noise can answer; why others cannot is added to
    `misfits`."""
    space = parse_deformation(smoothing.deformation).space(_ANY_SIZE)
    radii = [part.strip() for text in _texts(certify, "radii") for part in text.split(",")]
    queries = parse_queries(radii, _texts(certify, "regions"))
    law, sampling = _noise(smoothing, space), options_from(SamplingOptions, certify)
    fitting, beyond = [], None
    for query in queries:
        try:
            query.check(space)
        except (InputError, UnsupportedError) as error:
            misfits[query.text] = error
            continue
        try:
            if not _needs_size(smoothing.noise, query.text):
                sampling.plan([query]).check_attainable(law, space, num_classes=2)
        except InputError as error:
            misfits[query.text] = beyond = error
        else:
            fitting.append(query)
    if beyond is not None and not fitting:  # without a query it would get all samples
        raise beyond
    return tuple(fitting)


def _needs_size(noise: str, query: str) -> bool:
    """Return whether pixels of one have to be compared with half image sides of the other."""
    return "px" in noise + query and not ("px" in noise and "px" in query)


_LONGEST_NAME = 200


def folder_name(*parts: str) -> str:
    """Return a readable folder name made of these parts.

    >>> folder_name("rotation+scaling", "uniform:54deg+uniform:30%")
    'rotation-scaling_uniform-54deg-uniform-30pct'
    """
    return "_".join(_plain(part) for part in parts if part)


def _plain(text: str) -> str:
    # Of the path of a file, only its name is telling.
    text = "+".join(part.strip().rpartition("/")[2] for part in text.split("+"))
    text = text.replace(".py:", "-").replace("%", "pct").replace("°", "deg")
    return re.sub(r"[^a-zA-Z0-9_.=]+", "-", text).strip("-.") or "x"


def _new_name(entry: _Entry, deformation: str, noise: str, runs: Sequence[SweepRun]) -> str:
    """Return a name for the run: that of one folder on every system, which no other run has."""
    if entry.name is None:
        relations = {"network": entry.network, "begin": entry.begin}
        options: Values = {key: value for key, value in relations.items() if value}
        options |= entry.train
        options |= {k: v for k, v in entry.certify.items() if k not in ("radii", "regions")}
        own = {key: value for key, value in options.items() if key not in MACHINE_OPTIONS}
        name = folder_name(deformation, noise, *(_option_part(*item) for item in own.items()))
    else:
        several = deformation if len(entry.deformations) > 1 else ""
        name = folder_name(several, noise if len(entry.noises) > 1 else "")
        name = f"{entry.name}_{name}" if name else entry.name
    _check_name(name)
    if len(name.encode()) > _LONGEST_NAME or _folded(name) in [_folded(run.name) for run in runs]:
        raise InputError(
            "the name of the run",
            repr(name),
            f"must differ from those above and have at most {_LONGEST_NAME} bytes",
            "give the run another one in a sweep file: name = …",
        )
    return name


def _option_part(key: str, value: Value) -> str:
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{key.replace('_', '-')}-{_plain(shown)}"


_RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9])( *\..*)?")
"""The names of devices on Windows, whatever their ending."""


def _check_name(name: str) -> None:
    """Raise unless a name is that of one folder on every system, and no option of a command."""
    plain = re.fullmatch(r"[\w=,+]([\w=,+. -]*[\w=,+-])?", name)
    if not plain or _folded(name) == REPORT or _RESERVED.fullmatch(_folded(name)):
        raise InputError(
            "the name of the run",
            repr(name),
            "must be a plain folder name of letters, digits, '.', '-' and '_' that does not begin "
            f"with '-', and neither {REPORT!r} nor the name of a device such as 'con'",
            "e.g. 'shift'",
        )


def _folded(name: str) -> str:
    """Return a name without the differences that some file systems ignore."""
    return unicodedata.normalize("NFKC", name).casefold()


def _options(table: object, hints: Mapping[str, Hint], where: str) -> Values:
    """Return the values of a table whose keys and types are known.

    >>> _options({"batch_size": 4, "tilt": 1}, {"batch_size": int | None, "tilt": float}, "[train]")
    {'batch_size': 4, 'tilt': 1.0}
    """
    if not isinstance(table, dict):
        raise InputError(where, repr(table), "must be a table", "lines of key = value")
    for key in table:
        _check_key(key, hints, where)
    return {key: _fit(f"{key} in {where}", value, hints[key]) for key, value in table.items()}


def _check_key(key: str, known: Iterable[str], where: str) -> None:
    if key in known:
        return
    name, rule = f"the key {key!r} in {where}", "must be one of " + ", ".join(known)
    remedy = "move it to [[runs]]" if key in _RUNS else did_you_mean(key, known, "remove it")
    raise InputError(name, "unknown", rule, remedy)


def _check_known(what: str, name: str, known: Sequence[str], rule: str) -> None:
    if name not in known:
        fallback = f"there are {', '.join(known) or 'none'}"
        raise InputError(what, repr(name), rule, did_you_mean(name, known, fallback))


def _fit(name: str, value: object, hint: Hint) -> Value:
    """Return the value as that type; an integer may stand for a float, a text for a list of one."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is Literal:
        words = tuple(map(str, get_args(hint)))
        if value not in words:
            rule = "must be one of " + ", ".join(words)
            raise InputError(name, repr(value), rule, did_you_mean(value, words, "choose one"))
        return str(value)
    if hint == Strings and isinstance(value, str):
        value = [value]
    if not _fits(value, hint):
        rule, example = _RULES[hint]
        raise InputError(name, repr(value), rule, example)
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and not text.isprintable():
            raise InputError(name, repr(text), "must not have control characters", "remove them")
    if hint is float:
        return float(value)  # type: ignore[arg-type]
    if hint == Numbers:
        return tuple(map(float, value))  # type: ignore[call-overload]
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def _fits(value: object, hint: Hint) -> bool:
    if hint == Strings:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if hint == Numbers:
        return isinstance(value, list) and all(map(is_real, value))
    if hint is float:
        return is_real(value)
    return type(value) is hint


def _text(values: Values, key: str) -> str | None:
    value = values.get(key)
    return None if value is None else str(value)


def _texts(values: Values, key: str) -> tuple[str, ...]:
    value = values.get(key)
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Name the part of the file that an error lies in; nothing for the command line."""
    try:
        yield
    except DeformRSError as error:
        if not where:
            raise
        name = f"{error.name} for {where}"
        raise type(error)(name, error.value, error.rule, error.remedy) from None
