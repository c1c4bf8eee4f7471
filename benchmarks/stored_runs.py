"""Count the samples of stored runs of one classifier, without sampling again.

    python benchmarks/stored_runs.py runs/decided runs/fixed --out results/benchmarks/h200.json

A run with a fixed number of samples, if there is one, is what the others are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click

from deformrs.cli.parameters import split_list
from deformrs.cli.throughput import N0, machine
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError
from deformrs.execution import chosen_device
from deformrs.runs import Result, StoredRun, read_run, read_times
from deformrs.stopping import RadiusQuery
from deformrs.units import parse_quantity
from record import Record, read_record
from samples import Protocol, print_table, summary

_SAME = (
    *("model", "deformation", "plugins", "noise", "padding", "num_classes", "alpha", "seed", "n0"),
    *("device", "torch", "compiled", "version"),
)
"""Keys of the configuration in which runs must agree for their samples to be comparable."""


def entries_of(runs: Sequence[StoredRun], radii: Sequence[str]) -> list[Config]:
    """Return the record entries of runs; `radii` are evaluated where a run decided none.

    Images that a run shares with the fixed one make an entry of their own, before that of all.
    """
    _check_comparable(runs)
    fixed = _fixed_run(runs)
    entries = []
    for run in runs:
        protocol = _protocol(run, radii)
        # Without a fixed run, it is compared with as many samples as it was allowed.
        n = _integer(run if fixed is None else fixed, "n")
        ours, theirs = ([], []) if fixed is None or run is fixed else _common(run, fixed)
        if ours:
            entries.append(_entry(run, protocol, ours, n, theirs))
        if len(ours) < len(run.results):
            entries.append(_entry(run, protocol, run.results, n, None))
    return entries


def _entry(
    run: StoredRun,
    protocol: Protocol,
    results: Sequence[Result],
    fixed_n: int,
    reference: Sequence[Result] | None,
) -> Config:
    times = read_times(run.folder)
    missing = [result.index for result in results if result.index not in times]
    if missing:
        raise InputError(
            f"the times of {run.folder}",
            f"without image {missing[0]}",
            "must cover every image",
            "restore them, or certify again",
        )
    seconds = math.fsum(times[result.index] for result in results)
    names: Config = {
        "data": _inner(run, "data", "name"),
        "model": run.folder.resolve().name,
        "precision": _inner(run, "model", "precision"),
        "compiled": run.config.get("compiled", "no"),
        "device": run.config.get("device"),
    }
    return names | summary(protocol, results, seconds, fixed_n, reference)


def _protocol(run: StoredRun, radii: Sequence[str]) -> Protocol:
    """Return the protocol of a run, from its configuration."""
    n, stopping = _integer(run, "n"), run.config.get("stopping")
    space = run.results[0].certificate.space
    for radius in radii:
        RadiusQuery(radius).check(space)
    if not isinstance(stopping, dict):
        return Protocol("fixed", "", tuple(radii), n)
    own = _texts(run, stopping.get("radii"))
    own.sort(key=lambda text: parse_quantity(text, space.blocks[0].unit, space.size))
    queries = [*own, *_texts(run, stopping.get("regions"))]
    if stopping.get("tolerance") is not None:
        queries.append(f"gain below {stopping['tolerance']}")
        return Protocol("adaptive", ", ".join(queries), tuple(own) or tuple(radii), n)
    if not own:
        raise _uncountable(run, ", ".join(queries))
    return Protocol("decide", ", ".join(queries), tuple(own), n)


def _texts(run: StoredRun, queries: ConfigValue) -> list[str]:
    texts = []
    for query in queries if isinstance(queries, list) else []:
        if not isinstance(query, str):
            raise _uncountable(run, repr(query))
        texts.append(query)
    return texts


def _common(run: StoredRun, fixed: StoredRun) -> tuple[list[Result], list[Result]]:
    """Return the results of both for the images in both."""
    ours, theirs = ({(r.index, r.pixels, r.label): r for r in one.results} for one in (run, fixed))
    both = [key for key in ours if key in theirs]
    return [ours[key] for key in both], [theirs[key] for key in both]


def _check_comparable(runs: Sequence[StoredRun]) -> None:
    first = runs[0]
    for run in runs:
        if not run.results:
            raise InputError("the run", run.folder, "must have results", "certify it first")
        for key in _SAME:
            if run.config.get(key) != first.config.get(key):
                raise InputError(
                    f"{key} of {run.folder}",
                    f"not that of {first.folder}",
                    "must be the same",
                    "count runs of one classifier",
                )
    if first.config.get("n0") != N0:
        raise InputError("n0", first.config.get("n0"), f"must be {N0}", "count other runs")
    rules = {_inner(run, "stopping", "given_up") for run in runs if "stopping" in run.config}
    if len(rules) > 1:
        raise InputError(
            "the stopping rule", "of several versions", "must be one", "certify older runs again"
        )


def _fixed_run(runs: Sequence[StoredRun]) -> StoredRun | None:
    fixed = [run for run in runs if "stopping" not in run.config]
    if len(fixed) > 1:
        raise InputError(
            "the runs with a fixed number of samples",
            ", ".join(str(run.folder) for run in fixed),
            "must be one, which the others are compared with",
            "leave the others out",
        )
    most = max(_integer(run, "n") for run in runs)
    for run in fixed:
        if run.config.get("method") != "clopper_pearson" or _integer(run, "n") < most:
            raise InputError(
                f"the protocol of {run.folder}",
                f"{run.config.get('method')} with n = {run.config.get('n')}",
                f"must be clopper_pearson with n of at least {most}",
                "leave that run out",
            )
    return fixed[0] if fixed else None


def _integer(run: StoredRun, key: str) -> int:
    value = run.config.get(key)
    if not isinstance(value, int):
        raise InputError(f"{key} of {run.folder}", value, "must be an integer", "certify again")
    return value


def _inner(run: StoredRun, section: str, key: str) -> ConfigValue:
    content = run.config.get(section)
    return content.get(key) if isinstance(content, dict) else None


def _uncountable(run: StoredRun, query: str) -> InputError:
    return InputError(
        f"a query of {run.folder}",
        query,
        "must be a radius with its unit to be counted",
        "leave that run out",
    )


def record_for(path: Path | None, config: Config) -> Record:
    """Return the record for runs with that configuration; it must be of their machine."""
    # Runs name their GPU and torch. Of a CPU they say too little: it must be this one.
    there = path is not None and path.exists() and config.get("device") != "cpu"
    about = read_record(path)["machine"] if there and path else machine(chosen_device("auto"))
    assert isinstance(about, dict)
    for key in ("device", "torch"):
        if about.get(key) != config.get(key):
            raise InputError(
                f"{key} of the record",
                repr(about.get(key)),
                f"must be that of the runs, {config.get(key)!r}",
                "name the record of the machine that made them",
            )
    return Record(about, path)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--radii", default="0deg,10deg,30deg,45deg", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="The record to extend.")
def main(runs: tuple[Path, ...], radii: str, out: Path | None) -> None:
    """Count the samples of RUNS."""
    stored = [read_run(folder) for folder in runs]
    entries = entries_of(stored, split_list(radii))
    print_table(entries)
    if out is not None:
        record = record_for(out, stored[0].config)
        for entry in entries:
            record.add("samples_used", entry)


if __name__ == "__main__":
    main()
