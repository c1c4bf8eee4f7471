"""The file of a sweep: which runs to train and certify, one after another.

    out = "runs/cifar10"                  # folder of the runs, relative to this file
    [train]                               # options of deformrs train
    data = "cifar10"
    model = "resnet18"
    [certify]                             # options of deformrs certify
    n = 1000
    radii = ["10deg", "30deg"]
    split = "test"                        # or "held-out", with hold_out = 0.1 in [train]
    [[runs]]
    deformation = "rotation"
    noise = ["uniform:54deg", "uniform:180deg"]     # one run each
    [[runs]]
    name = "shift"
    deformation = "translation"
    noise = "gaussian:0.4"
    train = { consistency = 10 }          # for these runs only
    certify = { n = 10000 }
    [[runs]]
    network = "shift"                     # that of a run above: certified again, not trained
    noise = "gaussian:0.3"                # left out, noise and deformation are those of "shift"
    [[runs]]
    begin = "shift"                       # trained on from the weights of a run above
    deformation = "translation"
    noise = "gaussian:0.8"

Files that options name are looked for from the working directory, as on the command line.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from deformrs.errors import InputError
from deformrs.geometry import Padding
from deformrs.tasks.certifying import Sampling
from deformrs.tasks.options import DataOptions, ModelOptions
from deformrs.tasks.sweep_names import check_name
from deformrs.tasks.sweep_values import (
    Hint,
    Strings,
    Values,
    checked,
    fitted,
    hints_of,
    unknown_key,
)
from deformrs.tasks.training_options import StartOptions, TrainingOptions

TRAIN: dict[str, Hint] = {
    **hints_of(DataOptions, "data", "data_root"),
    **hints_of(StartOptions),
    **hints_of(TrainingOptions),
    "padding": Padding,
}
"""What may stand in [train]."""
CERTIFY: dict[str, Hint] = {
    **hints_of(Sampling),
    **hints_of(ModelOptions, "precision", "compile", "device", "batch_size"),
    "data": str,
    "split": Literal["test", "held-out"],
    "radii": Strings,
    "regions": Strings,
}
"""What may stand in [certify]."""
MACHINE = (
    *("device", "devices", "nodes", "strategy", "compile", "hold", "workers", "data_root"),
    *("checkpoint_seconds", "tensorboard"),
)
"""Options that say where and how fast, not what comes of it: another machine may have others."""
_RUNS: dict[str, Hint] = {
    "name": str,
    "network": str,
    "begin": str,
    "deformation": Strings,
    "noise": Strings,
}
_TABLES = ("out", "train", "certify", "runs")


@dataclass(frozen=True)
class RunsAsked:
    """A run for each pair of a deformation and a noise, with options of their own.

    Where it has the `network` of another run, deformations and noises may be empty: they are that
    run's then.
    """

    deformations: tuple[str, ...]
    noises: tuple[str, ...]
    where: str
    """For messages: which entry this is."""
    name: str | None = None
    network: str | None = None
    """The name of the run that trains it; None: it is trained here."""
    begin: str | None = None
    """The name of the run with whose weights training begins."""
    train: Values = field(default_factory=dict)
    certify: Values = field(default_factory=dict)


@dataclass(frozen=True)
class SweepAsked:
    """What a file or a command line asks for, each value of its type but not yet tried."""

    out: Path
    where: str
    train: Values
    certify: Values
    runs: tuple[RunsAsked, ...]


def read_sweep(path: Path) -> SweepAsked:
    """What is written in that file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"the sweep {path}", "missing", "must be a file", "check it") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"the sweep {path}", f"not readable ({reason})", "must be a TOML file", "mend it"
        ) from None
    for key in table:
        if key in ("deformation", "noise"):
            raise _belongs_to_runs(key, str(path))
        if key not in _TABLES:
            raise unknown_key(key, _TABLES, str(path))
    out = fitted(f"out in {path}", table.get("out", path.stem), str)
    if not out:
        raise InputError(f"out in {path}", repr(out), "must name a folder", 'e.g. "runs/cifar10"')
    entries = table.get("runs", [])
    if not isinstance(entries, list):
        entries = [entries]  # [runs] for a single one
    if not entries:
        raise InputError(f"runs in {path}", "missing", "must be at least one", "add [[runs]]")
    return SweepAsked(
        path.parent / str(out),
        str(path),
        _options(table.get("train", {}), TRAIN, f"[train] of {path}"),
        _options(table.get("certify", {}), CERTIFY, f"[certify] of {path}"),
        tuple(
            _entry(entry, f"[[runs]] {number} of {path}")
            for number, entry in enumerate(entries, start=1)
        ),
    )


def _entry(entry: object, where: str) -> RunsAsked:
    own = dict(entry) if isinstance(entry, dict) else {}
    train = _options(own.pop("train", {}), TRAIN, f"train of {where}")
    certify = _options(own.pop("certify", {}), CERTIFY, f"certify of {where}")
    for key in own:
        if key in TRAIN or key in CERTIFY:
            table = "train" if key in TRAIN else "certify"
            raise InputError(
                f"the key {key!r} in {where}",
                f"an option of deformrs {table}",
                "cannot stand there by itself",
                f"write {table} = {{ {key} = … }}",
            )
        if key not in _RUNS:
            raise unknown_key(key, (*_RUNS, "train", "certify"), where)
    values = checked(own if isinstance(entry, dict) else entry, _RUNS, where)
    name, network, begin = (_text(values, key) for key in ("name", "network", "begin"))
    if name is not None:
        check_name(name, where)
    for key, given in (("train", bool(train)), ("begin", begin is not None)):
        if network is not None and given:
            raise InputError(
                f"{key} of {where}",
                "there beside network",
                "has nothing to train",
                "leave one of the two out",
            )
    deformations, noises = (_several(values, key, where) for key in ("deformation", "noise"))
    return RunsAsked(deformations, noises, where, name, network, begin, train, certify)


def _text(values: Values, key: str) -> str | None:
    found = values.get(key)
    return None if found is None else str(found)


def _several(values: Values, key: str, where: str) -> tuple[str, ...]:
    found = values.get(key)
    if found is None and "network" in values:
        return ()
    if not isinstance(found, tuple) or not found:
        example = {"deformation": '"rotation"', "noise": '"uniform:30deg"'}[key]
        raise InputError(f"{key} in {where}", "missing", "is needed", f"e.g. {key} = {example}")
    return tuple(map(str, found))


def _options(table: object, hints: dict[str, Hint], where: str) -> Values:
    for key in ("deformation", "noise"):
        if isinstance(table, dict) and key in table:
            raise _belongs_to_runs(key, where)
    if isinstance(table, dict) and table.get("batch_size") == "auto":
        rest = {key: value for key, value in table.items() if key != "batch_size"}
        return checked(rest, hints, where) | {"batch_size": None}
    return checked(table, hints, where)


def _belongs_to_runs(key: str, where: str) -> InputError:
    return InputError(
        f"the key {key!r} in {where}",
        "out of place",
        "is what runs differ in",
        "move it to [[runs]]",
    )
