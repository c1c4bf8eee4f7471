"""`deformrs pack`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument(
    "folders", metavar="RUNS...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--undo", is_flag=True, help="Unpack them, to go on with a run.")
def pack(folders: tuple[Path, ...], undo: bool) -> None:
    """Keep runs that are done in much less space, e.g. under version control.

    Certificates and times are compressed (certificates.jsonl.xz), and read like those of any other
    run. A folder that holds runs, such as runs/sweep, stands for all of them.

    \b
    Example:
      deformrs pack runs/quickstart
    """
    from deformrs.runs import pack_run, runs_in, unpack_run

    for run in (run for folder in folders for run in runs_in(folder)):
        size = unpack_run(run) if undo else pack_run(run)
        click.echo(f"{run}: {size.before:,} bytes before, {size.after:,} now")
