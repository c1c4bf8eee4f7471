"""The report as one self-contained HTML page that fetches nothing."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from deformrs.config import ConfigValue
from deformrs.data.preparation import Pixels
from deformrs.report.captions import (
    READING,
    axis_words,
    ending_words,
    headline,
    limits,
    plain_words,
    radii_words,
)
from deformrs.report.curves import Curve, Envelope, largest_radius
from deformrs.report.groups import Member, Section
from deformrs.report.radii import float_down
from deformrs.report.tables import tables_of
from deformrs.rounding import format_down
from deformrs.runs import Result, StoredRun
from deformrs.space import Block

ASSETS = "assets"
SCRIPTS = ("numbers.js", "drawing.js", "gestures.js", "chart.js", "classes.js", "page.js")
CARDS = 6
"""Images of each kind that are shown of a run."""
_SIDE = 112

ImageReader = Callable[[StoredRun, Result], Pixels | None]
"""Returns the image of a result, [c, h, w] in [0, 1], or None where it cannot be read."""
Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class Card:
    """An image with its prediction. `image` is a PNG as a data URI, or None."""

    source: str
    label: str
    prediction: str
    radius: str
    probability: str
    image: str | None
    small: bool

    @property
    def name(self) -> str:
        """The last part of the source."""
        return self.source.rstrip("/").rpartition("/")[2] or self.source


@dataclass(frozen=True)
class Cards:
    """The least robust images of a run: correct ones of smallest radius, and the others."""

    right: tuple[Card, ...]
    wrong: tuple[Card, ...]

    @property
    def missing(self) -> int:
        """The number of images that could not be read."""
        return sum(card.image is None for card in self.right + self.wrong)


def cards_of(member: Member, read_image: ImageReader | None) -> Cards:
    """Return at most twelve images: six correct ones of smallest radius, six wrong or abstained."""
    right = sorted((r for r in member.results if r.correct), key=_margin)
    others = [result for result in member.results if not result.correct]
    # Wrong predictions before abstentions, the most certain of each first.
    others.sort(key=lambda result: (result.certificate.prediction is None, -_margin(result)))
    return Cards(
        tuple(_card(member, result, read_image) for result in right[:CARDS]),
        tuple(_card(member, result, read_image) for result in others[:CARDS]),
    )


def thumbnail(pixels: Pixels) -> str:
    """Return an image [c, h, w] in [0, 1] as a small PNG in a data URI."""
    channels = pixels if len(pixels) in (1, 3) else pixels.mean(axis=0, keepdims=True)
    bytes_ = np.clip(np.rint(255 * channels), 0, 255).astype(np.uint8)
    image = Image.fromarray(bytes_[0] if len(bytes_) == 1 else bytes_.transpose(1, 2, 0))
    if max(image.size) > _SIDE:
        image.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def render_page(
    sections: Sequence[Section], cards: Mapping[str, Cards], title: str, note: str
) -> str:
    """Return the page as HTML. `cards` are the images to show of each run, by its name."""
    data = {
        "charts": {
            s.slug: chart_data(s, s.group.block) for s in sections if s.group.block and s.curves
        },
        "classes": {s.slug: classes_data(s) for s in sections},
    }
    environment = Environment(
        loader=PackageLoader("deformrs.report", ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=title,
        note=note,
        sections=sections,
        cards=cards,
        headline=headline,
        plain_words=plain_words,
        ending_words=ending_words,
        tables_of=tables_of,
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
        "start": float(marks[len(marks) // 2]) if marks else 0.0,
    }


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
    """Return all of a run's configuration, one setting per line, but for the names of classes."""
    lines: list[tuple[str, str]] = [("folder", str(member.run.folder))]

    def add(name: str, value: ConfigValue) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{name} · {key}" if name else str(key), inner)
        elif name != "data · class_names" and value is not None:
            lines.append((name, str(value)))

    add("", dict(member.run.config))
    return lines


def embedded_json(data: object) -> str:
    r"""Return JSON that cannot end the script that contains it.

    >>> print(embedded_json(["</script>"]))
    ["\u003c/script\u003e"]
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _margin(result: Result) -> float:
    """Return the difference of the bounds: all radii of a run grow with it."""
    return result.certificate.bound.lower - result.certificate.bound.upper


def _card(member: Member, result: Result, read_image: ImageReader | None) -> Card:
    certificate, prediction = result.certificate, result.certificate.prediction
    pixels = None if read_image is None else read_image(member.run, result)
    return Card(
        source=result.source or f"image {result.index}",
        label=member.class_name(result.label),
        prediction="abstains" if prediction is None else member.class_name(prediction),
        radius="–" if prediction is None else radii_words(result),
        probability=format_down(certificate.p_lower, 4),
        image=None if pixels is None else thumbnail(pixels),
        small=pixels is not None and max(pixels.shape[1:]) < _SIDE,
    )


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
