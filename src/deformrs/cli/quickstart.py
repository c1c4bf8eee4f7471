"""`deformrs quickstart`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from rich.console import Console

from deformrs.checks import check_alpha, check_integer, check_seed
from deformrs.cli.certify import certify_job
from deformrs.cli.jobs import prepare
from deformrs.cli.options import (
    DataOptions,
    ModelOptions,
    SamplingOptions,
    SmoothingOptions,
    StartOptions,
    TrainingOptions,
)
from deformrs.cli.train import train_run
from deformrs.data.digits import TEST
from deformrs.errors import InputError
from deformrs.report.curves import draw_curve
from deformrs.report.gallery import Exhibit, draw_gallery
from deformrs.report.summary import Row, accuracy_rows, average_radius, markdown
from deformrs.runs import Result, write_atomically
from deformrs.stopping import RadiusQuery

RADII = {f"{degrees}°": math.radians(degrees) for degrees in (10, 30, 60)}
SMOOTHING = SmoothingOptions("rotation", "uniform:90deg")


@dataclass(frozen=True)
class Settings:
    """What the tour does. Equal settings give equal certificates on one machine."""

    out: Path = Path("runs/quickstart")
    digits: int = 200
    epochs: int = 30
    n: int = 2000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        # Before training, not after it.
        for name in ("digits", "epochs", "n", "n0"):
            check_integer(name, getattr(self, name), least=1)
        if self.digits > TEST:
            raise InputError("digits", self.digits, f"must lie in [1, {TEST}]", f"e.g. {TEST}")
        check_alpha(self.alpha)
        check_seed("seed", self.seed)


@dataclass(frozen=True)
class Tour:
    """What came of it."""

    rows: list[Row]
    average_radius: float
    files: dict[str, Path]


def run(settings: Settings, console: Console) -> Tour:
    """Train, certify, and write network, certificates, curve, table and gallery to its folder."""
    out = settings.out
    out.mkdir(parents=True, exist_ok=True)  # before training, not after it
    _train(settings, console)
    job = prepare(
        ModelOptions(str(out), precision="float32", device="cpu"),
        DataOptions("digits"),
        SMOOTHING,
        out,
    )
    sampling = SamplingOptions(
        settings.n, settings.n0, settings.alpha, settings.seed, max=settings.digits, fixed=True
    )
    results = certify_job(job, sampling, out, console, [RadiusQuery("30deg")])

    files = {
        name: out / name for name in ("certificates.jsonl", "table.md", "curve.png", "gallery.png")
    }
    write_atomically(files["table.md"], markdown(results, RADII))
    draw_curve(results, files["curve.png"])
    exhibits = [
        Exhibit(torch.from_numpy(job.images[result.index][0]), result.certificate)
        for result in _one_of_each_class(results)
    ]
    if exhibits:
        draw_gallery(exhibits, job.classifier.deformation, files["gallery.png"])
    else:
        files.pop("gallery.png").unlink(missing_ok=True)
    return Tour(accuracy_rows(results, RADII), average_radius(results), files)


def _train(settings: Settings, console: Console) -> None:
    """Leave a trained network in the folder, unless it is there already."""
    # The recipe is for large data sets: four thousand digits want smaller batches.
    training = TrainingOptions(
        epochs=settings.epochs,
        batch_size=128,
        learning_rate=0.1,
        copies=1,
        tilt=0.0,
        seed=settings.seed,
        device="cpu",
        tensorboard=False,
    )
    start = StartOptions("small_cnn:width=32")
    data = DataOptions("digits", "train")
    train_run(start, data, SMOOTHING, training, settings.out, console)


def _one_of_each_class(results: list[Result]) -> list[Result]:
    """The first certified image of every class, for the gallery."""
    first: dict[int, Result] = {}
    for result in results:
        if result.correct:
            first.setdefault(result.label, result)
    return [first[label] for label in sorted(first)]


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/quickstart"),
    show_default=True,
    help="Folder for the network, certificates and images.",
)
@click.option("--digits", default=200, show_default=True, help="Test digits to certify.")
@click.option("--epochs", default=30, show_default=True, help="Passes over the training digits.")
@click.option("--n", default=2000, show_default=True, help="Samples that bound the probability.")
@click.option("--alpha", default=1e-3, show_default=True, help="Failure probability per digit.")
@click.option("--seed", default=0, show_default=True, help="Seed of training and of noise.")
def quickstart(out: Path, digits: int, epochs: int, n: int, alpha: float, seed: int) -> None:
    """Train a small network on digits, certify it against rotation, draw the result.

    \b
    Example:
      deformrs quickstart --digits 50 --out runs/tour
    """
    from rich.console import Console

    from deformrs.units import Unit

    console = Console(highlight=False)
    settings = Settings(out=out, digits=digits, epochs=epochs, n=n, alpha=alpha, seed=seed)
    tour = run(settings, console)
    console.print(f"\nCertified accuracy of {digits} test digits, failure probability {alpha}:")
    for row in tour.rows:
        console.print(f"  any rotation up to {row.shown:>4}   {row.percent:>5} %")
    average = Unit.ANGLE.show_down(tour.average_radius, (28, 28))
    console.print(f"  average certified radius  {average}\n")
    for name, path in tour.files.items():
        console.print(f"{name:<20} {path}", soft_wrap=True)
