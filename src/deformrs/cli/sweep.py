"""`deformrs sweep`."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch
from rich.console import Console

from deformrs.cli.arguments import DataOptions, StartOptions, TrainingOptions
from deformrs.cli.certify import certify_job
from deformrs.cli.jobs import prepare
from deformrs.cli.options import (
    Word,
    choosing_options,
    padding_option,
    sampling_options,
    split_list,
    start_options,
    stopping_options,
    training_options,
    typed,
)
from deformrs.cli.progress import Downloads
from deformrs.cli.sweep_plan import PlannedRun, Sweep, texts_of
from deformrs.cli.sweep_state import Row, check_needed, mark_done, results_of, row_of, state_of
from deformrs.cli.train import train_run
from deformrs.cli.trained import certification, no_test_images
from deformrs.cli.training_process import train_apart
from deformrs.data import HeldOut
from deformrs.data.image_set import HELD_OUT
from deformrs.data.loading import StoredImages
from deformrs.data.preparation import Preparation
from deformrs.errors import DeformRSError, InputError
from deformrs.report.writing import write_report
from deformrs.runs import Result, read_run
from deformrs.stopping import RadiusQuery, RegionQuery

if TYPE_CHECKING:
    from deformrs.cli.sweep_file import SweepAsked, Values
    from deformrs.cli.sweep_plan import Sweep


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
    """Before anything is trained: can the images and the networks to begin with be had?"""
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
                    remedy = "name other images as data of [certify], in a file"
                    raise no_test_images(run.data.data, remedy)
        if run.needed is None:  # else its network is made by then
            num_classes = len(train.class_names or ()) or max(train.labels) + 1
            run.start.load(num_classes, len(train[0][0]), run.training.seed)


def report_runs(runs: Sequence[PlannedRun], out: Path) -> tuple[dict[str, Path], list[str]]:
    """Write the report of runs that are done into `out`: its files, and what it could not show."""
    images = StoredImages()
    files = write_report(
        [read_run(run.folder) for run in runs],
        out,
        radii=texts_of(runs, RadiusQuery),
        regions=texts_of(runs, RegionQuery),
        images=images,
    )
    return files, images.missing


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
    """What is certified. Which images were held out is known only now that it is trained."""
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


_BESIDE_A_FILE = ("file", "out", "only", "listing", "report", "device", "data_root")
"""What differs from one machine or one call to another; a file says the rest."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--data", help="What to train on; its test split is certified.")
@click.option(
    "--split",
    type=Word("test", "held-out"),
    default="test",
    show_default=True,
    help="What is certified; held-out: what --hold-out keeps from training.",
)
@click.option("--data-root", help="Where downloads are kept.  [$DEFORMRS_DATA]")
@click.option(
    "--deformation", "deformations", multiple=True, help="rotation, dct:3, …; again for more runs."
)
@click.option("--noise", "noises", multiple=True, help="uniform:30deg, …; again for more runs.")
@padding_option
@start_options(required=False)
@training_options()
@sampling_options(n=100_000, seed=False)
@choosing_options
@stopping_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The folder of the runs' folders.  [runs/sweep, or as the file says]",
)
@click.option("--only", multiple=True, help="The name of a run, again for more: just these.")
@click.option("--list", "listing", is_flag=True, help="Say how far each run is, and stop.")
@click.option("--report", is_flag=True, help="Also write the report of all runs.")
def sweep(
    file: Path | None,
    data: str | None,
    split: str,
    data_root: str | None,
    deformations: tuple[str, ...],
    noises: tuple[str, ...],
    padding: str,
    start: StartOptions,
    training: TrainingOptions,
    n: int,
    n0: int,
    alpha: float,
    method: str | None,
    skip: int,
    most: int | None,
    radii: str | None,
    regions: tuple[str, ...],
    adaptive: str | None,
    fixed: bool,
    out: Path | None,
    only: tuple[str, ...],
    listing: bool,
    report: bool,
) -> None:
    """Train and certify several networks, one after another, and compare them.

    What is done is skipped: interrupt it as you like, and the same command goes on. Without a
    file, every deformation is combined with every noise.

    \b
    Example:
      deformrs sweep --data digits --model small_cnn --epochs 1 --deformation rotation \\
          --noise uniform:30deg --noise uniform:90deg --n 200 --max 20 --radii 10deg,30deg \\
          --out runs/sweep --report

    \b
    A FILE says the same, and can give some runs options of their own:
      out = "runs/cifar10"        # relative to the file; other paths: to where you are
      [train]
      data = "cifar10"
      model = "resnet18"
      [certify]
      n = 1000
      radii = ["10deg", "30deg"]
      [[runs]]
      deformation = "rotation"
      noise = ["uniform:54deg", "uniform:180deg"]
      train = { consistency = 10 }
    """
    train: Values = {**dataclasses.asdict(start), **dataclasses.asdict(training)}
    train |= {"data": data, "data_root": data_root, "padding": padding}
    certify: Values = {"n": n, "n0": n0, "alpha": alpha, "seed": training.seed, "method": method}
    certify |= {"skip": skip, "max": most, "radii": split_list(radii), "regions": regions}
    certify |= {"adaptive": adaptive, "fixed": fixed, "split": split}
    if file is not None:
        asked = _from_file(file, out, train)
    else:
        asked = _from_options(out, train, certify, deformations, noises)
    if only and report:
        raise click.UsageError("--report is of all runs: leave --only or --report out")
    planned = _planned(asked, only)
    if listing:
        _list(planned)
    else:
        _run(planned, report=report)


def _from_options(
    out: Path | None,
    train: Values,
    certify: Values,
    deformations: tuple[str, ...],
    noises: tuple[str, ...],
) -> SweepAsked:
    from deformrs.cli.sweep_file import RunsAsked, SweepAsked

    needed = {"data": train["data"], "model": train["model"]}
    for name, value in (needed | {"deformation": deformations, "noise": noises}).items():
        if not value:
            raise click.UsageError(f"--{name} is missing; it is needed: or name a file")
    runs = RunsAsked(deformations, noises, "")
    return SweepAsked(out or Path("runs/sweep"), "", train, certify, (runs,))


def _from_file(file: Path, out: Path | None, options: Values) -> SweepAsked:
    from deformrs.cli.sweep_file import read_sweep

    for parameter in click.get_current_context().command.params:
        if parameter.name not in _BESIDE_A_FILE and typed(str(parameter.name)):
            raise click.UsageError(
                f"{parameter.opts[0]} is given beside {file}; it is for a sweep without a file: "
                "write it into that one"
            )
    asked = read_sweep(file)
    given = {key: options[key] for key in ("device", "data_root") if typed(key)}
    return dataclasses.replace(
        asked,
        out=out or asked.out,
        train=asked.train | given,
        certify=asked.certify | {key: value for key, value in given.items() if key == "device"},
    )


def _planned(asked: SweepAsked, only: tuple[str, ...]) -> Sweep:
    from deformrs.cli.sweep_plan import chosen_runs, plan_sweep

    return chosen_runs(plan_sweep(asked), only)


def _list(planned: Sweep) -> None:
    from deformrs.cli.sweep_state import state_of

    width = max(len(run.name) for run in planned.runs)
    click.echo(f"{len(planned.runs)} runs in {planned.out}")
    for run in planned.runs:
        try:
            words = state_of(run).words
        except DeformRSError as error:
            words = f"damaged: {error}"
        click.echo(f"  {run.name:<{width}}  {words}")


def _run(planned: Sweep, *, report: bool) -> None:
    from rich.console import Console

    from deformrs.cli.sweep_file import REPORT
    from deformrs.cli.sweep_state import table

    outcome = run_sweep(planned, Console(highlight=False))
    if outcome.done:
        questions = [question for run in outcome.done for question in run.questions]
        click.echo("\n" + "\n".join(table(outcome.rows, questions)))
    if outcome.done and report:
        files, missing = report_runs(outcome.done, planned.out / REPORT)
        for reason in missing:
            click.echo(f"note: {reason}", err=True)
        click.echo(f"\nwritten: {files['report.html']}")
    elif outcome.done:
        folders = " ".join(shlex.quote(str(run.folder)) for run in outcome.done)
        click.echo(f"\nnext: deformrs report {folders}")
    for name, line in outcome.failures.items():
        click.echo(f"error: {name}: {' '.join(line.split())}", err=True)
    if outcome.failures:
        raise click.exceptions.Exit(1)
