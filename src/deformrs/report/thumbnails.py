"""The images of a report: small copies of them, and cards of the least robust."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import eq

import numpy as np
from PIL import Image

from deformrs.data.preparation import Pixels
from deformrs.report.captions import radii_words
from deformrs.report.groups import Member, Section
from deformrs.report.radii import is_full_turn, radius_of
from deformrs.report.turning import cover_data, turning_data
from deformrs.rounding import format_down
from deformrs.runs import Result, StoredRun

BUDGET = 8 * 2**20
"""Bytes that the copies in a page may take together, unless their number is given."""
MOST = 1000
"""Copies of one run, unless their number is given: reading photographs takes time."""
CARDS = 6
"""Images of each kind that are shown of a run as cards."""
_SIDE = 128

ImageReader = Callable[[StoredRun, Result], Pixels | None]
"""Returns the image of a result, [c, h, w] in [0, 1], or None where it cannot be read."""
Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


@dataclass
class Thumbnails:
    """Small copies of a run's images as data URIs, by their place among its results."""

    uris: dict[int, str] = field(default_factory=dict)
    unreadable: int = 0
    small: bool = False
    """Whether the images are so small that their pixels should be seen."""

    @property
    def tried(self) -> int:
        """The number of images that were to be read."""
        return len(self.uris) + self.unreadable


@dataclass(frozen=True)
class Card:
    """An image with its prediction. `image` is a data URI, or None."""

    place: int
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


def thumbnails_of(
    members: Sequence[Member], read_image: ImageReader | None, most: int | None = None
) -> dict[str, Thumbnails]:
    """Return small copies of the images of each run by its name: of the least robust, and of others
    evenly spread over the run.

    They are at most `most` of a run; without it as many as fit BUDGET together. Where none of the
    least robust can be read, the others are not tried.
    """
    copies = {member.name: Thumbnails() for member in members}
    for member in members if read_image is not None and most != 0 else ():
        own = copies[member.name]

        def read(places: Iterable[int], own: Thumbnails = own, member: Member = member) -> None:
            for place in places:
                result = member.results[place]
                pixels = None if read_image is None else read_image(member.run, result)
                if pixels is None:
                    own.unreadable += 1
                else:
                    own.uris[place] = thumbnail(pixels)
                    own.small = max(pixels.shape[1:]) <= _SIDE

        right, wrong = least_robust(member)
        first = [*right, *wrong][:most]
        read(first)
        if not own.uris:
            continue
        size = sum(map(len, own.uris.values())) / len(own.uris)
        fitting = min(MOST, int(BUDGET / len(members) / size)) if most is None else most
        left = [place for place in range(len(member.results)) if place not in set(first)]
        count = min(max(0, fitting - len(first)), len(left))
        read(left[k * len(left) // count] for k in range(count))
    return copies


def least_robust(member: Member) -> tuple[list[int], list[int]]:
    """Return the places of six correct results of smallest radius, and of six others."""
    places = range(len(member.results))
    margins = [result.certificate.bound for result in member.results]
    margin = [bound.lower - bound.upper for bound in margins]  # all radii of a run grow with it
    right = sorted((k for k in places if member.results[k].correct), key=margin.__getitem__)
    others = [k for k in places if not member.results[k].correct]
    # Wrong predictions before abstentions, the most certain of each first.
    others.sort(key=lambda k: (member.results[k].certificate.prediction is None, -margin[k]))
    return right[:CARDS], others[:CARDS]


def cards_of(member: Member, copies: Thumbnails) -> Cards:
    """Return at most twelve images: six correct ones of smallest radius, six wrong or abstained."""
    right, wrong = (
        tuple(_card(member, place, copies) for place in places) for places in least_robust(member)
    )
    return Cards(right, wrong)


def thumbnail(pixels: Pixels) -> str:
    """Return an image [c, h, w] in [0, 1] as a data URI: a PNG, or a small JPEG of a larger one."""
    channels = pixels if len(pixels) in (1, 3) else pixels.mean(axis=0, keepdims=True)
    bytes_ = np.clip(np.rint(255 * channels), 0, 255).astype(np.uint8)
    image = Image.fromarray(bytes_[0] if len(bytes_) == 1 else bytes_.transpose(1, 2, 0))
    file, kind = io.BytesIO(), "png"
    if max(image.size) > _SIDE:
        kind = "jpeg"
        image.thumbnail((_SIDE, _SIDE))
        image.save(file, format="JPEG", quality=80, optimize=True)
    else:
        image.save(file, format="PNG", optimize=True)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def images_data(section: Section, copies: Mapping[str, Thumbnails]) -> dict[str, Json]:
    """Return every image of every run in columns, for the page's table; no figure above the truth.

    Sources are without what they begin with alike; radii are in the displayed unit, one list a
    block.
    """
    blocks = section.group.blocks
    names: dict[str, Json] = {}
    runs: list[Json] = []
    for entry in section.entries:
        member, own = entry.member, copies[entry.member.name]
        results = member.results
        certificates = [result.certificate for result in results]
        predictions = [certificate.prediction for certificate in certificates]
        for label in {*(result.label for result in results), *predictions} - {None}:
            names[str(label)] = member.class_name(label)  # type: ignore[arg-type]
        sources = [result.source or f"image {result.index}" for result in results]
        first, last = min(sources), max(sources)  # all others share what these begin with
        same = sum(takewhile(bool, map(eq, first, last)))
        start = first[:same]
        columns: dict[str, list[Json]] = {
            "index": [result.index for result in results],
            "sources": [source[len(start) :] for source in sources],
            "labels": [result.label for result in results],
            "predictions": list(predictions),
            "p": [float(format_down(certificate.p_lower, 4)) for certificate in certificates],
        }
        radii: list[Json] = []
        for k, block in enumerate(blocks):
            shown = (format_down(radius_of(r, k), block.unit.decimals) for r in results)
            radii.append([float(text) for text in shown])
        runs.append(
            {
                "name": member.name,
                "start": start,
                **columns,
                "radii": radii,
                **cover_data(member, results),
                "bounds": member.only_decided,
                "thumbs": {str(place): uri for place, uri in own.uris.items()},
                "small": own.small,
                "unreadable": own.unreadable,
            }
        )
    families = [block.family.replace("_", " ") for block in blocks]
    return {
        "names": names,
        "families": list(families),
        "signs": [block.unit.symbol for block in blocks],
        "decimals": [block.unit.decimals for block in blocks],
        "full": [180 if is_full_turn(b, b.reach(np.inf)) else None for b in blocks],
        "turning": turning_data(section.group),
        "runs": runs,
    }


def thumbnail_words(section: Section, copies: Mapping[str, Thumbnails]) -> list[str]:
    """Return which runs of a section have images without a copy, and how to embed them."""
    words = []
    for entry in section.entries:
        own, total = copies[entry.member.name], len(entry.member.results)
        if own.uris and own.tried < total:
            words.append(
                f"{entry.member.name}: {len(own.uris):,} of {total:,} images are embedded, to keep "
                f"the page small; deformrs report … --thumbnails {total} embeds all."
            )
    return words


def _card(member: Member, place: int, copies: Thumbnails) -> Card:
    result = member.results[place]
    certificate, prediction = result.certificate, result.certificate.prediction
    return Card(
        place=place,
        source=result.source or f"image {result.index}",
        label=member.class_name(result.label),
        prediction="abstains" if prediction is None else member.class_name(prediction),
        radius="–" if prediction is None else radii_words(result),
        probability=format_down(certificate.p_lower, 4),
        image=copies.uris.get(place),
        small=copies.small,
    )
