"""Options on how many samples are drawn, of which pictures, and when to stop."""

from __future__ import annotations

from collections.abc import Callable

import click

from deformrs.cli.options import Command, Word


def sampling_options(
    n: int, alpha: float = 1e-3, *, seed: bool = True
) -> Callable[[Command], Command]:
    """`--n`, `--n0`, `--alpha` and perhaps `--seed`, one argument each."""

    def decorate(command: Command) -> Command:
        own = click.option("--seed", default=0, show_default=True, help="Seed of the noise.")
        for option in (
            *([own] if seed else []),
            click.option(
                "--alpha", default=alpha, show_default=True, help="Failure probability a picture."
            ),
            click.option("--n", default=n, show_default=True, help="Samples that bound it."),
            click.option(
                "--n0", default=100, show_default=True, help="Samples that choose the class."
            ),
        ):
            command = option(command)
        return command

    return decorate


def choosing_options(command: Command) -> Command:
    """`--method`, `--skip` and `--max` (the argument `most`)."""
    for option in (
        click.option("--max", "most", type=int, help="Look at the first N pictures only."),
        click.option("--skip", default=1, show_default=True, help="Certify every K-th picture."),
        click.option(
            "--method",
            type=Word("clopper_pearson", "bonferroni", "anytime"),
            help="The bound on probabilities.  [clopper_pearson; where sampling stops early "
            "anytime with a sharp last look at --n]",
        ),
    ):
        command = option(command)
    return command


def _some(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Given, it must not be empty: a shell variable that is not set would mean something else."""
    if text is not None and not text.strip(" ,"):
        raise click.BadParameter("it is empty; leave it out, or say e.g. 10deg", context, option)
    return text


def stopping_options(command: Command) -> Command:
    """`--radii`, `--region` (the argument `regions`), `--adaptive` and `--fixed`."""
    for option in (
        click.option("--fixed", is_flag=True, help="All n samples for every picture."),
        click.option(
            "--adaptive",
            metavar="TOLERANCE",
            callback=_some,
            help="Stop where more samples can raise the radius by less than that, e.g. 1deg.",
        ),
        click.option(
            "--region",
            "regions",
            multiple=True,
            help="A region to settle: 'rotation<=10deg, scale=0.8..1.2'.",
        ),
        click.option("--radii", callback=_some, help="Radii to settle, e.g. 10deg,30deg."),
    ):
        command = option(command)
    return command
