"""The command line: it parses, calls and prints."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

import click

from deformrs import __version__
from deformrs.errors import DeformRSError


def main() -> None:
    """Run the command line; every foreseen failure is one line and exit code 1."""
    try:
        commands()
    except (DeformRSError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def commands() -> None:
    """How far may a picture be deformed before a classifier's answer can change?

    \b
    Example:
      deformrs quickstart
    """
    _keep_freed_memory()


@commands.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/quickstart"),
    show_default=True,
    help="Folder for certificates and pictures.",
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
      deformrs quickstart --digits 50 --out runs/first
    """
    from rich.console import Console

    from deformrs.quickstart import Settings, run
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


def _keep_freed_memory() -> None:
    """Tell glibc to keep large blocks instead of returning them after every batch.

    Page faults otherwise cost more than the arithmetic of a small network. Must happen before
    torch allocates; elsewhere than on glibc there is nothing to do.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        mmap_threshold, trim_threshold = -3, -1
        libc.mallopt(mmap_threshold, 2**30)
        libc.mallopt(trim_threshold, 2**31 - 1)


if __name__ == "__main__":
    main()
