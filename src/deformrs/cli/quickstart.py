"""`deformrs quickstart`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/quickstart"),
    show_default=True,
    help="Folder for the network, certificates and pictures.",
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

    from deformrs.tasks.quickstart import Settings, run
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
