"""All there is to say about one group of runs, counted once for every form of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from deformrs.config import ConfigValue
from deformrs.regions import Region
from deformrs.report.cards import Cards, ImagesOf, cards_of
from deformrs.report.coverage import Covered, covered
from deformrs.report.groups import Group, Member, lookup
from deformrs.report.radii import Radius
from deformrs.report.steps import Envelope, Steps, envelope, steps_of
from deformrs.report.summary import Summary, by_class, summarise
from deformrs.report.words import headline, headline_radius, share

_MODEL = (
    ("options", "model"),
    ("model", "source"),
    ("model", "network"),
    ("model", "function"),
)


@dataclass(frozen=True)
class Entry:
    """What was counted of one run."""

    member: Member
    summary: Summary
    classes: dict[int, Summary]
    curve: Steps | None
    """None for a composition, which has no one radius."""
    regions: tuple[Covered, ...]
    cards: Cards
    headline: str
    headline_count: int
    """How many images the headline speaks of."""

    @property
    def headline_share(self) -> str:
        return share(self.headline_count, self.summary.total)

    @property
    def model(self) -> str:
        """What the run says it certified, as it was asked for if it tells."""
        for keys in _MODEL:
            value = lookup(self.member.run.config, *keys)
            if value:
                return str(value)
        return "–"


@dataclass(frozen=True)
class Section:
    """One group: its runs, its radii, and a short name for its files."""

    group: Group
    slug: str
    radii: tuple[Radius, ...]
    entries: tuple[Entry, ...]

    @cached_property
    def best(self) -> Envelope | None:
        """The best run at each radius, where there are several runs and one radius."""
        curves = [entry.curve for entry in self.entries if entry.curve is not None]
        if len(curves) < 2:
            return None
        keep = [radius.in_people_units(self.group.sizes[0]) for radius in self.radii]
        return envelope([curve.thinned(keep) for curve in curves])

    def best_at(self, place: int) -> Entry:
        """The run that certifies the largest share at that radius, the first of equals."""
        return max(
            self.entries,
            key=lambda entry: Fraction(entry.summary.certified[place], entry.summary.total),
        )

    @cached_property
    def same_images(self) -> bool:
        """Do all runs speak of the same images, as far as they can tell?"""
        sets = [
            {(result.index, result.label, result.pixels) for result in entry.member.results}
            for entry in self.entries
        ]
        return all(each == sets[0] for each in sets)


def make_section(
    group: Group,
    slug: str,
    radii: tuple[Radius, ...],
    first: str | None,
    regions: Sequence[Region],
    images: ImagesOf | None,
) -> Section:
    """Count everything about a group. `first` is the radius that was asked for before others."""
    entries = tuple(
        _entry(group, member, radii, first, regions, images) for member in group.members
    )
    return Section(group, slug, radii, entries)


def _entry(
    group: Group,
    member: Member,
    radii: tuple[Radius, ...],
    first: str | None,
    regions: Sequence[Region],
    images: ImagesOf | None,
) -> Entry:
    summary = summarise(member.results, radii)
    radius, count = headline_radius(radii, summary, first)
    return Entry(
        member=member,
        summary=summary,
        classes=by_class(member.results, radii),
        curve=None if group.block is None else steps_of(member.results, group.block),
        regions=tuple(covered(member.results, region) for region in regions),
        cards=cards_of(member, images),
        headline=headline(member, summary, radius, count),
        headline_count=count,
    )


def settings(member: Member) -> list[tuple[str, str]]:
    """All that the run's configuration says, one line a setting, but for the classes' names."""
    lines: list[tuple[str, str]] = [("folder", str(member.run.folder))]

    def add(name: str, value: ConfigValue) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{name} · {key}" if name else str(key), inner)
        elif name != "data · class_names" and value is not None:
            lines.append((name, str(value)))

    add("", dict(member.run.config))
    return lines
