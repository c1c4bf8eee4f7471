"""The verb `deformrs report`."""

from __future__ import annotations

import dataclasses
import shutil
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deformrs.cli.parameters import (
    NonEmpty,
    check_writable,
    class_names_option,
    max_pixels_option,
    split_list,
)
from deformrs.cli.terminal import echo

if TYPE_CHECKING:
    from deformrs.runs import StoredRun


@click.command()
@click.argument(
    "folders", metavar="RUNS...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the page, tables and figures.  [report/ in the first folder]",
)
@click.option(
    "--alpha",
    type=float,
    help="Certify anew at this alpha, from the stored counts; the images of a run with "
    "--simultaneous share it.",
)
@click.option(
    "--method",
    type=NonEmpty(),
    help="Certify anew with this bound, e.g. auto. A bound chosen after looking does not hold at "
    "its level.",
)
@click.option("--radii", type=NonEmpty(), help="Radii of the tables, e.g. 10deg,30deg.")
@click.option(
    "--region", "regions", multiple=True, help="'rotation<=10deg, scale=0.8..1.2, shift<=4px'."
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    help="CSV of accuracies to compare with: dataset,deformation,radius,accuracy[,name].",
)
@class_names_option
@click.option("--title", default="Certified robustness", help="Title of the page.")
@click.option("--note", default="", help="A paragraph below the title.")
@click.option(
    "--thumbnails",
    type=click.IntRange(min=1),
    help="Images of each run that the page shows.  [as many as fit 8 MB, at most 1000]",
)
@click.option("--no-images", is_flag=True, help="Leave the images out.")
@click.option(
    "--images",
    "moved",
    metavar="DIR",
    type=click.Path(exists=True, path_type=Path),
    help="Where the images are now, if they have moved since they were certified.",
)
@max_pixels_option
@click.option("--open", "shown", is_flag=True, help="Open the page in the browser.")
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
    class_names: tuple[str, ...] | None,
    title: str,
    note: str,
    thumbnails: int | None,
    no_images: bool,
    moved: Path | None,
    max_pixels: int | None,
    shown: bool,
    export: Path | None,
) -> None:
    """Print the answers of one or several runs, and write a page, tables and figures.

    Nothing is sampled again. A folder of runs, such as runs/sweep, stands for all of them.

    Choose alpha and the bound before you look: the best of several does not hold at that alpha.

    \b
    Examples:
      deformrs report runs/quickstart --radii 10deg,30deg --open
      deformrs report runs/quickstart --alpha 0.0001 --out runs/strict
      deformrs report runs/sweep --reference numbers.csv
    """
    from deformrs.data.loading import StoredImages
    from deformrs.errors import InputError
    from deformrs.limits import MAX_PIXELS
    from deformrs.report.captions import (
        certified_words,
        incomplete_words,
        legend_label,
        recertified_words,
        region_example,
        set_words,
        stricter_words,
    )
    from deformrs.report.document import sections_of, write_sections
    from deformrs.report.export import export_tsv
    from deformrs.report.formats import to_text
    from deformrs.report.tables import answers_table
    from deformrs.runs import read_run, read_times, write_atomically
    from deformrs.runs.files import below

    if no_images and moved is not None:
        raise click.UsageError("--images says where the images are; leave --no-images out")
    # Patterns such as runs/* match a README too.
    files = [path for path in folders if path.is_file()] if len(folders) > 1 else []
    for path in files:
        echo(f"note: {path} is a file, not the folder of a run: left out", err=True)
    runs = [run for folder in folders if folder not in files for run in _runs_of(folder)]
    if not runs:
        raise InputError("the runs", "files only", "must be folders", "give a run's folder")
    if export is not None and len(runs) != 1:
        raise InputError(
            "--export", f"given with {len(runs)} runs", "writes one run", "name one run"
        )
    check_writable("--export", export)
    stored = [read_run(folder, alpha=_level(folder, alpha), method=method) for folder in runs]
    if class_names is not None:
        stored = [_named(run, class_names) for run in stored]
    sections = sections_of(stored, radii=split_list(radii), regions=regions, reference=reference)
    reader = None if no_images else StoredImages(moved, max_pixels or MAX_PIXELS)
    out = out or below(next(folder for folder in folders if folder not in files), "report")
    page = write_sections(
        sections, out, images=reader, thumbnails=thumbnails, title=title, note=note
    )["report.html"]
    width = shutil.get_terminal_size((100, 24)).columns - 2
    for section in sections:
        largest = max((entry.member for entry in section.entries), key=lambda m: len(m.results))
        echo(f"{section.group.title}, {certified_words(largest)}")
        for entry in section.entries:
            level = entry.member.first.alpha
            echo(f"  {legend_label(entry.member)}, alpha = {level:g}")
            if together := set_words(entry.member.run):
                echo(f"    {together}")
        for line in incomplete_words(section):
            echo(f"  {line}")
        for line in to_text(answers_table(section), width):
            echo(f"  {line}" if line else "")
        echo("")
        for entry in section.entries:
            for caveat in (stricter_words(entry.member), recertified_words(entry.member)):
                if caveat:
                    echo(f"note: {caveat}", err=True)
        example = "" if section.group.block else region_example(section.group.blocks)
        if example and not any(entry.regions for entry in section.entries):
            echo(
                "note: how far a composition is certified is counted on a region: "
                f'--region "{example}"',
                err=True,
            )
    missing = reader.missing if reader is not None else []
    for reason in missing[:3]:
        echo(f"note: {reason}", err=True)
    if len(missing) > 3:
        echo(f"note: {len(missing) - 3:,} more images are not shown", err=True)
    if missing and moved is None and any("options" in run.config for run in stored):
        echo("note: --images DIR says where images are that have moved", err=True)
    if export is not None:
        write_atomically(export, export_tsv(stored[0].results, read_times(runs[0])))
        echo(f"log: {export}")
    echo(f"report: {page} (and report.md, tables/, figures/ beside it)")
    if shown and not _open(page):
        echo("note: no browser was found here; open the file in one", err=True)


def _open(page: Path) -> bool:
    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False


def _level(folder: Path, alpha: float | None) -> float | None:
    """Return the alpha of each image of a run, where alpha is that of all if they share it."""
    from deformrs.runs import read_config
    from deformrs.runs.request import simultaneous_of
    from deformrs.statistics import shared_alpha

    shared = None if alpha is None else simultaneous_of(read_config(folder))
    return alpha if alpha is None or shared is None else shared_alpha(alpha, shared.images)


def _named(run: StoredRun, names: tuple[str, ...]) -> StoredRun:
    """Return the run with these names of its classes."""
    from deformrs.errors import InputError

    number, data = run.config.get("num_classes"), run.config.get("data")
    if len(names) != number:
        raise InputError(
            "--class-names",
            f"{len(names)} names",
            f"must name the {number} classes of {run.folder}",
            "correct the file, or leave it out",
        )
    data = (data if isinstance(data, dict) else {}) | {"class_names": list(names)}
    return dataclasses.replace(run, config=run.config | {"data": data})


def _runs_of(folder: Path) -> list[Path]:
    """The runs of a folder; an error that names the folders to give if they lie a level deeper."""
    from deformrs.errors import InputError, quoted
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
                f"give {' '.join(map(quoted, below))}",
            )
    return runs
