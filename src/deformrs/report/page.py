"""The report as one self-contained page: it asks nothing of any network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from deformrs.report.chart import chart_data, classes_data
from deformrs.report.contents import tables_of
from deformrs.report.section import Section, settings
from deformrs.report.words import READING, limits

ASSETS = "assets"
SCRIPTS = ("numbers.js", "picture.js", "gestures.js", "chart.js", "classes.js", "page.js")


def render_page(sections: Sequence[Section], title: str, note: str) -> str:
    """The whole page as text."""
    blocks = {section.slug: section.group.block for section in sections}
    data = {
        "charts": {s.slug: chart_data(s, block) for s in sections if (block := blocks[s.slug])},
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
        tables_of=tables_of,
        settings=settings,
        reading=READING,
        limits=limits([section.group for section in sections]),
        style=Markup(_asset("page.css")),
        scripts=Markup("\n".join(map(_asset, SCRIPTS))),
        data=Markup(embedded_json(data)),
    )


def embedded_json(data: object) -> str:
    r"""JSON that cannot end the script it stands in.

    >>> print(embedded_json(["</script>"]))
    ["\u003c/script\u003e"]
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _asset(name: str) -> str:
    return (files("deformrs.report") / ASSETS / name).read_text(encoding="utf-8")
