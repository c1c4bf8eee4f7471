"""`deformrs certify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deformrs.cli.options import (
    check_writable,
    data_options,
    model_options,
    smoothing_options,
    split_list,
    typed,
)
from deformrs.cli.sampling_options import choosing_options, sampling_options, stopping_options

if TYPE_CHECKING:
    from deformrs.tasks.options import DataOptions, ModelOptions, SmoothingOptions


@click.command()
@model_options(required=True)
@data_options(required=False)
@smoothing_options(required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run folder; one that was stopped is taken up.  [the model's own, if it was trained; "
    "for pictures held out, held-out/ in it]",
)
@sampling_options(n=100_000)
@choosing_options
@stopping_options
@click.option(
    "--export", type=click.Path(path_type=Path), help="Also write idx, label, predict, … as TSV."
)
def certify(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None,
    n: int,
    n0: int,
    alpha: float,
    seed: int,
    method: str | None,
    skip: int,
    most: int | None,
    radii: str | None,
    regions: tuple[str, ...],
    adaptive: str | None,
    fixed: bool,
    export: Path | None,
) -> None:
    """Certify labelled pictures: how far may each be deformed?

    With --radii or --region a picture is sampled until each is settled, at most --n times: some
    tens of samples are enough for most. --adaptive stops where more samples would raise the
    radius by less. Without them, or with --fixed, every picture gets --n samples.

    Interrupt it as you like: the same command goes on where it stopped. A folder that deformrs
    train wrote needs no further options: it is certified on the test split of its data, against
    the deformation and the noise it was trained with; with --split held-out on the pictures that
    --hold-out kept from it, which are there to choose by. What is given wins. Of a network of your
    own, name the file and the weights: --model net.py:build --weights RUN/model.safetensors.

    \b
    Examples:
      deformrs certify --model runs/quickstart --data digits --deformation rotation \\
          --noise uniform:90deg --n 1000 --max 20 --radii 10deg,30deg --out runs/digits
      deformrs certify --model runs/quickstart --data digits --n 1000 --max 20 \\
          --deformation rotation+scaling --noise uniform:60deg+uniform:30% \\
          --region "rotation<=5deg, scale=0.95..1.05" --out runs/both
      deformrs certify --model timm:resnet18 --data photos/ --deformation rotation \\
          --noise uniform:30deg --out runs/photos
    """
    from rich.console import Console

    from deformrs.progress import Downloads
    from deformrs.questions import questions
    from deformrs.report.export import export_tsv
    from deformrs.runs import read_times, write_atomically
    from deformrs.tasks.certifying import Sampling, certify_job, summary
    from deformrs.tasks.jobs import prepare
    from deformrs.tasks.trained import certification

    console = Console(highlight=False)
    check_writable("--export", export)
    asked = questions(split_list(radii), regions)
    sampling = Sampling(
        n=n,
        n0=n0,
        alpha=alpha,
        seed=seed,
        method=method,
        skip=skip,
        max=most,
        adaptive=adaptive,
        fixed=fixed,
    )
    asked_for = certification(model, data, smoothing, out, padding_given=typed("padding"))
    out = asked_for.out
    with Downloads(console) as fetched:
        job = prepare(model, asked_for.data, asked_for.smoothing, out, fetched)
    if asked_for.trained is not None and asked_for.trained.has_seen(job.pictures):
        click.echo(
            "note: these are the pictures it was trained on; certified accuracy on them says "
            "little",
            err=True,
        )
    console.print(job.execution, markup=False, soft_wrap=True)
    results = certify_job(job, sampling, out, console, asked)
    stopping = sampling.stopping(asked)
    averaged = stopping is None or stopping.tolerance is not None
    for line in summary(results, asked, averaged=averaged):
        console.print(line, markup=False, soft_wrap=True)
    if export is not None:
        write_atomically(export, export_tsv(results, read_times(out)))
        console.print(f"\nwritten: {export}", markup=False, soft_wrap=True)
    console.print(f"\nnext: deformrs report {out}", markup=False, soft_wrap=True)
