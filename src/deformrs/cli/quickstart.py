"""`deformrs quickstart`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import torch
from rich.console import Console

from deformrs.checks import check_integer
from deformrs.cli.certify import certify_job
from deformrs.cli.jobs import prepare
from deformrs.cli.options import DataOptions, ModelOptions, SamplingOptions, SmoothingOptions
from deformrs.cli.progress import print_plain
from deformrs.cli.train import train_run
from deformrs.cli.training_options import StartOptions, TrainingOptions, TrainingRequest
from deformrs.data.mnist import TEST
from deformrs.errors import InputError
from deformrs.report.curves import draw_curve
from deformrs.report.gallery import Exhibit, draw_gallery, one_per_class
from deformrs.report.summary import average_radius, count_certified, noise_words
from deformrs.rounding import percent_down
from deformrs.runs import Result, write_atomically
from deformrs.stopping import RadiusQuery
from deformrs.units import Unit

RADII = {f"{degrees}°": math.radians(degrees) for degrees in (10, 30, 60)}
SMOOTHING = SmoothingOptions("rotation", "uniform:90deg")


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/quickstart"),
    show_default=True,
    help="Folder for the network, certificates and figures.",
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
    out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    start = StartOptions("small_cnn:width=32")
    request = TrainingRequest(start, DataOptions("digits", "train"), SMOOTHING, training)
    train_run(request, out)

    model = ModelOptions(str(out), precision="float32", device="cpu")
    job = prepare(model, DataOptions("digits"), SMOOTHING, out)
    results = certify_job(job, sampling, out, console, [RadiusQuery("30deg")])

    accuracy = {
        label: percent_down(count_certified(results, radius), len(results))
        for label, radius in RADII.items()
    }
    average = Unit.ANGLE.show_down(average_radius(results), (28, 28))
    write_atomically(out / "table.md", _table(results, accuracy, average))
    draw_curve(results, out / "curve.png")
    written = ["certificates.jsonl", "table.md", "curve.png"]
    exhibits = [
        Exhibit(torch.from_numpy(job.images[result.index][0]), result.certificate)
        for result in one_per_class(results)
    ]
    if exhibits:
        draw_gallery(exhibits, job.classifier.deformation, out / "gallery.png")
        written.append("gallery.png")
    else:
        (out / "gallery.png").unlink(missing_ok=True)

    print_plain(
        console,
        f"\nCertified accuracy of {digits} test digits, failure probability {alpha}:",
        *(f"  any rotation up to {label:>4}   {share:>5} %" for label, share in accuracy.items()),
        f"  average certified radius  {average}\n",
        *(f"{name:<20} {out / name}" for name in written),
    )


def _table(results: Sequence[Result], accuracy: Mapping[str, str], average: str) -> str:
    """Return a Markdown table of the certified accuracy, and the settings behind it."""
    first = results[0].certificate
    abstained = sum(result.certificate.prediction is None for result in results)
    lines = ["| rotation up to | certified accuracy |", "|---|---|"]
    lines += [f"| {label} | {percent} % |" for label, percent in accuracy.items()]
    lines += [
        "",
        f"Average certified radius: {average}. Abstained on {abstained} of {len(results)} images.",
        f"Noise: {noise_words(results)}. n0 = {first.counts.n0:,}, n = {first.counts.n:,}, "
        f"alpha = {first.alpha} per image.",
    ]
    return "\n".join(lines) + "\n"
