"""`deformrs sweep`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import torch
from rich.console import Console

from deformrs.cli.certify import certify_job
from deformrs.cli.defaults import certification, no_test_images
from deformrs.cli.jobs import prepare
from deformrs.cli.options import trust_code_option
from deformrs.cli.parameters import NonEmpty
from deformrs.cli.progress import Downloads
from deformrs.cli.sweep_file import REPORT, Sweep, plan_sweep, read_sweep
from deformrs.cli.sweep_run import SweepRun
from deformrs.cli.terminal import echo, print_plain
from deformrs.cli.train import train_run
from deformrs.data import HeldOut
from deformrs.data.image_set import HELD_OUT
from deformrs.data.loading import StoredImages
from deformrs.data.preparation import Preparation
from deformrs.errors import DeformRSError, InputError, quoted, reason_of
from deformrs.report.document import write_report
from deformrs.report.summary import count_certified, summarise
from deformrs.rounding import percent_down
from deformrs.runs import Result, read_run
from deformrs.runs.files import below
from deformrs.stopping import Query, RadiusQuery, RegionQuery


def complete(
    runs: Sequence[SweepRun], console: Console
) -> tuple[dict[str, list[Result]], dict[str, str]]:
    """Train and certify every run that is not done; a failure does not stop the others.

    Return the results of the runs that are done and the errors of those that failed, by name.
    """
    missing = [run for run in runs if not _is_done(run)]
    check_sources(missing, console)
    results: dict[str, list[Result]] = {}
    failures: dict[str, str] = {}
    for number, run in enumerate(runs, start=1):
        done = run not in missing
        print_plain(console, f"[{number}/{len(runs)}] {run.name}{': done already' if done else ''}")
        try:
            if not done:
                _complete(run, console)
            results[run.name] = run.results()
        except (DeformRSError, OSError) as error:
            failures[run.name] = str(error)
        except Exception as error:
            if os.environ.get("DEFORMRS_TRACEBACK"):
                raise
            failures[run.name] = f"unexpected ({reason_of(error)})"
        if run.name in failures:
            print_plain(console, f"failed: {failures[run.name]}")
    return results, failures


def _is_done(run: SweepRun) -> bool:
    try:
        return run.is_done()
    except DeformRSError:
        return False  # going on with it raises this error for this run alone


def _complete(run: SweepRun, console: Console) -> None:
    """Train and certify, or go on with what was begun."""
    run.check_ready()
    if run.network is None:
        if "torch._dynamo" in sys.modules:
            # Code compiled for other shapes would be generalised, and slower.
            torch.compiler.reset()
        train_run(run.request, run.folder)
    test = run.test
    if test.split == HELD_OUT:  # which images these are follows from the training
        found = certification(run.model, test, run.smoothing, run.folder, padding_given=True)
        test = found.data
    job = prepare(run.model, test, run.smoothing, run.folder)
    certify_job(job, run.sampling, run.folder, console, run.queries)
    run.mark_done()


def check_sources(runs: Sequence[SweepRun], console: Console) -> None:
    """Load all images and initial networks once, so that a missing one is known at the start."""
    for data, test, start, hold_out, begins in dict.fromkeys(
        (run.data, run.test, run.start, run.training.hold_out, run.needed is None) for run in runs
    ):
        preparation = Preparation(channels=start.channels)
        with Downloads(console) as report:
            images = data.load(preparation, report=report)
            if test.split == HELD_OUT:
                HeldOut(hold_out, 0).of(images)
            else:
                tested = test.load(preparation, None, images.class_names, report)
                if (test.data, test.split) == (data.data, "test") and not tested.about["split"]:
                    raise no_test_images(data.data, "name other images as data of [certify]")
        if begins:  # another run makes the network otherwise
            num_classes = len(images.class_names or ()) or max(images.labels) + 1
            start.load(num_classes, len(images[0][0]), seed=0)


def report_on(runs: Sequence[SweepRun], out: Path) -> tuple[Path, list[str]]:
    """Write the report of finished runs; return its page and notes on what it cannot show."""
    images = StoredImages()
    files = write_report(
        [read_run(run.folder) for run in runs],
        out,
        radii=_texts(runs, RadiusQuery),
        regions=_texts(runs, RegionQuery),
        images=images,
    )
    return files["report.html"], images.missing


def _texts(runs: Sequence[SweepRun], kind: type[Query]) -> tuple[str, ...]:
    texts = (query.text for run in runs for query in run.queries if isinstance(query, kind))
    return tuple(dict.fromkeys(texts))


_NONE = "–"


def table(runs: Sequence[SweepRun], results: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return the lines of a table with a row for each run, no figure above the truth.

    Regions are long: they are numbered in the head and written out below.
    """
    radii, regions = _texts(runs, RadiusQuery), _texts(runs, RegionQuery)
    numbers = [f"({number})" for number in range(1, len(regions) + 1)]
    cells = [["run", "plain", *radii, *numbers, "average radius"]]
    cells += [_row(run, results[run.name], (*radii, *regions)) for run in runs]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *figures in cells:
        aligned = [cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *aligned]))
    return lines + [f"{n} {text}" for n, text in zip(numbers, regions, strict=True)]


def _row(run: SweepRun, results: Sequence[Result], columns: Sequence[str]) -> list[str]:
    """Return the cells of one run, open where a radius or region does not apply to it."""
    summary = summarise(results)
    blocks = results[0].certificate.space.blocks

    def percent(count: int) -> str:
        return f"{percent_down(count, summary.total)} %"

    plain = _NONE if summary.plain is None else percent(summary.plain)
    shares = {query.text: percent(count_certified(results, query)) for query in run.queries}
    average = blocks[0].unit.format_down(summary.averages[0]) if len(blocks) == 1 else _NONE
    return [run.name, plain, *(shares.get(text, _NONE) for text in columns), average]


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--data", help="The images to train on; their test split is certified.")
@click.option("--model", help="small_cnn, resnet18, resnet50, timm:NAME, net.py:build, …")
@click.option(
    "--deformation", "deformations", multiple=True, help="rotation, dct:3, …; again for more runs."
)
@click.option("--noise", "noises", multiple=True, help="uniform:30deg, …; again for more runs.")
@click.option("--recipe", help="fast, paper, or your own .toml.  [fast]")
@click.option("--epochs", type=int, help="Replaces that of the recipe.")
@click.option("--batch-size", type=int, help="Replaces that of the recipe.")
@click.option("--consistency", type=float, help="Weight of consistency regularisation.")
@click.option(
    "--seed",
    type=int,
    help="Seed of training and certification.  [0 to train, a random one to certify]",
)
@click.option("--n", type=int, help="Samples of an image, at most.  [100000]")
@click.option("--max", "most", type=int, help="Certify only N images.")
@click.option("--radii", type=NonEmpty(), help="Radii to decide, e.g. 10deg,30deg.")
@click.option("--region", "regions", multiple=True, help="A region to decide; again for more.")
@click.option("--device", help="cpu, cuda, cuda:1; with a FILE too.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The folder of the runs' folders; with a FILE too.  [runs/sweep, or as the file says]",
)
@click.option("--only", multiple=True, help="The name of a run to do; again for more.")
@click.option("--list", "listing", is_flag=True, help="Show how far each run is, and stop.")
@click.option("--report", is_flag=True, help="Also write the report of all runs.")
@trust_code_option
def sweep(
    file: Path | None,
    data: str | None,
    model: str | None,
    deformations: tuple[str, ...],
    noises: tuple[str, ...],
    recipe: str | None,
    epochs: int | None,
    batch_size: int | None,
    consistency: float | None,
    seed: int | None,
    n: int | None,
    most: int | None,
    radii: str | None,
    regions: tuple[str, ...],
    device: str | None,
    out: Path | None,
    only: tuple[str, ...],
    listing: bool,
    report: bool,
    trust_code: bool,
) -> None:
    """Train and certify several networks, one after another, and compare them.

    Finished runs are skipped: interrupt it at any time, and the same command goes on. Without a
    FILE, every deformation is combined with every noise.

    \b
    Example:
      deformrs sweep --data digits --model small_cnn --epochs 1 --deformation rotation \\
          --noise uniform:30deg --noise uniform:90deg --n 200 --max 20 --radii 10deg,30deg \\
          --out runs/sweep --report

    \b
    A FILE takes all options of train and certify, for all runs or for some:
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
    tables = {
        "train": _given(
            data=data,
            model=model,
            recipe=recipe,
            epochs=epochs,
            batch_size=batch_size,
            consistency=consistency,
            seed=seed,
        ),
        "certify": _given(n=n, max=most, radii=radii, seed=seed, regions=list(regions)),
        "runs": _given(deformation=list(deformations), noise=list(noises)),
    }
    if only and report:
        raise click.UsageError("--report covers all runs: leave out --only or --report")
    if file is None:
        for key, table_name in _NEEDED.items():
            if key not in tables[table_name]:
                raise click.UsageError(f"--{key} is missing; give it, or name a file")
        place = out or Path("runs/sweep")
        content = tables | {"runs": [tables["runs"]]}
        # Code named on the command line is the user's own.
        planned = plan_sweep(content, place, device=device, trust_code=True)
    else:
        given = [key for options in tables.values() for key in options]
        if given:
            flag = "region" if given[0] == "regions" else given[0].replace("_", "-")
            raise click.UsageError(f"--{flag} cannot be given with {file}: write it there")
        planned = read_sweep(file, out, device, trust_code=trust_code)
    planned = planned.only(only)
    if listing:
        _list(planned)
    else:
        _sweep(planned, report=report)


_NEEDED = {"data": "train", "model": "train", "deformation": "runs", "noise": "runs"}
"""Options that a sweep without a file needs, and their tables."""


def _given(**options: object) -> dict[str, object]:
    return {key: value for key, value in options.items() if value not in (None, [])}


def _list(planned: Sweep) -> None:
    width = max(len(run.name) for run in planned.runs)
    echo(f"{len(planned.runs)} runs in {planned.out}")
    for run in planned.runs:
        try:
            progress = run.progress()
        except DeformRSError as error:
            progress = f"damaged: {error}"
        echo(f"  {run.name:<{width}}  {progress}")


def _sweep(planned: Sweep, *, report: bool) -> None:
    if planned.out.exists() and not planned.out.is_dir():
        raise InputError("the folder", planned.out, "must not be a file", "choose another by --out")
    results, failures = complete(planned.runs, Console(highlight=False))
    done = [run for run in planned.runs if run.name in results]
    if done:
        echo("", *table(done, results))
    if done and report:
        page, notes = report_on(done, below(planned.out, REPORT))
        for note in notes:
            echo(f"note: {note}", err=True)
        echo("", f"written: {page}")
    elif done:
        folders = " ".join(quoted(run.folder) for run in done)
        echo("", f"next: deformrs report {folders}")
    for name, failure in failures.items():
        echo(f"error: {name}: {' '.join(failure.split())}", err=True)
    if failures:
        raise click.exceptions.Exit(1)
