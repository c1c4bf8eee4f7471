"""The runs behind the page: how each was trained and certified, and at what cost."""

from __future__ import annotations

from deformrs.report.against.board import Board
from deformrs.report.against.facts import duration
from deformrs.report.against.reading import Reading
from deformrs.report.layout import Cell, Table
from deformrs.report.published import TITLES
from deformrs.rounding import percent_down


def runs_table(board: Board) -> Table:
    """A row a run, and beneath it which runs no cell is chosen from."""
    columns = (
        *("run", "deformation", "noise", "epochs", "training time", "test images", "n", "alpha"),
        *("device", "precision", "samples used", "certification time", "model accuracy"),
    )
    return Table(
        title="The runs",
        align="lllrrrrrllrrr",
        columns=columns,
        rows=tuple(_row(board, reading) for reading in board.readings),
        notes=(
            "Training time is that of all epochs, certification time that of all images, without "
            "compiling before the first, in hours, minutes and seconds; – is what the folder of a "
            "run does not tell. The model's accuracy is that of the network alone on the images "
            "as they are.",
            *_together(board),
            *_stopped(board),
            *(f"Not compared: {board.name(run)}: {why}." for run, why in board.unused),
        ),
    )


def _row(board: Board, reading: Reading) -> tuple[Cell, ...]:
    facts = reading.facts
    whole = facts.images is None or facts.images == reading.total
    images = f"{reading.total:,}" + ("" if whole else f" of {facts.images:,}")
    each = facts.samples // reading.total
    accuracy = (
        "–" if reading.plain is None else f"{percent_down(reading.plain, reading.total, 2)} %"
    )
    first = (board.name(reading), reading.deformation, reading.noise)
    then = (
        duration(facts.training_seconds),
        images,
        ("up to " if facts.until else "") + f"{facts.n:,}",
        repr(reading.alpha),
        facts.device,
        facts.precision,
    )
    return (
        *map(Cell, first),
        Cell(
            "–" if facts.epochs is None else str(facts.epochs),
            f"from the weights of {facts.begun}" if facts.begun else "",
        ),
        *map(Cell, then),
        Cell(f"{facts.samples:,}", f"{each:,} an image"),
        # A killed process may leave no time behind for an image or two.
        Cell(
            duration(facts.seconds),
            f"of {facts.timed:,} images" if 0 < facts.timed < reading.total else "",
        ),
        Cell(accuracy),
    )


def _together(board: Board) -> list[str]:
    """What all runs of a data set took, one after another; nothing where not every run tells."""
    said = []
    for dataset in board.datasets:
        facts = [reading.facts for reading in board.readings if reading.dataset == dataset]
        training = sum(f.training_seconds or 0.0 for f in facts)
        known = [f.seconds for f in facts if f.seconds is not None]
        if len(known) == len(facts):
            said.append(
                f"{TITLES[dataset]} {duration(training + sum(known))}, of which training "
                f"{duration(training)}"
            )
    return [f"All runs added up: {'; '.join(said)}."] if said else []


def _stopped(board: Board) -> list[str]:
    """What images were sampled until, each rule once, with the runs it held for."""
    rules: dict[str, list[str]] = {}
    for reading in board.readings:
        if reading.facts.until:
            rules.setdefault(reading.facts.until, []).append(board.name(reading))
    if not rules:
        return []
    listed = "; ".join(f"{rule} – {', '.join(runs)}" for rule, runs in rules.items())
    return [
        "Where n is an upper limit, each image was sampled so often at most. Settled is what is "
        "certified, and what is given up because more samples would hardly help. Sampled "
        f"{listed}. The any-time valid bound makes such certificates hold as ever."
    ]
