"""The tables of a section as CSV: plain numbers, in the package's unit and in people's."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

from deformrs.report.comparison import same_scale
from deformrs.report.people import COLUMNS, float_down
from deformrs.report.published import Paper
from deformrs.report.section import Section
from deformrs.rounding import percent_down, round_down

Value = str | int | float | None


def csv_tables(section: Section) -> dict[str, str]:
    """The text of each CSV file by its name."""
    tables = {
        "runs": _runs(section),
        "averages": _averages(section),
        "classes": _classes(section),
    }
    if section.radii:
        tables["accuracy"] = _accuracy(section)
    if section.entries[0].regions:
        tables["regions"] = _regions(section)
    if section.radii and section.group.paper is not None:
        tables["published"] = _published(section, section.group.paper)
    return tables


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """Commas, a line of names, nothing where nothing is known.

    >>> to_csv(["a", "b"], [[1, None]])
    'a,b\\n1,\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _runs(section: Section) -> str:
    rows = []
    for entry in section.entries:
        summary, first, run = entry.summary, entry.member.first, entry.member.run
        counts = [result.certificate.counts for result in entry.member.results]
        settings = [str(run.folder), section.group.data, section.group.family, entry.model]
        figures = [summary.total, summary.right, summary.plain, summary.abstained]
        samples = [f([c.n0 for c in counts]) for f in (min, max)]
        samples += [f([c.n for c in counts]) for f in (min, max)]
        rows.append(
            [
                entry.member.name,
                *settings,
                entry.member.noise,
                *figures,
                *samples,
                first.alpha,
                first.method,
            ]
        )
    columns = (
        *("run", "folder", "data", "deformation", "model", "noise"),
        *("pictures", "smoothed_right", "plain_right", "abstained"),
        *("n0_min", "n0_max", "n_min", "n_max", "alpha", "method"),
    )
    return to_csv(columns, rows)


def _averages(section: Section) -> str:
    rows: list[list[Value]] = []
    for entry in section.entries:
        results = entry.member.results
        for k, block in enumerate(section.group.blocks):
            own = math.fsum(r.certificate.radii[k] for r in results if r.correct) / len(results)
            shown = float_down(entry.summary.averages[k])
            average = max(0.0, round_down(own))
            rows.append([entry.member.name, block.family, average, shown, COLUMNS[block.unit]])
    return to_csv(("run", "family", "average_radius", "average_radius_shown", "unit"), rows)


def _accuracy(section: Section) -> str:
    rows: list[list[Value]] = []
    for place, radius in enumerate(section.radii):
        # On images of several sizes, pixels are several lengths.
        own = _only({radius.value(size) for size in section.group.sizes})
        shown = _only({float(radius.in_people_units(size)) for size in section.group.sizes})
        about = [radius.text, own, shown, COLUMNS[radius.block.unit]]
        for entry in section.entries:
            count, total = entry.summary.certified[place], entry.summary.total
            rows.append([entry.member.name, *about, count, total, percent_down(count, total, 2)])
        if section.best is not None:
            best = section.best_at(place)
            count, total = best.summary.certified[place], best.summary.total
            rows.append(["best of these runs", *about, count, total, percent_down(count, total, 2)])
    columns = ("run", "asked", "radius", "radius_shown", "unit", "certified", "pictures", "percent")
    return to_csv(columns, rows)


def _only(values: set[float]) -> float | None:
    return values.pop() if len(values) == 1 else None


def _classes(section: Section) -> str:
    blocks = section.group.blocks
    rows: list[list[Value]] = []
    for entry in section.entries:
        for label, summary in entry.classes.items():
            names = entry.member.class_names
            name = names[label] if 0 <= label < len(names) else None
            counts = [summary.total, summary.plain, summary.right, summary.abstained]
            averages = [float_down(average) for average in summary.averages]
            rows.append([entry.member.name, label, name, *counts, *summary.certified, *averages])
    columns = (
        *("run", "class", "name", "pictures", "plain_right", "smoothed_right", "abstained"),
        *(f"certified_at_{radius.text.replace(' ', '')}" for radius in section.radii),
        *(f"average_{block.family}_{COLUMNS[block.unit]}" for block in blocks),
    )
    return to_csv(columns, rows)


def _regions(section: Section) -> str:
    rows = [
        [entry.member.name, answer.region, answer.count, answer.total, answer.reason]
        for entry in section.entries
        for answer in entry.regions
    ]
    return to_csv(("run", "region", "certified", "pictures", "why_not"), rows)


def _published(section: Section, paper: Paper) -> str:
    """Every published number at the radii beside ours of each run; scales in the package's unit."""
    size = section.group.sizes[0]
    rows: list[list[Value]] = []
    for place, radius in enumerate(section.radii):
        at = radius.in_people_units(size)
        for entry in section.entries:
            own = same_scale(entry.member, paper)
            count, total = entry.summary.certified[place], entry.summary.total
            ours: list[Value] = [entry.member.name, count, total, percent_down(count, total, 2)]
            for number in [*paper.at(at), *paper.others(at)]:
                theirs: list[Value] = [number.method, number.table, number.noise, number.scale]
                same = int(number in own)
                value = float(number.accuracy or 0)
                doubt = [number.note, number.misprint]
                rows.append([radius.text, *ours, *theirs, same, value, *doubt])
    columns = (
        *("radius", "run", "certified", "pictures", "percent"),
        *("method", "table", "noise", "scale", "same_scale", "published_percent"),
        *("note", "misprint"),
    )
    return to_csv(columns, rows)
