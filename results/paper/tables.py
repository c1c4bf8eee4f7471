"""The tables of the results page."""

from __future__ import annotations

from fractions import Fraction

from deformrs.report.formats import Cell as Text
from deformrs.report.formats import Table
from deformrs.report.groups import TITLES
from deformrs.report.radii import family_noun
from deformrs.rounding import percent_down
from deformrs.units import Unit
from paper.cells import AVERAGE, Board, Cell, Chapter, best_at, family_table
from paper.numbers import (
    FAMILIES,
    HEADLINE,
    METHOD,
    SIZES,
    UNITS,
    Number,
    PaperTable,
    explained,
    listed,
    threat_model_notes,
)
from paper.runs import COMPOSITIONS, UNKNOWN, RunCounts, duration

BELOW, NOT_REQUESTED = "below the paper", "requested of no run"
NONE = Text(UNKNOWN)


def chapter_table(chapter: Chapter) -> Table:
    """Return a row for each radius of the paper's table, and one for the average radius."""
    cells = [cell for cell in chapter.cells if cell.kind in ("table", "average")]
    used = [cell.number for cell in cells]
    for cell in cells:
        used += _passed_over(cell, chapter.table)
    return Table(
        title=chapter.heading,
        align="lrrrl",
        columns=("radius", "paper, best scale", "ours", "difference", "our scale"),
        rows=tuple(_chapter_row(chapter, cell) for cell in cells),
        notes=(*_image_notes(chapter), *explained(used)),
    )


def headline_table(board: Board, dataset: str) -> Table | None:
    """Return what the paper compares with other methods; None where it has nothing."""
    rows, used = [], list[Number]()
    chapters = {c.family: c for c in board.chapters if c.dataset == dataset}
    for family in FAMILIES:
        table = family_table(dataset, family)
        if table is not None:
            for radius in table.headline_radii:
                rows.append(_headline_row(radius, table, chapters.get(family)))
                used += [*table.at(radius), *table.others(radius)]
    if not rows:
        return None
    return Table(
        title=f"{TITLES[dataset]}: the headline table",
        align="lrrrl",
        columns=("certified for", "paper, best", "ours", "difference", "other methods"),
        rows=tuple(rows),
        notes=(
            *threat_model_notes(used),
            *explained(number for number in used if number.table == HEADLINE),
        ),
    )


def compositions_table(board: Board, dataset: str) -> Table | None:
    """Return both routes to each composition; None where no run has any."""
    rows, used = [], list[Number]()
    for cell in board.compositions[dataset]:
        if cell.kind == "route":
            name, _, route = cell.deformation.partition(", ")
            published = next(c.published for c in COMPOSITIONS if c.name == name)
            table = family_table(dataset, "affine")
            numbers = [] if table is None else table.of_region(published)
            used += numbers
            rows.append(
                (
                    Text(published, cell.radius),
                    Text(route, f"{cell.run.name}: {cell.run.noise}"),
                    Text(cell.number.label),
                    _ours(cell.count or 0, cell.run),
                    _difference(cell),
                    Text(listed([number for number in numbers if number.method != METHOD])),
                )
            )
    if not rows:
        return None
    return Table(
        title=f"{TITLES[dataset]}: compositions",
        align="llrrrl",
        columns=("certified for", "route", "paper", "ours", "difference", "other methods"),
        rows=tuple(rows),
        notes=(
            "The affine route tests whether the certificate of an affine run covers every map of "
            "the region; the composed route uses a run whose noise is drawn for each of the "
            "families. The better of the two counts.",
            *threat_model_notes(used),
        ),
    )


def runs_table(board: Board) -> Table:
    """Return a row per run, and below it which runs no cell is chosen from."""
    return Table(
        title="The runs",
        align="lllrrrrrllrrr",
        columns=(
            *("run", "deformation", "noise", "epochs", "training time", "test images", "n"),
            *("alpha", "device", "precision", "samples used", "certification time"),
            "model accuracy",
        ),
        rows=tuple(map(_run_row, board.runs)),
        notes=(
            "Training time is for all epochs, certification time for all images, without the "
            "compilation before the first, in hours, minutes and seconds; – marks what the folder "
            "of a run does not record. Model accuracy is that of the network alone on images that "
            "are not deformed.",
            *_false_certificates(board),
            *_total_times(board),
            *_stopping_rules(board),
            *(f"Not compared: {run.name}: {why}." for run, why in board.unused),
        ),
    )


def twins_table(board: Board) -> Table | None:
    """Return the runs of one classifier over fewer images beside the fullest one, None if none."""
    rows = []
    for few in board.runs:
        twins = [
            other
            for other in board.runs
            if few.family is not None
            and (other.dataset, other.family, other.classifier, other.alpha)
            == (few.dataset, few.family, few.classifier, few.alpha)
            and other.total > few.total
        ]
        full = max(twins, key=lambda twin: twin.total, default=few)
        if twins and few.radii_held.keys() & full.radii_held.keys():
            rows.append(_twin_row(few, full))
    if not rows:
        return None
    return Table(
        title="The same classifiers certified twice",
        align="llrrrrrr",
        columns=(
            *("run", "other run", "images", "queries", "certified", "certified by the other"),
            *("only here", "only by the other"),
        ),
        rows=tuple(rows),
        notes=(
            "A query is one image at one of the paper's radii, up to the largest at which "
            "either run certifies any image. Both runs have the same model, deformation, noise "
            "and alpha, and only images of both runs are counted. If they have the same seed, the "
            "samples of the run that stops early are the first samples of the other.",
        ),
    )


def radius_label(cell: Cell) -> str:
    """Return the radius of a cell with its unit: 30°, 20 %, 5 px, 0.1."""
    return AVERAGE if cell.radius == AVERAGE else radius_text(cell.number.radius, cell.unit)


def radius_text(radius: Fraction | None, unit: str) -> str:
    """Return a radius with the symbol of a unit of numbers.csv."""
    return f"{float(radius or 0):.10g}{UNITS[unit].symbol}"


def _ours(count: int, run: RunCounts) -> Text:
    return Text(f"{percent_down(count, run.total, 2)} %", f"{count:,}/{run.total:,}")


def _difference(cell: Cell) -> Text:
    words = [] if cell.reached else [BELOW]
    # A larger average was requested of no run that stops early: the page says so once.
    if not cell.requested and (words or cell.kind != "average"):
        words.append(NOT_REQUESTED)
    return Text(cell.difference, ", ".join(words))


def _chapter_row(chapter: Chapter, cell: Cell) -> tuple[Text, ...]:
    unit, scale = chapter.block.unit, cell.number.scale_label
    where = f"scale {scale}" if scale and cell.theirs > 0 else ""
    if cell.kind == "average":
        theirs = Text(unit.format_down(cell.theirs) + cell.number.dagger, where)
        ours = Text(unit.format_down(cell.ours))
    else:
        theirs, ours = Text(cell.number.label, where), _ours(cell.count or 0, cell.run)
    run = Text(cell.run.scale_label, cell.run.name) if cell.ours > 0 else NONE
    return Text(radius_label(cell)), theirs, ours, _difference(cell), run


def _headline_row(radius: Fraction, table: PaperTable, chapter: Chapter | None) -> tuple[Text, ...]:
    best = table.best(radius)
    query = Text(f"{family_noun(table.deformation)} up to {radius_text(radius, table.unit)}")
    theirs = NONE if best is None else Text(best.label)
    others = Text(listed(table.others(radius)))
    if chapter is None:
        return query, theirs, Text("no run"), NONE, others
    run, count = best_at(chapter.runs, radius)
    cell = next((c for c in chapter.cells if c.number == best and c.kind != "average"), None)
    return query, theirs, _ours(count, run), NONE if cell is None else _difference(cell), others


def _passed_over(cell: Cell, table: PaperTable) -> list[Number]:
    """Misprints that would be better than the number compared with."""
    if cell.kind == "average":
        return [n for n in table.numbers if n.misprint and (n.average or 0) > cell.theirs]
    rivals = table.at(cell.number.radius or Fraction(0))
    return [n for n in rivals if n.misprint and n.accuracy > cell.theirs]


def _image_notes(chapter: Chapter) -> list[str]:
    """Where the images are not those of the paper."""
    notes, run = [], chapter.runs[0]
    images = run.provenance.images
    if images is not None and images != run.total:
        notes.append(f"Chosen from runs over {run.total:,} of the {images:,} test images.")
    height, width = SIZES[chapter.dataset]
    if UNITS[chapter.table.unit] is Unit.LENGTH and any(
        run.sizes != ((height, width),) for run in chapter.runs
    ):
        notes.append(
            f"The paper's images have {height} x {width} pixels, ours do not: a pixel has a "
            "different length."
        )
    return notes


def _run_row(run: RunCounts) -> tuple[Text, ...]:
    facts = run.provenance
    whole = facts.images is None or facts.images == run.total
    accuracy = UNKNOWN if run.plain is None else f"{percent_down(run.plain, run.total, 2)} %"
    return (
        *map(Text, (run.name, run.deformation, run.noise)),
        Text(
            UNKNOWN if facts.epochs is None else str(facts.epochs),
            f"from the weights of {facts.initial_run}" if facts.initial_run else "",
        ),
        Text(duration(facts.training_seconds)),
        Text(f"{run.total:,}" + ("" if whole else f" of {facts.images:,}")),
        Text(("up to " if facts.until else "") + f"{facts.n:,}"),
        *map(Text, (repr(run.alpha), facts.device, facts.precision)),
        Text(f"{facts.samples:,}", f"{facts.samples // run.total:,} per image"),
        # A killed process may leave an image or two without a time.
        Text(
            duration(facts.seconds),
            f"of {facts.timed:,} images" if 0 < facts.timed < run.total else "",
        ),
        Text(accuracy),
    )


def _false_certificates(board: Board) -> list[str]:
    """What holds of all certificates of a run together, each sentence once."""
    sentences = dict.fromkeys(run.together for run in board.runs if run.together)
    return [f"Of each run by itself: {' '.join(sentences)}"] if sentences else []


def _total_times(board: Board) -> list[str]:
    """The time of all runs of a dataset, one after another, where every run has it."""
    sentences = []
    for dataset in board.datasets:
        facts = [run.provenance for run in board.runs if run.dataset == dataset]
        training = sum(f.training_seconds or 0.0 for f in facts)
        known = [f.seconds for f in facts if f.seconds is not None]
        if len(known) == len(facts):
            total = duration(training + sum(known))
            sentences.append(f"{TITLES[dataset]} {total}, of which training {duration(training)}")
    return [f"Total of all runs: {'; '.join(sentences)}."] if sentences else []


def _stopping_rules(board: Board) -> list[str]:
    """Each stopping rule once, with its runs."""
    rules: dict[str, list[str]] = {}
    for run in board.runs:
        if run.provenance.until:
            rules.setdefault(run.provenance.until, []).append(run.name)
    if not rules:
        return []
    rows = "; ".join(f"{rule} – {', '.join(runs)}" for rule, runs in rules.items())
    return [
        "Where n is an upper limit, each image was sampled at most that often. A query is decided "
        "once it is certified, or given up because more samples would hardly help. Sampled "
        f"{rows}. The bound is valid at any time, so these certificates are valid too."
    ]


def _twin_row(few: RunCounts, full: RunCounts) -> tuple[Text, ...]:
    both = sorted(few.radii_held.keys() & full.radii_held.keys())
    pairs = [(few.radii_held[key], full.radii_held[key]) for key in both]
    counts = (
        len(both),
        len(both) * max(max(pair) for pair in pairs),
        sum(here for here, _ in pairs),
        sum(there for _, there in pairs),
        sum(max(0, here - there) for here, there in pairs),
        sum(max(0, there - here) for here, there in pairs),
    )
    names = (Text(run.name, _samples(run)) for run in (few, full))
    return (*names, *(Text(f"{count:,}") for count in counts))


def _samples(run: RunCounts) -> str:
    facts = run.provenance
    return f"{'up to' if facts.until else 'always'} {facts.n:,} samples"
