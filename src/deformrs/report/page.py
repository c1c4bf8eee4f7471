"""The report as one self-contained HTML page that fetches nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from deformrs.config import ConfigValue
from deformrs.report.captions import (
    READING,
    axis_words,
    ending_words,
    headline,
    limits,
    plain_words,
    set_words,
)
from deformrs.report.curves import Curve, Envelope, axis_start, largest_radius
from deformrs.report.groups import Member, Section
from deformrs.report.radii import float_down
from deformrs.report.tables import tables_of
from deformrs.report.thumbnails import (
    Json,
    Thumbnails,
    cards_of,
    images_data,
    thumbnail_words,
)
from deformrs.rounding import format_down
from deformrs.space import Block

ASSETS = "assets"
SCRIPTS = (
    *("numbers.js", "drawing.js", "gestures.js", "chart.js"),
    *("tables.js", "classes.js", "warp.js", "turn.js", "images.js", "page.js"),
)


def render_page(
    sections: Sequence[Section], copies: Mapping[str, Thumbnails], title: str, note: str
) -> str:
    """Return the page as HTML. `copies` are small images of each run, by its name."""
    data = {
        "charts": {
            s.slug: chart_data(s, s.group.block) for s in sections if s.group.block and s.curves
        },
        "classes": {s.slug: classes_data(s) for s in sections},
        "images": {s.slug: images_data(s, copies) for s in sections},
    }
    environment = Environment(
        loader=PackageLoader("deformrs.report", ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    members = [entry.member for section in sections for entry in section.entries]
    return environment.get_template("page.html").render(
        title=title,
        note=note,
        sections=sections,
        cards={member.name: cards_of(member, copies[member.name]) for member in members},
        headline=headline,
        plain_words=plain_words,
        set_words=set_words,
        ending_words=ending_words,
        tables_of=tables_of,
        thumbnail_words=lambda section: thumbnail_words(section, copies),
        settings=settings,
        reading=READING,
        limits=limits([section.group for section in sections]),
        style=Markup(_asset("page.css")),
        scripts=Markup("\n".join(map(_asset, SCRIPTS))),
        data=Markup(embedded_json(data)),
    )


def chart_data(section: Section, block: Block) -> dict[str, Json]:
    """Return what a chart is drawn from: curves with exact counts, and reference points."""
    marks, best = section.displayed_radii, section.best
    largest = largest_radius(curve for _, curve in section.curves)
    labels: list[Json] = [
        [float(x), radius.label] for x, radius in zip(marks, section.radii, strict=True)
    ]
    return {
        "sign": block.unit.symbol,
        "decimals": block.unit.decimals,
        "axis": axis_words(section.group, block),
        "start": 100 * axis_start(_lowest(section)),
        "largest": 180.0 if largest == 180 else 1.03 * largest,
        "curves": [_curve(member, curve.thinned(marks)) for member, curve in section.curves],
        "best": None
        if best is None
        else {
            **_steps(best),
            "totals": list(best.totals),
            "runs": list(best.runs),
        },
        "references": [
            {"name": reference.name, "points": [[float(x), float(y)] for x, y in reference.points]}
            for reference in section.references
        ],
        "marks": labels,
        # The values are read off at the middle radius until a reader points elsewhere.
        "cursor": float(marks[len(marks) // 2]) if marks else 0.0,
    }


def _lowest(section: Section) -> float:
    """Return the lowest accuracy that the chart shows."""
    accuracies = [float(y) / 100 for one in section.references for _, y in one.points]
    return min([*accuracies, *(curve.lowest for _, curve in section.curves)])


def classes_data(section: Section) -> dict[str, Json]:
    """Return the counts of every class of every run, for the page's table.

    A row is: class, images, correct by the base classifier or null, correct by the smoothed one,
    certified at each radius, then the average radius of each block, rounded down.
    """
    blocks = section.group.blocks
    names: dict[str, Json] = {}
    runs: list[Json] = []
    for entry in section.entries:
        rows: list[Json] = []
        for label, summary in entry.classes.items():
            names[str(label)] = entry.member.class_name(label)
            averages = [
                float(format_down(average, block.unit.decimals))
                if not entry.member.only_decided
                else None
                for average, block in zip(summary.averages, blocks, strict=True)
            ]
            counts = [label, summary.total, summary.plain, summary.right]
            rows.append([*counts, *entry.certified(summary), *averages])
        runs.append({"name": entry.member.name, "rows": rows})
    titles = [f"average {block.family.replace('_', ' ')}" for block in blocks]
    return {
        "names": names,
        "radii": [radius.label for radius in section.radii],
        "averages": ["average radius"] if len(blocks) == 1 else list(titles),
        "signs": [block.unit.symbol for block in blocks],
        "decimals": [block.unit.decimals for block in blocks],
        "runs": runs,
    }


def settings(member: Member) -> list[tuple[str, str]]:
    """Return all of a run's configuration, one setting per line, without its long lists."""
    lines: list[tuple[str, str]] = [("folder", str(member.run.folder))]

    def add(name: str, value: ConfigValue) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{name} · {key}" if name else str(key), inner)
        elif name not in ("data · class_names", "requested · indices") and value is not None:
            lines.append((name, str(value)))

    add("", dict(member.run.config))
    return lines


def breakable(text: str) -> Markup:
    """Return a name as HTML that breaks after slashes, underscores and the like, never in words.

    >>> print(breakable("runs/first_try"))
    runs/<wbr>first_<wbr>try
    """
    parts = re.split(r"(?<=[/\\_=])(?=\w)|(?<=[.:,])(?=[^\W\d])", text)
    return Markup("<wbr>").join(escape(part) for part in parts)


def embedded_json(data: object) -> str:
    r"""Return JSON that cannot end the script that contains it.

    >>> print(embedded_json(["</script>"]))
    ["\u003c/script\u003e"]
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _curve(member: Member, curve: Curve) -> Json:
    return {
        "name": member.name,
        "noise": member.short_noise,
        "total": curve.total,
        **_steps(curve),
    }


def _steps(curve: Curve | Envelope) -> dict[str, Json]:
    # A radius that was requested is read off as it was given, so it must not be rounded.
    ends = [float(end) if end == curve.until else float_down(end) for end in curve.ends]
    until = None if curve.until is None else float(curve.until)
    return {"ends": list(ends), "counts": list(curve.counts), "until": until}


def _asset(name: str) -> str:
    return (files("deformrs.report") / ASSETS / name).read_text(encoding="utf-8")
