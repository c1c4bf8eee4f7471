"""The verb `deformrs report`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from deformrs.cli.parameters import Word, check_writable, split_list


@click.command()
@click.argument(
    "folders", metavar="RUNS...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the page, tables and figures.  [report/ in the first folder]",
)
@click.option("--alpha", type=float, help="Certify anew at this alpha, from the stored counts.")
@click.option(
    "--method",
    type=Word("clopper_pearson", "bonferroni", "anytime"),
    help="Certify anew with this bound.",
)
@click.option("--radii", help="Radii of the tables, e.g. 10deg,30deg.")
@click.option(
    "--region", "regions", multiple=True, help="'rotation<=10deg, scale=0.8..1.2, shift<=4px'."
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    help="CSV of accuracies to compare with: dataset,deformation,radius,accuracy[,name].",
)
@click.option("--title", default="Certified robustness", help="Title of the page.")
@click.option("--note", default="", help="A paragraph below the title.")
@click.option("--no-images", is_flag=True, help="Leave the least robust images out.")
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    help="Also write one run as a TSV log: idx, label, …",
)
def report(
    folders: tuple[Path, ...],
    out: Path | None,
    alpha: float | None,
    method: str | None,
    radii: str | None,
    regions: tuple[str, ...],
    reference: Path | None,
    title: str,
    note: str,
    no_images: bool,
    export: Path | None,
) -> None:
    """Write a page, tables and figures of one or several runs. Nothing is sampled again.

    A folder of runs, such as runs/sweep, stands for all of them.

    Choose alpha and the bound before you look: the best of several does not hold at that alpha.

    \b
    Examples:
      deformrs report runs/quickstart --radii 10deg,30deg
      deformrs report runs/quickstart --alpha 0.0001 --out runs/strict
      deformrs report runs/sweep --reference numbers.csv
    """
    from deformrs.data.loading import StoredImages
    from deformrs.errors import InputError
    from deformrs.report.document import write_report
    from deformrs.report.export import export_tsv
    from deformrs.runs import read_run, read_times, write_atomically

    runs = [run for folder in folders for run in _runs_of(folder)]
    if export is not None and len(runs) != 1:
        raise InputError(
            "--export", f"given with {len(runs)} runs", "writes one run", "name one run"
        )
    check_writable("--export", export)
    stored = [read_run(folder, alpha=alpha, method=method) for folder in runs]
    images = None if no_images else StoredImages()
    files = write_report(
        stored,
        out or folders[0] / "report",
        radii=split_list(radii),
        regions=regions,
        reference=reference,
        images=images,
        title=title,
        note=note,
    )
    if images is not None:
        for reason in images.missing:
            click.echo(f"note: {reason}", err=True)
    if export is not None:
        write_atomically(export, export_tsv(stored[0].results, read_times(runs[0])))
        files["log"] = export
    for name, path in files.items():
        click.echo(f"{name:<20} {path}")


def _runs_of(folder: Path) -> list[Path]:
    """The runs of a folder; an error that names the folders to give if they lie a level deeper."""
    from deformrs.errors import InputError
    from deformrs.runs import runs_in
    from deformrs.runs.folder import CONFIG

    runs = runs_in(folder)
    if runs == [folder] and folder.is_dir() and not (folder / CONFIG).exists():
        below = [place for place in sorted(folder.iterdir()) if runs_in(place) != [place]]
        if below:
            raise InputError(
                str(folder),
                "a folder of folders with runs",
                "must be a run or hold runs",
                f"give {shlex.join(map(str, below))}",
            )
    return runs
