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

import difflib
import hashlib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from deformrs.checks import is_real
from deformrs.cli.arguments import DataOptions, ModelOptions, StartOptions, TrainingOptions
from deformrs.cli.certify import Sampling
from deformrs.errors import InputError
from deformrs.geometry import Padding

Hint = object
"""A type as an annotation says it."""
Value = str | int | float | bool | tuple[str, ...] | tuple[float, ...] | None
Values = dict[str, Value]
"""Options by their names, each of its own type."""

Strings, Numbers = tuple[str, ...], tuple[float, ...]
_RULES: dict[Hint, tuple[str, str]] = {
    bool: ("must be true or false", "without quotes"),
    int: ("must be an integer", "without quotes, e.g. 100"),
    float: ("must be a number", "without quotes, e.g. 0.1"),
    str: ("must be text", 'in quotes, e.g. "cifar10"'),
    Strings: ("must be a list of texts", 'e.g. ["10deg", "30deg"]'),
    Numbers: ("must be a list of numbers", "e.g. [0.5, 0.5, 0.5]"),
}


def hints_of(kind: type, *names: str) -> dict[str, Hint]:
    """The types of a dataclass's fields, of all or of those named."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in names} if names else hints


def checked(table: object, hints: dict[str, Hint], where: str) -> Values:
    """The values of a table, if all of them may stand there. `-` and `_` in a key are one.

    >>> checked({"batch-size": 4, "seed": 1}, {"batch_size": int | None, "seed": int}, "[train]")
    {'batch_size': 4, 'seed': 1}
    """
    if not isinstance(table, dict):
        raise InputError(where, repr(table), "must be a table", "lines of key = value")
    values: Values = {}
    for written, value in table.items():
        key = str(written).replace("-", "_")
        if key not in hints:
            raise unknown_key(str(written), hints, where)
        if key in values:
            raise InputError(f"{key} in {where}", "there twice", "must be there once", "remove one")
        values[key] = fitted(f"{key} in {where}", value, hints[key])
    return values


def unknown_key(key: str, known: Iterable[str], where: str) -> InputError:
    """The error for a key that means nothing there, with the nearest that does."""
    names = list(known)
    near = difflib.get_close_matches(key.replace("-", "_"), names, n=1)
    return InputError(
        f"the key {key!r} in {where}",
        "unknown",
        "must be one of " + ", ".join(names),
        f"did you mean {near[0]!r}?" if near else "remove it",
    )


def fitted(name: str, value: object, hint: Hint) -> Value:
    """The value as that type; a number may stand for a float, one text for a list of one."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is Literal:
        return _word(name, value, tuple(map(str, get_args(hint))))
    if hint == Strings and isinstance(value, str):
        value = [value]
    if not _fits(value, hint):
        rule, example = _RULES[hint]
        raise InputError(name, repr(value), rule, example)
    if hint is float:
        return float(value)  # type: ignore[arg-type]
    if hint == Numbers:
        return tuple(map(float, value))  # type: ignore[call-overload]
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def _fits(value: object, hint: Hint) -> bool:
    if hint == Strings:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if hint == Numbers:
        return isinstance(value, list) and all(is_real(item) for item in value)
    if hint is float:
        return is_real(value)
    return type(value) is hint


def _word(name: str, value: object, words: tuple[str, ...]) -> str:
    if value in words:
        return str(value)
    near = difflib.get_close_matches(str(value), words, n=1)
    raise InputError(
        name,
        repr(value),
        "must be one of " + ", ".join(words),
        f"did you mean {near[0]!r}?" if near else "choose one",
    )


REPORT = "report"
"""The folder beside the runs that a report of them goes to."""
_LONGEST = 100
_WORDS = {"%": "pct", "°": "deg"}


def made_name(*parts: str) -> str:
    """A name of these parts in letters that every file system takes.

    >>> made_name("rotation+scaling", "uniform:54deg+uniform:30%")
    'rotation-scaling_uniform-54deg-uniform-30pct'
    """
    plain = [_plain(part) for part in parts if part]
    name = "_".join(plain)
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{_digest(parts)}"


def option_parts(values: Values, before: str = "") -> tuple[str, ...]:
    """A part for every option that a run has of its own.

    >>> option_parts({"consistency": 10.0})
    ('consistency-10',)
    """
    return tuple(f"{before}{key.replace('_', '-')}-{_shown(v)}" for key, v in values.items())


class Names:
    """Names that were given out, with what each stands for. Case alone tells no folders apart."""

    def __init__(self) -> None:
        self._taken: dict[str, object] = {}

    def add(self, name: str, meaning: object, *, made: bool, where: str) -> str:
        """The name; a made one that reads like another's gets a mark of its meaning.

        Two runs of one meaning, or of one given name, are an error.
        """
        if made and self._taken.get(name.casefold(), meaning) != meaning:
            name = f"{name}-{_digest(meaning)}"
        if name.casefold() in self._taken:
            raise InputError(
                f"the name of {where or 'a run'}",
                f"{name!r}, as that of another run",
                "must be its own",
                "remove one of them, or give one another name",
            )
        self._taken[name.casefold()] = meaning
        return name


def check_name(name: str, where: str) -> None:
    """Raise unless a folder of the user's naming lies beside the others and is none of ours."""
    if not re.fullmatch(r"[\w=,+-]([\w=,+. -]*[\w=,+-])?", name) or len(name) > _LONGEST:
        raise InputError(
            f"name in {where}",
            repr(name),
            f"must be a plain folder name of at most {_LONGEST} letters, digits, '.', '-' and '_'",
            "e.g. 'shift'",
        )
    if name.casefold() == REPORT:
        raise InputError(
            f"name in {where}", repr(name), "is kept for the report of all runs", "choose another"
        )


def _plain(text: str) -> str:
    # Of a file of one's own, the folder it lies in says little.
    text = "+".join(part.strip().rpartition("/")[2] for part in text.split("+"))
    for sign, word in _WORDS.items():
        text = text.replace(sign, word)
    return re.sub(r"[^a-zA-Z0-9_.=]+", "-", text.replace(".py:", "-")).strip("-.") or "x"


def _shown(value: object) -> str:
    return _plain(f"{value:g}" if isinstance(value, float) else str(value))


def _digest(meaning: object) -> str:
    return hashlib.sha256(repr(meaning).encode()).hexdigest()[:6]


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
            f"the sweep {path}", f"not readable ({reason})", "must be a TOML file", "fix it"
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
