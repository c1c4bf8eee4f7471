"""`deformrs sweep`."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deformrs.cli.options import Word, padding_option, split_list, typed
from deformrs.cli.sampling_options import choosing_options, sampling_options, stopping_options
from deformrs.cli.training_options import start_options, training_options
from deformrs.errors import DeformRSError

if TYPE_CHECKING:
    from deformrs.tasks.sweep_file import SweepAsked
    from deformrs.tasks.sweep_runs import Sweep
    from deformrs.tasks.sweep_values import Values
    from deformrs.tasks.training_options import StartOptions, TrainingOptions

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
    from deformrs.tasks.sweep_file import RunsAsked, SweepAsked

    needed = {"data": train["data"], "model": train["model"]}
    for name, value in (needed | {"deformation": deformations, "noise": noises}).items():
        if not value:
            raise click.UsageError(f"--{name} is missing; it is needed: or name a file")
    runs = RunsAsked(deformations, noises, "")
    return SweepAsked(out or Path("runs/sweep"), "", train, certify, (runs,))


def _from_file(file: Path, out: Path | None, options: Values) -> SweepAsked:
    from deformrs.tasks.sweep_file import read_sweep

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
    from deformrs.tasks.sweep_plan import plan_sweep
    from deformrs.tasks.sweep_runs import chosen_runs

    return chosen_runs(plan_sweep(asked), only)


def _list(planned: Sweep) -> None:
    from deformrs.tasks.sweep_state import state_of

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

    from deformrs.tasks.sweep_names import REPORT
    from deformrs.tasks.sweep_table import table
    from deformrs.tasks.sweeping import report_runs, run_sweep

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
