"""`deformrs train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deformrs.cli.options import smoothing_options
from deformrs.cli.training_options import start_options, training_options

if TYPE_CHECKING:
    from deformrs.tasks.options import SmoothingOptions
    from deformrs.tasks.training_options import StartOptions, TrainingOptions


@click.command()
@click.option(
    "--data",
    required=True,
    help="digits, mnist, cifar10 (mnist:FOLDER where they lie), a folder of class folders, "
    "a folder with labels.csv, or pictures.npz.",
)
@click.option("--data-root", help="Where downloads are kept.  [$DEFORMRS_DATA]")
@start_options(required=True)
@smoothing_options(required=True)
@training_options()
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The run folder; a training that was stopped there is taken up.",
)
def train(
    data: str,
    data_root: str | None,
    start: StartOptions,
    smoothing: SmoothingOptions,
    training: TrainingOptions,
    out: Path,
) -> None:
    """Train a classifier under the noise it will be certified with.

    Interrupt it as you like: the same command goes on where it stopped. Then certify it: the
    folder knows its data, deformation and noise.

    \b
    Examples:
      deformrs train --data digits --model small_cnn --deformation rotation \\
          --noise uniform:54deg --epochs 20 --out runs/first
      deformrs certify --model runs/first --n 1000 --max 50 --radii 10deg,30deg
      deformrs train --data cifar10 --model resnet18 --deformation rotation \\
          --noise uniform:54deg --consistency 10 --out runs/cifar
      deformrs train --data photos/ --model resnet50 --pretrained --recipe paper \\
          --deformation translation --noise gaussian:20px --out runs/photos
    """
    from rich.console import Console

    from deformrs.tasks.options import DataOptions
    from deformrs.tasks.training import train_run

    console = Console(highlight=False)
    train_run(start, DataOptions(data, "train", data_root), smoothing, training, out, console)
    trained = str(out)
    if ".py:" in start.model:  # code, which is not executed because a folder names it
        trained = f"{start.model} --weights {out / 'model.safetensors'}"
    console.print(f"\nnext: deformrs certify --model {trained} --n 1000", soft_wrap=True)
