"""The request of a run: the indices of the images that it is to certify, in order.

It is stored in the configuration, with a digest of its own, since a run may be extended:

    "requested": {"images": 120, "indices": "0-99,200-219", "check": "5d41402abc4b2a76"}

A run whose images share one alpha is bound to their number, and is not extended:

    "simultaneous": {"images": 120, "alpha": 0.001}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path

from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.runs.records import REQUESTED, digest

MOST_IMAGES = 10_000_000
"""In one run. A forged request must not fill the memory."""

SIMULTANEOUS = "simultaneous"
"""The setting of a run whose images share one alpha."""


@dataclass(frozen=True)
class Simultaneous:
    """That many images share alpha: all of their certificates hold with confidence 1 - alpha."""

    images: int
    alpha: float

    def to_config(self) -> Config:
        """Return what a run's configuration adds."""
        return {SIMULTANEOUS: {"images": self.images, "alpha": self.alpha}}

    @property
    def words(self) -> str:
        """The images and their alpha in words."""
        return f"one of {self.images:,} images that share alpha = {self.alpha:g}"


def simultaneous_of(config: Config) -> Simultaneous | None:
    """Return how the images of a run share alpha, None where each has its own.

    ValueError if that is damaged.
    """
    stored, level = config.get(SIMULTANEOUS), config.get("alpha")
    if stored is None:
        return None
    match stored, level:
        case ({"images": int(images), "alpha": float(alpha), **rest}, float(level)) if not rest:
            finite = images > 0 and 0 < level <= alpha < 1
            if finite and images * Fraction(level) <= Fraction(alpha):
                return Simultaneous(images, alpha)
    raise ValueError(f"{SIMULTANEOUS} must have images, and the alpha that these share")


def check_simultaneous(folder: Path, found: Config, requested: Config) -> None:
    """Raise unless the images of the run in a folder share alpha as those that are requested."""
    there, here = simultaneous_of(found), simultaneous_of(requested)
    if there != here:
        own = "one whose images have an alpha each"
        raise InputError(
            f"the run in {folder}",
            f"{own if there is None else there.words}, not {own if here is None else here.words}",
            "cannot be extended or go on otherwise: its certificates would not hold together",
            "repeat the command that began it, or certify all of the images into another folder",
        )


def with_request(config: Config, done: Sequence[int], indices: Sequence[int]) -> Config:
    """Return the configuration with the request for these images, some of which may be done.

    Images that were requested before are still requested, after the new ones.

    >>> with_request({}, [], range(5))["requested"]["indices"]
    '0-4'
    """
    before = chain.from_iterable(requested_indices(config) or ()) if done else ()
    # As certification goes on: what is done stays where it is, and no index occurs twice.
    order = [*dict.fromkeys(chain(done, indices, before))]
    if len(order) > MOST_IMAGES:
        raise InputError(
            "the number of images",
            f"{len(order):,}",
            f"must be at most {MOST_IMAGES:,} in one run",
            "select fewer with max or skip",
        )
    shared = simultaneous_of(config)
    if shared is not None and len(order) > shared.images:
        raise InputError(
            "the number of images",
            f"{len(order):,} with those of the run",
            f"must stay at the {shared.images:,} that share alpha = {shared.alpha:g}",
            "certify all of the images into another folder",
        )
    record: Config = {"images": len(order), "indices": to_text(order)}
    return config | {REQUESTED: record | {"check": digest(record, config)}}


def requested_indices(config: Config) -> list[range] | None:
    """Return the requested indices, None of a run that does not record them.

    ValueError if they are damaged.
    """
    shared, stored = simultaneous_of(config), config.get(REQUESTED)
    if stored is None and shared is None:
        return None
    if not isinstance(stored, dict) or stored.keys() != {"images", "indices", "check"}:
        raise ValueError(f"{REQUESTED} must have images, indices and check")
    record = {key: value for key, value in stored.items() if key != "check"}
    if stored["check"] != digest(record, config):
        raise ValueError(f"{REQUESTED} was changed, or is of another configuration")
    indices = from_text(str(stored["indices"]))
    if sum(map(len, indices)) != stored["images"]:
        raise ValueError(f"{REQUESTED} has other indices than images")
    if shared is not None and sum(map(len, indices)) > shared.images:
        raise ValueError(f"{REQUESTED} has more images than share alpha")
    return indices


def to_text(indices: Iterable[int]) -> str:
    """Return indices as text, evenly spaced ones as a range with its step.

    >>> to_text([0, 1, 2, 3, 10, 20, 30, 7])
    '0-3,10-30:10,7'
    """
    return ",".join(map(_range_text, _ranges(indices)))


def from_text(text: str) -> list[range]:
    """Return the indices as ranges; ValueError if the text is not that of `to_text`.

    >>> from_text("0-3,10-30:10,7")
    [range(0, 4), range(10, 31, 10), range(7, 8)]
    """
    ranges, images = [], 0
    for part in text.split(",") if text else ():
        found = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", part)
        if found is None:
            raise ValueError(f"{part[:40]!r} is no range of indices")
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if step < 1 or last < first:
            raise ValueError(f"{part!r} is an empty range of indices")
        ranges.append(range(first, last + 1, step))
        images += len(ranges[-1])
        if images > MOST_IMAGES:
            raise ValueError(f"more than {MOST_IMAGES:,} images")
    return ranges


def _ranges(indices: Iterable[int]) -> Iterator[range]:
    found: range | None = None
    for index in map(int, indices):
        if found is None:
            found = range(index, index + 1)
        elif len(found) == 1 and index > found[0]:
            found = range(found[0], index + 1, index - found[0])
        elif len(found) > 1 and index == found[-1] + found.step:
            found = range(found[0], index + 1, found.step)
        else:
            yield found
            found = range(index, index + 1)
    if found is not None:
        yield found


def _range_text(indices: range) -> str:
    if len(indices) < 3:
        return ",".join(map(str, indices))
    step = f":{indices.step}" if indices.step > 1 else ""
    return f"{indices[0]}-{indices[-1]}{step}"
