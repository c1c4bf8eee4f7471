"""`deformrs pack`."""

from __future__ import annotations

from pathlib import Path

import click

from deformrs.cli.terminal import echo
from deformrs.runs import pack_run, runs_in, unpack_run


@click.command()
@click.argument(
    "folders", metavar="RUNS...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--undo", is_flag=True, help="Unpack them, e.g. to resume a run.")
def pack(folders: tuple[Path, ...], undo: bool) -> None:
    """Compress finished runs, e.g. for version control.

    Packed certificates and times (certificates.jsonl.xz) are read like those of any other run. A
    folder of runs, such as runs/sweep, stands for all of them.

    \b
    Example:
      deformrs pack runs/quickstart
    """
    for run in (run for folder in folders for run in runs_in(folder)):
        size = unpack_run(run) if undo else pack_run(run)
        echo(f"{run}: {size.before:,} bytes before, {size.after:,} now")
