"""A sweep on the terminal: run after run is trained and certified, what is done is left alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from deformrs.data import HeldOut
from deformrs.data.held_out import HELD_OUT
from deformrs.data.stored import StoredPictures
from deformrs.errors import DeformRSError, InputError
from deformrs.preparation import Preparation
from deformrs.progress import Downloads
from deformrs.questions import RadiusAsked, RegionAsked
from deformrs.report.writing import write_report
from deformrs.runs import Result, read_run
from deformrs.tasks.certifying import certify_job
from deformrs.tasks.jobs import prepare
from deformrs.tasks.options import DataOptions
from deformrs.tasks.sweep_runs import PlannedRun, Sweep, texts_of
from deformrs.tasks.sweep_state import check_needed, mark_done, results_of, state_of
from deformrs.tasks.sweep_table import Row, row_of
from deformrs.tasks.trained import certification, no_test_pictures
from deformrs.tasks.training import train_run
from deformrs.tasks.training_apart import train_apart
from deformrs.tasks.training_options import StartOptions


@dataclass(frozen=True)
class Outcome:
    """What came of a sweep: a row for every run that is done, a line for every one that failed."""

    rows: tuple[Row, ...]
    done: tuple[PlannedRun, ...]
    failures: dict[str, str]
    """By the name of the run."""


def run_sweep(sweep: Sweep, console: Console) -> Outcome:
    """Train and certify every run that is not done. One that fails does not stop the others."""
    if sweep.out.exists() and not sweep.out.is_dir():
        raise InputError("the folder", sweep.out, "must not be a file", "choose another by --out")
    missing = [run for run in sweep.runs if not _is_done(run)]
    check_sources(missing, console)
    rows: list[Row] = []
    done: list[PlannedRun] = []
    failures: dict[str, str] = {}
    for number, run in enumerate(sweep.runs, start=1):
        known = "" if run in missing else ": done already"
        _say(console, f"[{number}/{len(sweep.runs)}] {run.name}{known}")
        if run in missing:
            _forget_compiled(sweep.runs[: number - 1], run)
        try:
            results = _done(run, console) if run in missing else results_of(run)
            rows.append(row_of(run.name, results, run.questions))
            done.append(run)
        except (DeformRSError, OSError) as error:
            failures[run.name] = str(error)
        except Exception as error:
            if os.environ.get("DEFORMRS_TRACEBACK"):
                raise
            failures[run.name] = f"unforeseen ({type(error).__name__}: {error})"
        if run.name in failures:
            _say(console, f"failed: {failures[run.name]}")
    return Outcome(tuple(rows), tuple(done), failures)


def check_sources(runs: Sequence[PlannedRun], console: Console) -> None:
    """Before anything is trained: can the pictures and the networks to begin with be had?"""
    seen: set[tuple[DataOptions, DataOptions, StartOptions, float]] = set()
    for run in runs:
        needed = (run.data, run.test, run.start, run.training.hold_out)
        if needed in seen:
            continue
        seen.add(needed)
        preparation = Preparation(channels=run.start.channels)
        with Downloads(console) as fetched:
            train = run.data.load(preparation, report=fetched)
            if run.test.split == HELD_OUT:
                HeldOut(run.training.hold_out, run.training.seed).of(train)
            else:
                test = run.test.load(preparation, None, train.class_names, fetched)
                if run.own_test_split and test.about["split"] is None:
                    remedy = "name other pictures as data of [certify], in a file"
                    raise no_test_pictures(run.data.data, remedy)
        if run.needed is None:  # else its network is made by then
            num_classes = len(train.class_names or ()) or max(train.labels) + 1
            run.start.load(num_classes, len(train[0][0]), run.training.seed)


def report_runs(runs: Sequence[PlannedRun], out: Path) -> tuple[dict[str, Path], list[str]]:
    """Write the report of runs that are done into `out`: its files, and what it could not show."""
    pictures = StoredPictures()
    files = write_report(
        [read_run(run.folder) for run in runs],
        out,
        radii=texts_of(runs, RadiusAsked),
        regions=texts_of(runs, RegionAsked),
        pictures=pictures,
    )
    return files, pictures.missing


def _is_done(run: PlannedRun) -> bool:
    try:
        return state_of(run).stage == "done"
    except DeformRSError:
        return False  # going on with it says what is wrong


def _done(run: PlannedRun, console: Console) -> list[Result]:
    """Train and certify, or go on with what was begun."""
    check_needed(run)
    if run.network is None:
        _train(run, console)
    job = prepare(run.model, _tested(run), run.smoothing, run.folder)
    results = certify_job(job, run.sampling, run.folder, console, run.questions)
    mark_done(run)
    return results


def _train(run: PlannedRun, console: Console) -> None:
    asked = (run.beginning, run.data, run.smoothing, run.training, run.folder)
    if run.training.devices > 1:
        train_apart(*asked)
    else:
        train_run(*asked, console)


def _tested(run: PlannedRun) -> DataOptions:
    """What is certified. Which pictures were held out is known only now that it is trained."""
    if run.test.split != HELD_OUT:
        return run.test
    asked = (run.model, run.test, run.smoothing, run.folder)
    return certification(*asked, padding_given=True).data


def _forget_compiled(before: Sequence[PlannedRun], run: PlannedRun) -> None:
    """Code compiled for batches of other shapes would be made general, and slower, for this one."""

    def shapes(run: PlannedRun) -> object:
        recipe = run.training.recipe_for(pretrained=False)
        return run.data, run.start, recipe.batch_size, recipe.copies, run.training.precision

    if "torch._dynamo" in sys.modules and before and shapes(before[-1]) != shapes(run):
        torch.compiler.reset()


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
