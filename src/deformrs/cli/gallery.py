"""`deformrs gallery`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deformrs.cli.options import (
    Word,
    data_options,
    model_options,
    run_option,
    smoothing_options,
    typed,
    whole_numbers,
)
from deformrs.cli.sampling_options import sampling_options

if TYPE_CHECKING:
    from deformrs.tasks.options import DataOptions, ModelOptions, SmoothingOptions


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=Word("certified", "fields", "families"),
    default="certified",
    show_default=True,
    help="Samples from certified sets; deformed pictures beside their vector fields; every family.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("gallery.png"),
    show_default=True,
    help="A .png, .svg or .pdf file.",
)
@run_option
@model_options(required=False)
@data_options(required=False)
@smoothing_options(required=False)
@click.option("--pictures", help="Numbers in the data set, e.g. 0,5,17.")
@click.option("--columns", default=8, show_default=True, help="Deformations in a row.")
@click.option("--predict-n", default=100, show_default=True, help="Samples of each prediction.")
@sampling_options(n=1000)
def gallery(
    files: tuple[Path, ...],
    kind: str,
    out: Path,
    run: Path | None,
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    pictures: str | None,
    columns: int,
    predict_n: int,
    n: int,
    n0: int,
    alpha: float,
    seed: int,
) -> None:
    """Draw pictures under deformations that provably leave their label alone.

    A model folder that deformrs train wrote brings its test pictures, deformation and noise.

    \b
    Examples:
      deformrs gallery --run runs/quickstart --out certified.png
      deformrs gallery --kind fields --data digits --pictures 3 --out fields.png
      deformrs gallery --kind families --model runs/quickstart --data digits --out families.png
    """
    from rich.console import Console

    from deformrs.tasks.exhibition import Sampling
    from deformrs.tasks.showing import Request, draw
    from deformrs.tasks.trained import find_trained

    trained = find_trained(model.model, model.weights) if run is None else None
    if trained is not None and not files:
        data = trained.data_for(data)
    if trained is not None and kind == "certified":
        smoothing = trained.smoothing_for(smoothing, padding_given=typed("padding"))
    sampling = Sampling(columns=columns, n=n, n0=n0, alpha=alpha, seed=seed, predict_n=predict_n)
    request = Request(
        kind=kind,  # type: ignore[arg-type]
        out=out,
        model=model,
        data=data,
        smoothing=smoothing,
        sampling=sampling,
        files=files,
        run=run,
        pictures=whole_numbers("--pictures", pictures),
    )
    draw(request, Console(highlight=False))
    click.echo(f"written: {out}")
