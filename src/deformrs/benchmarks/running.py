"""A whole benchmark on the terminal: measured part by part, each figure kept as it comes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from deformrs.benchmarks.cost import measure_cost, measure_images
from deformrs.benchmarks.networks import new_network
from deformrs.benchmarks.paths import compare_paths
from deformrs.benchmarks.plan import Case, Execution, Part, Size
from deformrs.benchmarks.questions import Questions
from deformrs.benchmarks.quiet import quietly
from deformrs.benchmarks.record import Machine, Record, this_machine
from deformrs.benchmarks.rows import Row, failed_row, measure_row
from deformrs.benchmarks.samples import Used, measure_samples
from deformrs.benchmarks.shown import cost_line, path_line, rows_table, used_table
from deformrs.benchmarks.subject import Subject, SubjectOptions, load_subject
from deformrs.cli.progress import step
from deformrs.config import Config
from deformrs.errors import InputError, ModelError


@dataclass(frozen=True)
class Bench:
    """What is measured, and how."""

    size: Size
    cases: tuple[Case, ...]
    parts: tuple[Part, ...]
    how: Execution
    subject: SubjectOptions
    questions: Questions


def run_bench(bench: Bench, out: Path | None, console: Console) -> Config:
    """Measure, print, and write to `out` after every figure; what was measured.

    Rows that failed are shown as such, and are an error once the others are done.
    """
    device = torch.device(bench.how.device)
    machine = this_machine(device)
    record = Record(machine, out)
    console.print(_words(machine, bench.how), markup=False, soft_wrap=True)
    failed: list[Row] = []
    if "rows" in bench.parts:
        failed = _rows(bench, record, console)
    if {"samples", "cost", "paths"} & set(bench.parts):
        with quietly(compiling=bench.how.compiled != "no"):
            subject = load_subject(bench.subject, bench.how, bench.questions, console)
        if "samples" in bench.parts:
            _samples(bench, subject, record, machine, console)
        if "cost" in bench.parts:
            _cost(bench, subject, record, console)
        if "paths" in bench.parts:
            _paths(bench, subject, record, machine, console)
    if out is not None:
        console.print(f"written: {out}", markup=False, soft_wrap=True)
    if failed:
        raise ModelError(
            "the benchmark",
            f"without {len(failed)} of its rows ({failed[0].model}, {failed[0].family}: "
            f"{failed[0].error})",
            "could not measure them",
            "the other figures are as they should be; leave these out by --network or --family",
        )
    return record.content


def _rows(bench: Bench, record: Record, console: Console) -> list[Row]:
    """Measure and show all rows; those that failed."""
    pairs = [(case, family) for case in bench.cases for family in case.families]
    rows: list[Row] = []
    with step(console, "measuring speed", len(pairs)) as advance:
        for case in bench.cases:
            for family in case.families:
                advance(len(rows), f"{case.network}, {family}")
                rows.append(_row(case, family, bench))
                record.add_row(rows[-1])
        advance(len(rows), "")
    console.print(rows_table(rows))
    for row in rows:
        for kind, text in (("failed", row.error), ("note", row.warning)):
            if text is not None:
                line = f"{kind}: {row.model}, {row.family}: {text}"
                console.print(line, markup=False, soft_wrap=True)
    return [row for row in rows if row.error is not None]


def _row(case: Case, family: str, bench: Bench) -> Row:
    try:
        network = new_network(case.network, case.channels, case.side)
    except InputError as error:  # a library that is not installed: the row says so
        return failed_row(case, family, bench.how, str(error))
    return measure_row(network, case, family, bench.how)


def _samples(
    bench: Bench, subject: Subject, record: Record, machine: Machine, console: Console
) -> None:
    used: list[Used] = []
    measured = measure_samples(subject, bench.questions, bench.how.precision, machine.device)
    with step(console, "counting samples", bench.questions.protocols) as advance:
        for one in measured:
            used.append(one)
            record.add_used(one)
            advance(len(used), f"{one.protocol} {one.asked}")
    console.print(used_table(used))


def _cost(bench: Bench, subject: Subject, record: Record, console: Console) -> None:
    for name, points in (
        ("time_against_images", measure_images(bench.size, subject, bench.questions.radius)),
        *measure_cost(bench.size, bench.how),
    ):
        record.add_curve(name, points)
        console.print(cost_line(name, points), markup=False, soft_wrap=True)


def _paths(
    bench: Bench, subject: Subject, record: Record, machine: Machine, console: Console
) -> None:
    size = bench.size
    with quietly(compiling=bench.how.compiled != "no"):
        for one in compare_paths(
            subject, size.paths_images, size.paths_n, bench.how.precision, machine.device
        ):
            record.add_path(one)
            console.print(path_line(one), markup=False, soft_wrap=True)


def _words(machine: Machine, how: Execution) -> str:
    """The machine, in a line."""
    compiled = "not compiled" if how.compiled == "no" else f"compiled ({how.compiled})"
    return (
        f"{machine.device}, {machine.cpu}, {machine.threads} threads, torch {machine.torch}; "
        f"{how.precision}, {compiled}"
    )
