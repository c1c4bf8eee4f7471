"""`deformrs quickstart`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from deformrs.checks import check_integer
from deformrs.cli.certify import certify_job
from deformrs.cli.jobs import prepare
from deformrs.cli.options import DataOptions, ModelOptions, SamplingOptions, SmoothingOptions
from deformrs.cli.terminal import print_plain
from deformrs.cli.train import train_run
from deformrs.cli.training_options import StartOptions, TrainingOptions, TrainingRequest
from deformrs.data.loading import StoredImages
from deformrs.data.mnist import TEST
from deformrs.errors import InputError
from deformrs.report.document import PAGE, write_report
from deformrs.report.gallery import gallery, one_per_class
from deformrs.report.summary import average_radius, count_certified
from deformrs.rounding import percent_down
from deformrs.runs import Result, read_run
from deformrs.runs.files import below, make_folder
from deformrs.stopping import RadiusQuery
from deformrs.units import Unit, parse_quantity

RADII = ("10°", "30°", "60°")
GALLERY = "gallery.png"
SMOOTHING = SmoothingOptions("rotation", "uniform:90deg")


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/quickstart"),
    show_default=True,
    help="Folder for the network, certificates, report and gallery.",
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
    # Everything is checked before training, not after it.
    check_integer("digits", digits, least=1)
    if digits > TEST:
        raise InputError("digits", digits, f"must lie in [1, {TEST}]", f"e.g. {TEST}")
    sampling = SamplingOptions(n=n, alpha=alpha, seed=seed, max=digits, fixed=True)
    # Recipes are for large datasets: four thousand digits need smaller batches.
    training = TrainingOptions(
        epochs=epochs,
        batch_size=128,
        learning_rate=0.1,
        copies=1,
        tilt=0.0,
        seed=seed,
        device="cpu",
        tensorboard=False,
    )
    report = below(make_folder(out), "report")
    console = Console(highlight=False)
    start = StartOptions("small_cnn:width=32")
    request = TrainingRequest(start, DataOptions("digits", "train"), SMOOTHING, training)
    train_run(request, out)

    model = ModelOptions(str(out), precision="float32", device="cpu")
    job = prepare(model, DataOptions("digits"), SMOOTHING, out)
    certify_job(job, sampling, out, console, [RadiusQuery("30deg")])

    run = read_run(out)
    results = run.results
    write_report([run], report, radii=RADII, images=StoredImages())
    exhibits = [result.index for result in one_per_class(results)][::2]
    if exhibits:
        gallery(out, indices=exhibits, columns=4, path=out / GALLERY)
    else:
        (out / GALLERY).unlink(missing_ok=True)

    print_plain(
        console,
        "",
        f"Certified accuracy of {digits} test digits, failure probability {alpha}:",
        *(
            f"  any rotation up to {radius:>4}    {_accuracy(results, radius):>5} %"
            for radius in RADII
        ),
        f"  average certified radius  {Unit.ANGLE.show_down(average_radius(results), (28, 28))}",
        "",
        f"report   {report / PAGE}",
        *([f"gallery  {out / GALLERY}"] if exhibits else []),
        "",
        "next, with a model and images of your own:",
        "  deformrs certify --model net.py:build --weights net.pth --data photos/ --max 100 \\",
        "      --deformation rotation --noise uniform:30deg --radii 10deg --out runs/photos",
    )


def _accuracy(results: Sequence[Result], radius: str) -> str:
    certified = count_certified(results, parse_quantity(radius, Unit.ANGLE, (28, 28)))
    return percent_down(certified, len(results))
