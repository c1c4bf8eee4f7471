"""Benchmark records: what one machine measured, as a JSON file in results/benchmarks.

    python benchmarks/record.py bench.json results/benchmarks/cpu.json

adds the rows that `deformrs bench --out bench.json` wrote to a record, or all of another record of
this machine. The other scripts add their figures themselves.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError
from deformrs.runs import write_atomically

KEYS = {
    "rows": ("model", "family", "side", "precision", "compiled", "batch_size", "n"),
    "samples_used": (
        *("data", "model", "protocol", "asked", "n", "pictures", "precision", "compiled"),
    ),
    "paths": (
        *("data", "model", "path", "batch_size", "compiled"),
        *("beside_batch_size", "beside_compiled", "precision"),
    ),
    "arrivals": ("data", "model", "by", "n", "images", "precision", "compiled"),
    "engines": ("measure", "model", "images"),
}
"""The fields that identify an entry of each table: a later one replaces an earlier one."""

CURVES = ("time_against_n", "time_against_side", "time_against_images", "memory_against_n")
_SAME_MACHINE = ("device", "cpu", "threads", "torch")


class Record:
    """The figures of one machine, written to a file after each addition, if there is one.

    An existing file is extended. Figures of different machines are never mixed.
    """

    def __init__(self, machine: Config, path: Path | None) -> None:
        self._path = path
        existing = read_record(path) if path is not None and path.exists() else {}
        if existing:
            _check_machine(path, existing["machine"], machine)
        self._tables = {name: _entries(existing.get(name)) for name in KEYS}
        cost = existing.get("cost")
        self._cost = dict(cost) if isinstance(cost, dict) else {}
        self._machine = machine

    def add(self, table: str, entry: Config) -> None:
        """Add an entry to a table, in place of an earlier one with the same key."""
        entries, key = self._tables[table], KEYS[table]
        for place, other in enumerate(entries):
            if all(other.get(field) == entry[field] for field in key):
                entries[place] = entry
                break
        else:
            entries.append(entry)
        self._write()

    def add_curve(self, name: str, points: list[Config]) -> None:
        """Set the points of a cost curve."""
        assert name in CURVES
        self._cost[name] = list[ConfigValue](points)
        self._write()

    @property
    def content(self) -> Config:
        """The content of the file."""
        tables: Config = {name: list[ConfigValue](rows) for name, rows in self._tables.items()}
        curves: Config = {name: self._cost.get(name, []) for name in CURVES}
        return tables | {"cost": curves, "machine": self._machine}

    def _write(self) -> None:
        if self._path is not None:
            write_atomically(self._path, json.dumps(self.content, indent=2) + "\n")


def read_record(path: Path) -> Config:
    """Return the content of a record."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _invalid(path, str(error)) from None
    required = {"rows": list, "samples_used": list, "cost": dict, "machine": dict}
    for key, kind in required.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise _invalid(path, f"no {key}")
    return dict(content)


def _entries(table: ConfigValue) -> list[Config]:
    return [dict(entry) for entry in table if isinstance(entry, dict)] if table else []  # type: ignore[union-attr]


def _check_machine(path: Path | None, recorded: ConfigValue, machine: Config) -> None:
    assert isinstance(recorded, dict)
    for name in _SAME_MACHINE:
        if recorded.get(name) != machine[name]:
            raise InputError(
                f"{name} of {path}",
                repr(recorded.get(name)),
                f"must be that of this machine, {machine[name]!r}, to be extended",
                "write to another file",
            )


def _invalid(path: Path, reason: str) -> InputError:
    return InputError(
        str(path), f"not a benchmark record ({reason})", "must be one", "name another file"
    )


@click.command()
@click.argument("bench", type=click.Path(path_type=Path))
@click.argument("record", type=click.Path(path_type=Path))
def main(bench: Path, record: Path) -> None:
    """Add what BENCH measured to RECORD, without failed rows: BENCH is a record, or what
    `deformrs bench --out` wrote."""
    measured = json.loads(bench.read_text(encoding="utf-8"))
    target = Record(measured["machine"], record)
    for table in KEYS:
        for entry in measured.get(table, []):
            if entry.get("error") is None:
                target.add(table, entry)
    print(f"written: {record}")


if __name__ == "__main__":
    main()
