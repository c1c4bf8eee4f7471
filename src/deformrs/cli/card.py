"""`deformrs card`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from deformrs.cli.parameters import NonEmpty, check_writable, split_list
from deformrs.cli.terminal import echo


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File for the card, e.g. RUN/README.md. A file is replaced only if it is a card that "
    "nobody has edited.  [printed]",
)
@click.option("--radii", type=NonEmpty(), help="Radii of the metrics, e.g. 10deg,30deg.")
@click.option(
    "--region", "regions", multiple=True, help="'rotation<=10deg, scale=0.8..1.2, shift<=4px'."
)
@click.option("--name", type=NonEmpty(), help="Name of the model.  [the folder's]")
def card(
    run: Path, out: Path | None, radii: str | None, regions: tuple[str, ...], name: str | None
) -> None:
    """Write the model card of a run for the Hugging Face Hub: README.md of a model's repository.

    Its metadata holds the accuracies, plain, smoothed and certified, as a model-index; its text
    says what they promise and what not. Without --radii and --region these are the queries of the
    run, or round radii that it reaches.

    \b
    Examples:
      deformrs card runs/quickstart --radii 10deg,30deg
      deformrs card runs/quickstart --out runs/quickstart/README.md
    """
    from deformrs.report.captions import incomplete_words, region_example
    from deformrs.report.document import sections_of
    from deformrs.report.model_card import model_card
    from deformrs.runs import read_run, write_atomically

    check_writable("--out", out)
    if out is not None:
        _check_replaceable(out)
    (section,) = sections_of([read_run(run)], radii=split_list(radii), regions=regions)
    text = model_card(section, name)
    if out is None:
        echo(*text.removesuffix("\n").split("\n"))
    else:
        write_atomically(out, text)
    for line in incomplete_words(section):
        echo(f"note: {line}", err=True)
    (entry,) = section.entries
    example = "" if section.group.block else region_example(section.group.blocks)
    if example and not entry.regions:
        echo(
            "note: how far a composition is certified is counted on a region: "
            f'--region "{example}"',
            err=True,
        )
    if out is not None:
        echo(f"card: {out}")


def _check_replaceable(path: Path) -> None:
    """Raise unless there is no such file, or it is a card that nobody has edited."""
    from deformrs.errors import InputError
    from deformrs.limits import JSON_BYTES, read_file
    from deformrs.report.model_card import is_untouched

    if not os.path.lexists(path):
        return
    if not is_untouched(read_file(path, JSON_BYTES, links=False).decode(errors="replace")):
        raise InputError(
            str(path),
            "a file that deformrs card did not write, or that was edited since",
            "is not replaced",
            "choose another name, or move it away",
        )
