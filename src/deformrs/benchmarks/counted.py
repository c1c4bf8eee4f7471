"""How many samples runs took that are there already: nothing is measured again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from deformrs.benchmarks.alike import check_alike, fixed_of, whole
from deformrs.benchmarks.record import Record, machine_of, this_machine
from deformrs.benchmarks.samples import AskedOf, Setting, Used, certified_at, tally
from deformrs.benchmarks.shown import used_table
from deformrs.cli.arguments import chosen_device
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.runs import Result, StoredRun, read_run, read_times
from deformrs.stopping import RadiusQuery
from deformrs.units import parse_quantity


def show_runs(
    folders: Sequence[Path], radii: Sequence[str], out: Path | None, console: Console
) -> None:
    """Print what the runs in these folders took, and add it to the record `out`."""
    runs = [read_run(folder) for folder in folders]
    rows = count_runs(runs, radii)
    record = None if out is None else record_for(out, runs[0].config)
    console.print(used_table(rows))
    if record is not None:
        for row in rows:
            record.add_used(row)
        console.print(f"written: {out}", markup=False, soft_wrap=True)


def count_runs(runs: Sequence[StoredRun], radii: Sequence[str]) -> list[Used]:
    """A row for each run of one classifier; `radii` are asked where none were.

    Beside the run with a fixed number of samples, if there is one, the images that another has
    in common with it are a row of their own.
    """
    check_alike(runs)
    fixed = fixed_of(runs)
    rows = []
    for run in runs:
        asked = _asked_of(run, radii)
        # Without a fixed one, it is compared with as many samples as it was allowed.
        n = whole(run.config if fixed is None else fixed.config, "n")
        ours, theirs = ([], []) if fixed is None or run is fixed else _common(run, fixed)
        if ours:
            rows.append(_row(run, asked, ours, n, certified_at(asked.radii, theirs)))
        if len(ours) < len(run.results):
            rows.append(_row(run, asked, run.results, n, None))
    return rows


def _common(run: StoredRun, fixed: StoredRun) -> tuple[list[Result], list[Result]]:
    """The results of both for the images that both have."""
    keys = [{(r.index, r.pixels, r.label): r for r in one.results} for one in (run, fixed)]
    both = [key for key in keys[0] if key in keys[1]]
    return [keys[0][key] for key in both], [keys[1][key] for key in both]


def _row(
    run: StoredRun,
    asked: AskedOf,
    results: Sequence[Result],
    fixed_n: int,
    certified: dict[str, float] | None,
) -> Used:
    times = read_times(run.folder)
    missing = [result.index for result in results if result.index not in times]
    if missing:
        raise InputError(
            f"the times of {run.folder}",
            f"without image {missing[0]}",
            "must be there for every image, to say how fast it was",
            "restore them, or certify again",
        )
    seconds = math.fsum(times[result.index] for result in results)
    return tally(_setting(run), asked, results, seconds, fixed_n, certified)


def _asked_of(run: StoredRun, radii: Sequence[str]) -> AskedOf:
    """What a run was asked, from its configuration."""
    n, stopping = whole(run.config, "n"), run.config.get("stopping")
    if not isinstance(stopping, dict):
        return AskedOf("fixed", "", _checked(radii, run), n)
    own = _ordered(_texts(stopping, "radii", run), run)
    words = [*own, *_texts(stopping, "regions", run)]
    if stopping.get("tolerance") is not None:
        words.append(f"gain below {stopping['tolerance']}")
        return AskedOf("adaptive", ", ".join(words), own or _checked(radii, run), n)
    if not own:
        raise _not_countable(run, ", ".join(words))
    return AskedOf("decide", ", ".join(words), own, n)


def _texts(stopping: Config, key: str, run: StoredRun) -> list[str]:
    found = stopping.get(key)
    values = found if isinstance(found, list) else []
    for value in values:
        if not isinstance(value, str):
            raise _not_countable(run, repr(value))
    return [str(value) for value in values]


def _not_countable(run: StoredRun, asked: str) -> InputError:
    return InputError(
        f"what {run.folder} was asked",
        asked,
        "must be radii with their units, to be counted",
        "leave that run out",
    )


def _checked(radii: Sequence[str], run: StoredRun) -> tuple[str, ...]:
    for radius in radii:
        RadiusQuery(radius).check(run.results[0].certificate.space)
    return tuple(radii)


def _ordered(radii: Sequence[str], run: StoredRun) -> tuple[str, ...]:
    """The smallest first."""
    space = run.results[0].certificate.space
    return tuple(sorted(radii, key=lambda r: parse_quantity(r, space.blocks[0].unit, space.size)))


def record_for(path: Path, config: Config) -> Record:
    """The record in that file, or a new one, if it is of the machine that made the runs."""
    # Runs tell which GPU and torch they had. Of a CPU they tell too little: it must be this one.
    if path.exists() and config.get("device") != "cpu":
        machine = machine_of(path)
    else:
        machine = this_machine(chosen_device("auto"))
    for key in ("device", "torch"):
        if getattr(machine, key) != config.get(key):
            raise InputError(
                f"{key} of {path}",
                repr(getattr(machine, key)),
                f"must be that of the runs, {config.get(key)!r}",
                "name the record of the machine that made them",
            )
    return Record(machine, path)


def _setting(run: StoredRun) -> Setting:
    data, model = run.config.get("data"), run.config.get("model")
    return Setting(
        data=str(data.get("name")) if isinstance(data, dict) else "",
        model=run.folder.resolve().name,
        precision=str(model.get("precision")) if isinstance(model, dict) else "",
        compiled=str(run.config.get("compiled", "no")),
        device=str(run.config.get("device")),
    )
