"""`deformrs predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deformrs.cli.options import model_options, run_option, smoothing_options, typed
from deformrs.cli.sampling_options import sampling_options

if TYPE_CHECKING:
    from deformrs.tasks.options import ModelOptions, SmoothingOptions


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@run_option
@model_options(required=False)
@smoothing_options(required=False)
@sampling_options(n=10_000)
@click.option("--region", "regions", multiple=True, help="Is this certified too?")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def predict(
    files: tuple[Path, ...],
    run: Path | None,
    model: ModelOptions,
    smoothing: SmoothingOptions,
    n: int,
    n0: int,
    alpha: float,
    seed: int,
    regions: tuple[str, ...],
    as_json: bool,
) -> None:
    """What is on these pictures, and how far may they be deformed?

    A model folder that deformrs train wrote brings its deformation and noise.

    \b
    Examples:
      deformrs predict digit.png --run runs/quickstart
      deformrs predict digit.png --model runs/quickstart --deformation translation \\
          --noise gaussian:2px --n 2000
    """
    from deformrs.questions import questions
    from deformrs.tasks.certifying import Sampling
    from deformrs.tasks.options import options_of
    from deformrs.tasks.predicting import predictions
    from deformrs.tasks.trained import find_trained

    trained = find_trained(model.model, model.weights) if run is None else None
    if trained is not None:
        smoothing = trained.smoothing_for(smoothing, padding_given=typed("padding"))
    model, smoothing = options_of(run, model, smoothing)
    sampling = Sampling(n=n, n0=n0, alpha=alpha, seed=seed)
    asked = questions((), regions)
    failed = 0
    for answer in predictions(files, model, smoothing, sampling, asked, run):
        if answer.fault is not None:
            failed += 1
            click.echo(f"error: {answer.fault}", err=True)
        else:
            click.echo(answer.json if as_json else answer.words)
    if failed:
        raise click.exceptions.Exit(1)
