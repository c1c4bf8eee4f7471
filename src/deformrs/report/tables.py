"""The tables of a section, for people and as CSV with plain numbers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from deformrs.config import ConfigValue
from deformrs.report.captions import (
    AVERAGE,
    BEST,
    INTERVAL,
    average_words,
    averages_words,
    certified_count,
    chosen_words,
    incomplete_words,
    interval_words,
    region_words,
    share,
    spread,
    stopping_words,
    time_words,
)
from deformrs.report.formats import Cell, Table, signed, to_csv
from deformrs.report.groups import Entry, Group, Member, Section, lookup
from deformrs.report.radii import float_down
from deformrs.report.reference import Reference
from deformrs.report.summary import NOT_REQUESTED, average_radius, interval, most_false_of
from deformrs.rounding import percent_down, percent_up
from deformrs.runs.request import simultaneous_of

FEW_CLASSES = 30
NONE = Cell("–")
_MODEL = (("model", "name"), ("options", "model"), ("model", "network"), ("model", "function"))
_INTERVAL_COLUMNS = ("interval_low", "interval_high")
Row = list[str | int | float | None]


def tables_of(section: Section) -> dict[str, Table]:
    """Return the tables of a section by the names of their files, without those of classes."""
    tables = {
        "accuracy": accuracy_table(section),
        "regions": regions_table(section),
        "reference": reference_table(section),
        "runs": runs_table(section),
    }
    return {name: table for name, table in tables.items() if table is not None}


def accuracy_table(section: Section) -> Table | None:
    """Return certified accuracy at the radii, one row per run; None for compositions."""
    if not section.radii:
        return None
    rows = []
    for entry in section.entries:
        member, summary = entry.member, entry.summary
        counts = [_estimated(count, summary.total) for count in entry.certified(summary)]
        average = Cell(averages_words(summary.averages, section.group.blocks))
        last = counted(None, 0) if member.only_decided else average
        rows.append((Cell(member.name), Cell(member.short_noise), *counts, last))
    notes = [*incomplete_words(section), INTERVAL, AVERAGE]
    if section.best is not None:
        best = [_best_cell(section, k) for k in range(len(section.radii))]
        rows.append((Cell("best of these runs"), NONE, *best, NONE))
        notes.append(BEST)
        if not section.same_images:
            notes.append("These runs did not certify the same images: compare them with care.")
    return Table(
        title=f"Certified accuracy: {section.group.title}",
        align="ll" + "r" * (len(section.radii) + 1),
        columns=("run", "noise", *(r.label for r in section.radii), "average radius"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def answers_table(section: Section) -> Table:
    """Return what a run answers in few words, a column per run: for the terminal."""
    columns = [_answers(section, entry) for entry in section.entries]
    names = list(dict.fromkeys(name for answers in columns for name in answers))
    return Table(
        title=section.group.title,
        align="l" + "r" * len(columns),
        columns=("", *(entry.member.name for entry in section.entries)),
        rows=tuple(
            (Cell(name), *(answers.get(name, NONE) for answers in columns)) for name in names
        ),
    )


def _answers(section: Section, entry: Entry) -> dict[str, Cell]:
    member, summary = entry.member, entry.summary
    total = summary.total
    answers = {
        "plain accuracy": NONE if summary.plain is None else counted(summary.plain, total),
        "smoothed accuracy": counted(summary.right, total),
    }
    for radius, count in zip(section.radii, entry.certified(summary), strict=True):
        if radius.value((2, 2)) == 0:  # the smoothed accuracy
            continue
        answers[f"certified up to {radius.label}"] = counted(count, total)
    for answer in entry.regions:
        # Why a region does not apply to a run is a sentence, which the page has room for.
        cell = counted(answer.count, total)
        applies = answer.count is not None or answer.reason == NOT_REQUESTED
        answers[region_words(answer.region)] = cell if applies else Cell("not applicable")
    if section.group.block is not None and not member.only_decided:
        answers["average radius"] = Cell(averages_words(summary.averages, section.group.blocks))
    return answers


def reference_table(section: Section) -> Table | None:
    """Return the best run with the reference numbers; None where they share no radius."""
    rows = []
    for k, (radius, x) in enumerate(zip(section.radii, section.displayed_radii, strict=True)):
        known = [reference.at(x) for reference in section.references]
        if any(accuracy is not None for accuracy in known):
            best = section.best_at(k)
            ours = None if best is None else best.summary.share_at(k)
            cells = (NONE if value is None else _reference_cell(value, ours) for value in known)
            rows.append((Cell(radius.label), _best_cell(section, k), *cells))
    if not rows:
        return None
    names = tuple(reference.name for reference in section.references)
    return Table(
        title=f"Reference numbers: {section.group.title}",
        align="lr" + "r" * len(names),
        columns=("radius", "best of these runs" if len(section.entries) > 1 else "run", *names),
        rows=tuple(rows),
        notes=(
            "Reference numbers are those of the file given to the report. In parentheses: the "
            "run's certified accuracy minus the reference, in percentage points, rounded down.",
        ),
    )


def runs_table(section: Section) -> Table:
    """Return how each run was made and its further counts, one column per run."""
    columns = [_facts(entry, section.group) for entry in section.entries]
    return Table(
        title=f"The runs: {section.group.title}",
        align="l" * (len(columns) + 1),
        columns=("", *(entry.member.name for entry in section.entries)),
        rows=tuple((Cell(name), *(facts[name] for facts in columns)) for name in columns[0]),
        notes=(*incomplete_words(section), *([] if section.radii else [AVERAGE])),
    )


def regions_table(section: Section) -> Table | None:
    """Return certified accuracy on whole regions; None if no region was requested."""
    answers: dict[tuple[str, Cell], list[str]] = {}
    for entry in section.entries:
        for answer in entry.regions:
            cell = _estimated(answer.count, answer.total)
            if answer.count is None and answer.reason != NOT_REQUESTED:
                cell = Cell("not applicable to this run", answer.reason)
            answers.setdefault((region_words(answer.region), cell), []).append(entry.member.name)
    if not answers:
        return None
    return Table(
        title=f"Regions: {section.group.title}",
        align="llr",
        columns=("every transformation of", "run", "certified accuracy"),
        rows=tuple(
            (Cell(region), Cell(", ".join(runs)), cell) for (region, cell), runs in answers.items()
        ),
        notes=(
            *incomplete_words(section),
            "An image counts if the prediction is correct and, with confidence 1 - alpha, provably "
            "stays so under every transformation of the region, in the order named. " + INTERVAL,
        ),
    )


def classes_tables(section: Section) -> list[Table]:
    """Return one table per run with few enough classes to be read; all are in the CSV."""
    tables = []
    for entry in section.entries:
        if len(entry.classes) > FEW_CLASSES:
            continue
        rows = [
            (
                Cell(entry.member.class_name(label)),
                Cell(f"{summary.total:,}"),
                NONE if summary.plain is None else counted(summary.plain, summary.total),
                counted(summary.right, summary.total),
                *(counted(count, summary.total) for count in entry.certified(summary)),
                NONE
                if entry.member.only_decided
                else Cell(averages_words(summary.averages, section.group.blocks)),
            )
            for label, summary in entry.classes.items()
        ]
        tables.append(
            Table(
                title=f"By class: {entry.member.name}",
                align="l" + "r" * (4 + len(section.radii)),
                columns=(
                    *("class", "images", "base correct", "smoothed correct"),
                    *(radius.label for radius in section.radii),
                    "average radius",
                ),
                rows=tuple(rows),
            )
        )
    return tables


def counted(count: int | None, total: int) -> Cell:
    """Return a share with its count as the detail; None is a count that was not requested."""
    if count is None:
        return Cell("–", NOT_REQUESTED)
    return Cell(share(count, total), f"{count:,}/{total:,}")


def _estimated(count: int | None, total: int) -> Cell:
    """Return a share with its count and its 95 % interval."""
    cell = counted(count, total)
    if count is None:
        return cell
    return replace(cell, interval=interval_words(count, total))


def csv_tables(section: Section) -> dict[str, str]:
    """Return the text of each CSV file of a section by its name."""
    tables = {
        "runs": _runs_csv(section),
        "averages": _averages_csv(section),
        "classes": _classes_csv(section),
    }
    if section.radii:
        tables["accuracy"] = _accuracy_csv(section)
    if section.entries[0].regions:
        tables["regions"] = _regions_csv(section)
    if section.references:
        tables["reference"] = _reference_csv(section.references, section)
    return tables


def _facts(entry: Entry, group: Group) -> dict[str, Cell]:
    member, summary = entry.member, entry.summary
    config, total = member.run.config, summary.total
    counts = [result.certificate.counts for result in member.results]
    time, padding = time_words(member), config.get("padding")
    return {
        "model": Cell(model_name(entry)),
        "images": Cell(certified_count(member), chosen_words(member)),
        "noise": Cell(member.short_noise),
        "outside the image": NONE if padding is None else Cell(str(padding)),
        "smoothed classifier correct": counted(summary.right, total),
        "base classifier correct": NONE if summary.plain is None else counted(summary.plain, total),
        "abstained": Cell(
            f"{percent_up(summary.abstained, total)} %", f"{summary.abstained:,}/{total:,}"
        ),
        "average certified radius": Cell(
            averages_words(summary.averages, group.blocks), average_words(member)
        ),
        "samples that select (n0)": Cell(spread([count.n0 for count in counts])),
        "samples that estimate (n)": Cell(
            spread([count.n for count in counts]), stopping_words(member)
        ),
        "alpha per image": _alpha(member),
        "bound": _recertified(member.method.replace("_", "-"), config["method"], member.method),
        "time": NONE if time is None else Cell(*time),
    }


def model_name(entry: Entry) -> str:
    """Return the name of the model of a run, a dash where it has none."""
    values = (lookup(entry.member.run.config, *keys) for keys in _MODEL)
    return next((str(value) for value in values if value), "–")


def _alpha(member: Member) -> Cell:
    config, alpha = member.run.config, member.first.alpha
    cell, shared = _recertified(f"{alpha:g}", config["alpha"], alpha), simultaneous_of(config)
    if shared is None:
        return cell
    share = f"a share of each of {shared.images:,} images"
    return replace(cell, detail="; ".join(filter(None, (share, cell.detail))))


def _recertified(text: str, stored: ConfigValue, now: float | str) -> Cell:
    return Cell(text, "" if stored == now else f"certified anew; the run used {stored}")


def _reference_cell(value: Fraction, ours: Fraction | None) -> Cell:
    return Cell(f"{float(value):.10g} %", "" if ours is None else signed(100 * ours - value, 1))


def _best_cell(section: Section, k: int) -> Cell:
    best = section.best_at(k)
    if best is None:
        return counted(None, 0)
    cell = counted(best.summary.certified[k], best.summary.total)
    named = len(section.entries) > 1 and best.summary.certified[k]
    return Cell(cell.text, f"{cell.detail}, {best.member.name}") if named else cell


def _runs_csv(section: Section) -> str:
    rows: list[Row] = []
    for entry in section.entries:
        member, summary = entry.member, entry.summary
        counts = [result.certificate.counts for result in member.results]
        n0, n = [count.n0 for count in counts], [count.n for count in counts]
        rows.append(
            [
                *(member.name, str(member.run.folder)),
                *(section.group.data, section.group.family, model_name(entry), member.noise),
                *(summary.total, member.run.requested),
                *(summary.right, summary.plain, summary.abstained, most_false_of(member.run)),
                *(min(n0), max(n0), min(n), max(n)),
                *(member.first.alpha, member.method),
            ]
        )
    columns = (
        *("run", "folder", "data", "deformation", "model", "noise"),
        *("images", "requested", "smoothed_correct", "base_correct", "abstained"),
        "most_false",
        *("n0_min", "n0_max", "n_min", "n_max", "alpha", "method"),
    )
    return to_csv(columns, rows)


def _averages_csv(section: Section) -> str:
    rows: list[Row] = []
    for entry in section.entries:
        for k, block in enumerate(section.group.blocks):
            average = average_radius(entry.member.results, k)
            displayed = float_down(entry.summary.averages[k])
            rows.append([entry.member.name, block.family, average, displayed, block.unit.column])
    return to_csv(("run", "family", "average_radius", "average_radius_displayed", "unit"), rows)


def _accuracy_csv(section: Section) -> str:
    rows: list[Row] = []
    for k, radius in enumerate(section.radii):
        # On images of several sizes, pixels are several lengths.
        own = _only({radius.value(size) for size in section.group.sizes})
        displayed = _only({float(radius.displayed(size)) for size in section.group.sizes})
        about = [radius.text, own, displayed, radius.block.unit.column]
        named = [(entry.member.name, entry) for entry in section.entries]
        if section.best is not None and (best := section.best_at(k)) is not None:
            named.append(("best of these runs", best))
        for name, entry in named:
            ours = _accuracy_at(entry, k)
            # The best run is chosen with these images, which no interval of one run allows for.
            chosen = len(named) > len(section.entries) and name == named[-1][0]
            count = None if chosen else entry.certified(entry.summary)[k]
            rows.append([name, *about, *ours, *_interval(count, entry.summary.total)])
    columns = (
        *("run", "requested", "radius", "radius_displayed", "unit"),
        *("certified", "images", "percent", *_INTERVAL_COLUMNS),
    )
    return to_csv(columns, rows)


def _accuracy_at(entry: Entry, k: int) -> Row:
    """Return count, images and percentage; empty fields where not requested."""
    count, total = entry.certified(entry.summary)[k], entry.summary.total
    return [count, total, None if count is None else percent_down(count, total, 2)]


def _interval(count: int | None, total: int) -> Row:
    return [None, None] if count is None else [*interval(count, total)]


def _only(values: set[float]) -> float | None:
    return values.pop() if len(values) == 1 else None


def _classes_csv(section: Section) -> str:
    rows: list[Row] = []
    for entry in section.entries:
        for label, summary in entry.classes.items():
            names = entry.member.class_names
            name = names[label] if 0 <= label < len(names) else None
            counts = [summary.total, summary.plain, summary.right, summary.abstained]
            averages = [float_down(average) for average in summary.averages]
            certified = entry.certified(summary)
            rows.append([entry.member.name, label, name, *counts, *certified, *averages])
    columns = (
        *("run", "class", "name", "images", "base_correct", "smoothed_correct", "abstained"),
        *(f"certified_at_{radius.text.replace(' ', '')}" for radius in section.radii),
        *(f"average_{block.family}_{block.unit.column}" for block in section.group.blocks),
    )
    return to_csv(columns, rows)


def _regions_csv(section: Section) -> str:
    rows: list[Row] = [
        [
            *(entry.member.name, region_words(answer.region), answer.count, answer.total),
            *(answer.reason, *_interval(answer.count, answer.total)),
        ]
        for entry in section.entries
        for answer in entry.regions
    ]
    return to_csv(("run", "region", "certified", "images", "reason", *_INTERVAL_COLUMNS), rows)


def _reference_csv(references: tuple[Reference, ...], section: Section) -> str:
    """Return every reference number at the radii, once for each run."""
    rows: list[Row] = []
    for k, (radius, x) in enumerate(zip(section.radii, section.displayed_radii, strict=True)):
        for reference in references:
            accuracy = reference.at(x)
            for entry in section.entries if accuracy is not None else ():
                ours = [entry.member.name, *_accuracy_at(entry, k)]
                rows.append([radius.text, *ours, reference.name, float(accuracy or 0)])
    columns = ("radius", "run", "certified", "images", "percent", "reference", "reference_percent")
    return to_csv(columns, rows)
