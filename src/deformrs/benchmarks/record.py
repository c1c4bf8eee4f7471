"""What was measured, on which machine, as one JSON file that is whole at any moment."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from deformrs import __version__
from deformrs.benchmarks.paths import Compared
from deformrs.benchmarks.rows import Row
from deformrs.benchmarks.samples import Used
from deformrs.config import Config, ConfigValue
from deformrs.dataset import device_name
from deformrs.errors import InputError
from deformrs.runs import write_atomically

CURVES = (
    "time_against_n",
    "time_against_side",
    "time_against_images",
    "memory_against_n",
)
_SAME_MACHINE = ("device", "cpu", "threads", "torch")


@dataclass(frozen=True)
class Machine:
    """Where it was measured."""

    device: str
    cpu: str
    cores: int
    threads: int
    torch: str
    cuda: str | None
    python: str
    system: str
    deformrs: str


def this_machine(device: torch.device) -> Machine:
    """The one we are on."""
    return Machine(
        device=device_name(device),
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        python=platform.python_version(),
        system=platform.system(),
        deformrs=__version__,
    )


class Record:
    """Rows, samples, paths and curves, written to `path` after each, if there is one.

    A file that is there already is added to: what is measured again takes the place of what was.
    Figures of two machines are never mixed.
    """

    def __init__(self, machine: Machine, path: Path | None) -> None:
        self._path = path
        found: Config = {} if path is None or not path.exists() else read_record(path)
        if found:
            _check_same(path, found, machine)
        self._rows = {_key_of(row, Row): row for row in _listed(found, "rows")}
        self._used = {_key_of(used, Used): used for used in _listed(found, "samples_used")}
        self._paths = {_key_of(one, Compared): one for one in _listed(found, "paths")}
        cost = found.get("cost")
        self._cost: Config = dict(cost) if isinstance(cost, dict) else {}
        self._machine = machine

    def add_row(self, row: Row) -> None:
        key = _text(row.key)
        if row.error is None or key not in self._rows:  # a failure never takes a figure's place
            self._rows[key] = dataclasses.asdict(row)
        self._write()

    def add_used(self, used: Used) -> None:
        self._used[_text(used.key)] = dataclasses.asdict(used)
        self._write()

    def add_path(self, compared: Compared) -> None:
        self._paths[_text(compared.key)] = dataclasses.asdict(compared)
        self._write()

    def add_curve(self, name: str, points: list[Config]) -> None:
        assert name in CURVES
        self._cost[name] = list[ConfigValue](points)
        self._write()

    @property
    def content(self) -> Config:
        """All of it, as JSON holds it."""
        return {
            "rows": list[ConfigValue](self._rows.values()),
            "samples_used": list[ConfigValue](self._used.values()),
            "paths": list[ConfigValue](self._paths.values()),
            "cost": {name: self._cost.get(name, []) for name in CURVES},
            "machine": dataclasses.asdict(self._machine),
        }

    def _write(self) -> None:
        if self._path is not None:
            write_atomically(self._path, json.dumps(self.content, indent=2) + "\n")


def read_record(path: Path) -> Config:
    """What `Record` wrote, or an error that says what is wrong with the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            str(path), "absent", "must be a file that deformrs bench wrote", "run it with --out"
        ) from None
    except (OSError, ValueError) as error:
        raise _foreign(path, str(error)) from None
    wanted = {"rows": list, "samples_used": list, "cost": dict, "machine": dict}
    for key, kind in wanted.items():
        if not isinstance(found, dict) or not isinstance(found.get(key), kind):
            raise _foreign(path, f"no {key}")
    return dict(found)


def machine_of(path: Path) -> Machine:
    """The machine that the record in that file is of."""
    found = read_record(path)["machine"]
    assert isinstance(found, dict)
    try:
        return Machine(**found)  # type: ignore[arg-type]
    except TypeError as error:
        raise _foreign(path, str(error)) from None


def _check_same(path: Path | None, found: Config, machine: Machine) -> None:
    there = found["machine"]
    assert isinstance(there, dict)
    here = dataclasses.asdict(machine)
    for name in _SAME_MACHINE:
        if there.get(name) != here[name]:
            raise InputError(
                f"{name} of {path}",
                repr(there.get(name)),
                f"must be that of this machine, {here[name]!r}, to be added to",
                "write to another file",
            )


def _listed(found: Config, key: str) -> list[Config]:
    values = found.get(key, [])
    assert isinstance(values, list)
    return [dict(value) for value in values if isinstance(value, dict)]


def _key_of(record: Config, kind: type[Row] | type[Used] | type[Compared]) -> str:
    """The key of a stored record; one of another version is kept under what it says."""
    names = {field.name for field in dataclasses.fields(kind)}
    if record.keys() != names:
        return json.dumps(record, sort_keys=True)
    return _text(kind(**record).key)  # type: ignore[arg-type]


def _text(key: tuple[object, ...]) -> str:
    return json.dumps(key)


def _cpu_name() -> str:
    """As the system calls it."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _foreign(path: Path, reason: str) -> InputError:
    return InputError(
        str(path),
        f"not a record of deformrs bench ({reason})",
        "must be one to be read or added to",
        "name another file",
    )
