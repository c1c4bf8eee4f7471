"""`deformrs report`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deformrs.cli.parameters import Word, check_writable, split_list

if TYPE_CHECKING:
    from deformrs.runs import StoredRun


@click.command()
@click.argument(
    "folders", metavar="RUNS...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the page and its parts.  [report/ in the first folder]",
)
@click.option("--alpha", type=float, help="Certify anew at this level, from the stored counts.")
@click.option(
    "--method",
    type=Word("clopper_pearson", "bonferroni", "anytime"),
    help="Certify anew by this bound.",
)
@click.option("--radii", help="Radii of the tables, e.g. 10deg,30deg.")
@click.option(
    "--region", "regions", multiple=True, help="'rotation<=10deg, scale=0.8..1.2, shift<=4px'."
)
@click.option(
    "--paper",
    is_flag=True,
    help="Write README.md, summary.csv and figures that set the runs beside the paper's tables.",
)
@click.option("--title", help="Of the page.  [Certified robustness]")
@click.option("--note", default="", help="What readers must know, beneath the title.")
@click.option("--no-images", is_flag=True, help="Leave the least robust images out.")
@click.option(
    "--export", type=click.Path(path_type=Path), help="Also write one run as idx, label, … TSV."
)
def report(
    folders: tuple[Path, ...],
    out: Path | None,
    alpha: float | None,
    method: str | None,
    radii: str | None,
    regions: tuple[str, ...],
    paper: bool,
    title: str | None,
    note: str,
    no_images: bool,
    export: Path | None,
) -> None:
    """Make a page, figures and tables of one or several runs. Nothing is sampled again.

    A folder that holds runs, such as runs/sweep, stands for all of them.

    Choose alpha and the bound before you look: the best of several is not one of that level.

    \b
    Examples:
      deformrs report runs/quickstart --radii 10deg,30deg
      deformrs report runs/quickstart --alpha 0.0001 --out runs/strict
      deformrs report results/mnist results/cifar10 --paper --out results
    """
    from rich.console import Console

    from deformrs.cli.progress import step
    from deformrs.data.loading import StoredImages
    from deformrs.errors import InputError
    from deformrs.report.against.writing import write_against_paper
    from deformrs.report.export import export_tsv
    from deformrs.report.writing import write_report
    from deformrs.runs import read_run, read_times, write_atomically

    runs = [run for folder in folders for run in _runs_of(folder)]
    if export is not None and len(runs) != 1:
        raise InputError("--export", f"asked for {len(runs)} runs", "writes one run", "name one")
    check_writable("--export", export)
    if paper:
        for option, value in (("--radii", radii), ("--region", regions), ("--export", export)):
            if value:
                raise InputError(
                    option,
                    "given with --paper",
                    "has no place on that page, whose radii are the paper's",
                    "leave it out, or leave --paper out",
                )
        console = Console(highlight=False)
        with step(console, "reading runs", len(runs)) as advance:
            files = write_against_paper(
                _one_by_one(runs, alpha, method, advance),
                out or folders[0] / "report",
                title=title,
                note=note,
            )
        _show(files)
        return
    stored = [read_run(folder, alpha=alpha, method=method) for folder in runs]
    images = None if no_images else StoredImages()
    files = write_report(
        stored,
        out or folders[0] / "report",
        radii=split_list(radii),
        regions=regions,
        images=images,
        title=title or "Certified robustness",
        note=note,
    )
    if images is not None:
        for reason in images.missing:
            click.echo(f"note: {reason}", err=True)
    if export is not None:
        write_atomically(export, export_tsv(stored[0].results, read_times(runs[0])))
        files["log"] = export
    _show(files)


def _runs_of(folder: Path) -> list[Path]:
    """Its runs; where they lie a level deeper, an error that names the folders to give."""
    from deformrs.errors import InputError
    from deformrs.runs import runs_in
    from deformrs.runs.folder import CONFIG

    found = runs_in(folder)
    if found == [folder] and folder.is_dir() and not (folder / CONFIG).exists():
        below = [place for place in sorted(folder.iterdir()) if runs_in(place) != [place]]
        if below:
            raise InputError(
                str(folder),
                "a folder of folders with runs",
                "must be a run or hold runs",
                f"give {shlex.join(map(str, below))}",
            )
    return found


def _one_by_one(
    folders: list[Path],
    alpha: float | None,
    method: str | None,
    advance: Callable[[float, str], None],
) -> Iterator[StoredRun]:
    """The counts of many runs need not be in memory together."""
    from deformrs.runs import read_run

    for number, folder in enumerate(folders, start=1):
        yield read_run(folder, alpha=alpha, method=method)
        advance(number, folder.name)


def _show(files: dict[str, Path]) -> None:
    for name, path in files.items():
        click.echo(f"{name:<20} {path}")
