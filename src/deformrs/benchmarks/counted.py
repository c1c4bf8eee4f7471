"""How many samples runs took that are there already: nothing is measured again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from deformrs.benchmarks.record import Machine, Record, read_record
from deformrs.benchmarks.samples import N0, AskedOf, Setting, Used, tally
from deformrs.benchmarks.shown import used_table
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.questions import RadiusAsked
from deformrs.runs import Result, StoredRun, read_run, read_times
from deformrs.units import parse_quantity

_SAME = ("model", "deformation", "noise", "padding", "alpha", "seed", "device", "torch")
"""In what runs must agree, to differ in their samples alone."""


def count_runs(runs: Sequence[StoredRun], radii: Sequence[str]) -> list[Used]:
    """A row for each run of one classifier.

    Beside a run with a fixed number of samples the others have another row, of the pictures that
    both have. `radii` are asked where nothing was.
    """
    for run in runs:
        _check_fit(runs[0], run)
    fixed = next((run for run in runs if "stopping" not in run.config), None)
    # Without one, each is compared with as many samples as it was allowed.
    fixed_n = None if fixed is None else _whole(fixed.config, "n")
    rows = []
    for run in runs:
        if fixed is not None and run is not fixed:
            rows += _beside(run, fixed, radii)
        rows.append(_row(run, run.results, radii, fixed_n or _whole(run.config, "n"), None))
    return rows


def show_runs(
    folders: Sequence[Path], radii: Sequence[str], out: Path | None, console: Console
) -> None:
    """Print what the runs in these folders took, and add it to the record `out`."""
    runs = _read(folders)
    rows = count_runs(runs, radii)
    console.print(used_table(rows))
    if out is not None:
        record = _record_of(out, runs)
        for row in rows:
            record.add_used(row)
        console.print(f"written: {out}", markup=False, soft_wrap=True)


def _record_of(path: Path, runs: Sequence[StoredRun]) -> Record:
    """The record in that file, if it is of the machine that made these runs."""
    found = read_record(path)["machine"]
    assert isinstance(found, dict)
    for key in ("device", "torch"):
        if found.get(key) != runs[0].config.get(key):
            raise InputError(
                f"{key} of {path}",
                repr(found.get(key)),
                f"must be that of the runs, {runs[0].config.get(key)!r}, to be added to",
                "write to another file",
            )
    return Record(Machine(**found), path)  # type: ignore[arg-type]


def _read(folders: Sequence[Path]) -> list[StoredRun]:
    """The runs in these folders, each with results."""
    runs = [read_run(folder) for folder in folders]
    for run in runs:
        if not run.results:
            raise InputError("the run", run.folder, "must have results", "certify it first")
    return runs


def _beside(run: StoredRun, fixed: StoredRun, radii: Sequence[str]) -> list[Used]:
    """The run on the pictures that the fixed one has too, if there are any."""
    common = {_key(result) for result in run.results} & {_key(result) for result in fixed.results}
    if not common:
        return []
    ours, theirs = (
        [result for result in one.results if _key(result) in common] for one in (run, fixed)
    )
    n = _whole(fixed.config, "n")
    certified = _row(fixed, theirs, _asked_of(run, radii).radii, n, None).certified
    return [_row(run, ours, radii, n, certified)]


def _row(
    run: StoredRun,
    results: Sequence[Result],
    radii: Sequence[str],
    fixed_n: int,
    fixed: dict[str, float] | None,
) -> Used:
    times = read_times(run.folder)
    seconds = math.fsum(times.get(result.index, 0.0) for result in results)
    return tally(_setting(run), _asked_of(run, radii), results, seconds, fixed_n, fixed)


def _asked_of(run: StoredRun, radii: Sequence[str]) -> AskedOf:
    """What a run was asked, from its configuration."""
    space = run.results[0].certificate.space
    for radius in radii:
        RadiusAsked(radius).check(space)
    n, stopping = _whole(run.config, "n"), run.config.get("stopping")
    if not isinstance(stopping, dict):
        return AskedOf("fixed", "", tuple(radii), n)
    if stopping.get("tolerance") is not None:
        return AskedOf("adaptive", f"gain below {stopping['tolerance']}", tuple(radii), n)
    found = stopping.get("radii")
    texts = [str(text) for text in found] if isinstance(found, list) else []
    if not texts:
        raise InputError(
            f"the run {run.folder}",
            "asked for regions only",
            "must have been asked for radii",
            "leave it out",
        )
    unit, size = space.blocks[0].unit, space.size
    asked = tuple(sorted(texts, key=lambda text: parse_quantity(text, unit, size)))
    return AskedOf("decide", ", ".join(asked), asked, n)


def _setting(run: StoredRun) -> Setting:
    data, model = run.config.get("data"), run.config.get("model")
    return Setting(
        data=str(data.get("name")) if isinstance(data, dict) else "",
        model=run.folder.name,
        precision=str(model.get("precision")) if isinstance(model, dict) else "",
        compiled=str(run.config.get("compiled", "no")),
        device=str(run.config.get("device")),
    )


def _check_fit(first: StoredRun, run: StoredRun) -> None:
    for key in _SAME:
        if run.config.get(key) != first.config.get(key):
            raise InputError(
                f"{key} of {run.folder}",
                f"not that of {first.folder}",
                "must be the same, to compare samples alone",
                "count runs of one classifier",
            )
    if run.config.get("n0") != N0:
        raise InputError(
            f"n0 of {run.folder}", run.config.get("n0"), f"must be {N0}", "leave that run out"
        )


def _key(result: Result) -> tuple[int, str]:
    return result.index, result.pixels


def _whole(config: Config, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int):
        raise InputError(f"{key} of a run", repr(value), "must be a whole number", "certify again")
    return value
