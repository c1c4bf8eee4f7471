"""Runs that can be compared in one chart: of one deformation, on one dataset."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isclose
from pathlib import Path

from deformrs.certificate import Certificate
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import Independent
from deformrs.regions import Region
from deformrs.report.curves import Curve, Envelope, curve_of, envelope
from deformrs.report.formats import one_line
from deformrs.report.radii import (
    Radius,
    is_full_turn,
    parse_radii,
    radius_of,
    sort_radii,
)
from deformrs.report.reference import Reference, ReferenceNumber, references_for
from deformrs.report.summary import (
    NOT_REQUESTED,
    RegionCount,
    Summary,
    count_region,
    noise_words,
    summarise,
    summarise_classes,
)
from deformrs.runs import Result, StoredRun
from deformrs.runs.folder import noise_law
from deformrs.space import Block
from deformrs.stopping import Stopping, from_stored_region
from deformrs.units import FEW, Size, round_radii

MADE_IN_PYTHON = ("Region(", "Patch(")
"""How regions begin in a configuration that are not text to parse."""
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imagenet": "ImageNet"}


@dataclass(frozen=True)
class EarlyStop:
    """The rule by which a run stopped sampling an image, as its configuration has it."""

    radii: tuple[float | str, ...]
    regions: tuple[str, ...]
    tolerance: ConfigValue


@dataclass(frozen=True)
class Member:
    """A run of a group, under a name that no other run of the report has."""

    name: str
    run: StoredRun

    @property
    def results(self) -> list[Result]:
        """The results of the run."""
        return self.run.results

    @property
    def first(self) -> Certificate:
        """The first certificate, which has the settings of all."""
        return self.results[0].certificate

    @property
    def method(self) -> str:
        """The bound of the results, which may choose one for each image."""
        return self.run.anew or str(self.run.config["method"])

    @cached_property
    def noise(self) -> str:
        """The noise in words."""
        return noise_words(self.results)

    @property
    def short_noise(self) -> str:
        """The noise in as few words as a legend has room for."""
        return self.noise.replace(" noise of scale", "")

    @cached_property
    def class_names(self) -> list[str]:
        """The names of the classes, by number; empty where the run does not have them."""
        names = lookup(self.run.config, "data", "class_names")
        return [str(name) for name in names] if isinstance(names, list) else []

    def class_name(self, label: int) -> str:
        """Return the name of a class, "class 3" where it has none."""
        known = 0 <= label < len(self.class_names)
        return self.class_names[label] if known else f"class {label}"

    @cached_property
    def early_stop(self) -> EarlyStop | None:
        """The rule by which sampling stopped, None where every image got all its samples."""
        if "stopping" not in self.run.config:
            return None
        radii, regions, tolerance = (
            lookup(self.run.config, "stopping", key) for key in ("radii", "regions", "tolerance")
        )
        return EarlyStop(
            tuple(r for r in radii if isinstance(r, str | int | float))
            if isinstance(radii, list)
            else (),
            tuple(from_stored_region(str(r)) for r in regions) if isinstance(regions, list) else (),
            tolerance,
        )

    @property
    def only_decided(self) -> bool:
        """Whether sampling stopped when the queries were decided, so that radii may be short."""
        return self.early_stop is not None and self.early_stop.tolerance is None

    @cached_property
    def requested(self) -> tuple[Radius, ...]:
        """The radii at which sampling stopped, smallest first; empty where there are none."""
        blocks, stop = self.first.space.blocks, self.early_stop
        if stop is None or len(blocks) != 1:
            return ()
        block, size = blocks[0], self.first.space.size
        texts = [
            r if isinstance(r, str) else Radius.from_value(r, block, size).text for r in stop.radii
        ]
        return sort_radii(parse_radii(texts, block, size), size)

    @cached_property
    def until(self) -> Fraction | None:
        """The largest requested radius in the displayed unit, None where none limits the run."""
        if not self.only_decided or not self.requested:
            return None
        largest = self.requested[-1]
        if is_full_turn(largest.block, largest.value(self.first.space.size)):
            return Fraction(180)
        return min(largest.displayed(result.certificate.space.size) for result in self.results)

    @cached_property
    def curve(self) -> Curve | None:
        """Certified accuracy against radius, up to the largest requested one.

        None for a composition, and for a run that was only sampled until regions were decided.
        """
        blocks = self.first.space.blocks
        if len(blocks) != 1 or (self.only_decided and not self.requested):
            return None
        return curve_of(self.results, blocks[0], self.until)

    def decides(self, query: Radius | Region) -> bool:
        """Return whether each image had its samples for this radius or region.

        A query that the noise cannot certify at all needs none, but is requested only if named.
        """
        if self.early_stop is None or not self.only_decided:
            return True
        if query in self.named_regions or any(
            isinstance(query, Radius) and isclose(query.value(size), radius.value(size))
            for size in [self.first.space.size]
            for radius in self.requested
        ):
            return True
        radii, regions = ((query.text,), ()) if isinstance(query, Radius) else ((), (query,))
        try:
            needed = self._thresholds(Stopping(radii, regions))
        except UnsupportedError:
            return True  # the run cannot answer it, however many samples it has
        if isinstance(noise_law(self.first), Independent):
            return False  # with a bound on p_B, equal thresholds of p_A do not mean equal queries
        return bool(needed) and all(any(isclose(p, own) for own in self._decided) for p in needed)

    @cached_property
    def named_regions(self) -> tuple[Region, ...]:
        """The requested regions."""
        texts = () if self.early_stop is None else self.early_stop.regions
        return tuple(Region.parse(text) for text in texts if not text.startswith(MADE_IN_PYTHON))

    @cached_property
    def _decided(self) -> tuple[float, ...]:
        """The lower bounds on p_A at which the requested queries are decided."""
        stop = self.early_stop
        return () if stop is None else self._thresholds(Stopping(stop.radii, self.named_regions))

    def _thresholds(self, queries: Stopping) -> tuple[float, ...]:
        return queries.thresholds(noise_law(self.first), self.first.space)


@dataclass(frozen=True)
class Group:
    """Runs of one deformation on one dataset, their radii in one norm."""

    data: str | None
    deformation: Config
    members: tuple[Member, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The parameter blocks of the deformation."""
        return self.members[0].first.space.blocks

    @property
    def named_regions(self) -> tuple[Region, ...]:
        """The regions that its runs requested, each once."""
        return tuple(dict.fromkeys(region for m in self.members for region in m.named_regions))

    @property
    def block(self) -> Block | None:
        """The only block; None for a composition, which has no single radius."""
        return self.blocks[0] if len(self.blocks) == 1 else None

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of the images, each once."""
        sizes = (r.certificate.space.size for m in self.members for r in m.results)
        return tuple(dict.fromkeys(sizes))

    @property
    def norm(self) -> int | None:
        """The norm of the radius; None where there is only one parameter or no single radius."""
        block = self.block
        return None if block is None or block.dim == 1 else self.members[0].first.law.norm(0)

    @property
    def family(self) -> str:
        """The deformation in words: its families and settings."""
        return family_words(self.deformation)

    @property
    def title(self) -> str:
        """The deformation and the dataset: "Rotation on MNIST"."""
        family = self.family[0].upper() + self.family[1:]
        family += " (l1 norm)" if self.norm == 1 else ""
        return family if self.data is None else f"{family} on {TITLES.get(self.data, self.data)}"


@dataclass(frozen=True)
class Entry:
    """The counts of one run of a section. `decided` tells for each radius if it was requested."""

    member: Member
    summary: Summary
    classes: dict[int, Summary]
    decided: tuple[bool, ...]
    regions: tuple[RegionCount, ...]

    def certified(self, summary: Summary) -> tuple[int | None, ...]:
        """Return the counts at the radii, of the run or a class; None where not requested."""
        pairs = zip(summary.certified, self.decided, strict=True)
        return tuple(count if decided else None for count, decided in pairs)


@dataclass(frozen=True)
class Section:
    """A group with its counts: one section of the report. `slug` names its files."""

    group: Group
    slug: str
    radii: tuple[Radius, ...]
    requested: Radius | None
    """The first of the requested radii that is of this unit."""
    references: tuple[Reference, ...]
    entries: tuple[Entry, ...]

    @property
    def displayed_radii(self) -> list[Fraction]:
        """The radii as numbers in the displayed unit."""
        return [radius.displayed(self.group.sizes[0]) for radius in self.radii]

    @cached_property
    def curves(self) -> list[tuple[Member, Curve]]:
        """The runs that have a curve, with it."""
        members = (entry.member for entry in self.entries)
        return [(member, member.curve) for member in members if member.curve is not None]

    @cached_property
    def best(self) -> Envelope | None:
        """The best run at each radius, where there are several curves."""
        if len(self.curves) < 2:
            return None
        return envelope([curve.thinned(self.displayed_radii) for _, curve in self.curves])

    def best_at(self, k: int) -> Entry | None:
        """Return the run with the largest share at radius `k`, the first of equals.

        None if it was requested of no run.
        """
        known = [entry for entry in self.entries if entry.decided[k]]
        return max(known, key=lambda entry: entry.summary.share_at(k), default=None)

    @cached_property
    def same_images(self) -> bool:
        """Whether all runs certified the same images, as far as their records tell."""
        sets = [
            {(result.index, result.label, result.pixels) for result in entry.member.results}
            for entry in self.entries
        ]
        return all(each == sets[0] for each in sets)


def make_groups(runs: Sequence[StoredRun]) -> list[Group]:
    """Return the runs sorted into groups, in the order given; none may be empty or given twice."""
    if not runs:
        raise InputError("the runs", "none", "must be at least one", "give a run's folder")
    for run in runs:
        if not run.results:
            raise InputError(
                f"the run in {run.folder}",
                "empty",
                "must have at least one image certified",
                "wait for the first one, or leave this run out",
            )
    names = run_names([run.folder for run in runs])
    members: dict[str, list[Member]] = {}
    for name, run in zip(names, runs, strict=True):
        members.setdefault(_key(run), []).append(Member(name, run))
    return [
        Group(_data(some[0].run), _deformation(some[0].run), tuple(some))
        for some in members.values()
    ]


def make_sections(
    groups: Sequence[Group],
    texts: Sequence[str],
    regions: Sequence[Region],
    numbers: Sequence[ReferenceNumber],
) -> list[Section]:
    """Return the groups with their counts at radii given as text, or at radii of their own.

    Without `regions`, those that the runs of a group requested are counted in it.
    """
    references = [_references(group, numbers) for group in groups]
    if numbers and not any(references):
        raise InputError(
            "the reference",
            "of other datasets and deformations than these runs",
            "must have a number for one of them",
            "compare its first two columns with the runs' config.json",
        )
    sections = []
    radii = choose_radii(groups, texts, references)
    for group, slug, own, some in zip(groups, slugs(groups), radii, references, strict=True):
        requested = next((radius for radius in own if texts and radius.text == texts[0]), None)
        queried = regions or group.named_regions
        entries = tuple(
            Entry(
                member=member,
                summary=summarise(member.results, own),
                classes=summarise_classes(member.results, own),
                decided=tuple(member.decides(radius) for radius in own),
                regions=tuple(_count_region(member, region) for region in queried),
            )
            for member in group.members
        )
        sections.append(Section(group, slug, own, requested, some, entries))
    return sections


def choose_radii(
    groups: Sequence[Group],
    texts: Sequence[str],
    references: Sequence[Sequence[Reference]] = (),
) -> list[tuple[Radius, ...]]:
    """Return for each group the texts that are of its unit, or without any a choice of its own.

    A text that fits none of the groups is an error.
    """
    if not texts:
        some = references or [()] * len(groups)
        return [default_radii(group, own) for group, own in zip(groups, some, strict=True)]
    chosen = [
        () if group.block is None else parse_radii(texts, group.block, group.sizes[0])
        for group in groups
    ]
    used = {radius.text for radii in chosen for radius in radii}
    for text in texts:
        if text not in used:
            examples = {f"{g.block.unit.example} ({g.family})": 0 for g in groups if g.block}
            raise InputError(
                "the radius",
                repr(text),
                "must be at least 0 and in the unit of one of the runs",
                "e.g. " + ", ".join(examples) if examples else "give a composition a region",
            )
    return [sort_radii(radii, group.sizes[0]) for radii, group in zip(chosen, groups, strict=True)]


def default_radii(group: Group, references: Sequence[Reference] = ()) -> tuple[Radius, ...]:
    """Return the radii that sampling decided, else those of the references and round numbers.

    None of the latter is above the largest certified radius. There are none for runs that were
    only sampled until regions were decided.
    """
    block = group.block
    if block is None or all(member.curve is None for member in group.members):
        return ()
    decided = [radius for member in group.members for radius in member.requested]
    if decided:
        return sort_radii(decided, group.sizes[0])
    reached = [max(map(radius_of, member.results)) for member in group.members]
    largest = max(reached)
    known = [radius for reference in references for radius, _ in reference.points]
    numbers = {Fraction(0), *(radius for radius in known if radius <= largest)}
    if len(numbers) < FEW - 1:
        numbers |= set(round_radii(largest, block.unit))
        if 2 * min(reached) < largest:  # where there is something to compare
            numbers |= set(round_radii(min(reached), block.unit)[1::2])
    return tuple(Radius.from_displayed(number, block) for number in sorted(numbers))


def slugs(groups: Sequence[Group]) -> list[str]:
    """Return short names for files, a different one for each group."""
    taken: list[str] = []
    for group in groups:
        words = f"{group.data or ''} {group.family} {'l1' if group.norm == 1 else ''}".lower()
        plain = re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:60].strip("-") or "group"
        # Names that differ only in letters that do not go into file names.
        same = sum(slug == plain or slug.startswith(f"{plain}-again-") for slug in taken)
        taken.append(plain if not same else f"{plain}-again-{same}")
    return taken


def family_words(deformation: Config) -> str:
    """Return a deformation's families and settings in words.

    >>> family_words({"name": "dct", "k": 3, "basis": "dct"})
    'DCT (k = 3, basis = dct)'
    """
    name, parts = str(deformation["name"]), deformation.get("parts")
    if name == "compose" and isinstance(parts, list):
        return ", then ".join(family_words(part) for part in parts if isinstance(part, dict))
    fields = ", ".join(f"{key} = {value}" for key, value in deformation.items() if key != "name")
    words = {"dct": "DCT"}.get(name, name.replace("_", " "))
    return f"{words} ({fields})" if fields else words


def lookup(config: Config, *keys: str) -> ConfigValue:
    """Return config[key][key]…, or None where there is no such entry."""
    value: ConfigValue = config
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _count_region(member: Member, region: Region) -> RegionCount:
    if member.decides(region):
        return count_region(member.results, region)
    return RegionCount(region, None, len(member.results), NOT_REQUESTED)


def _references(group: Group, numbers: Sequence[ReferenceNumber]) -> tuple[Reference, ...]:
    if group.block is None or group.norm == 1:  # the numbers are in the l2 norm
        return ()
    name = str(group.deformation["name"])
    return references_for(numbers, group.data, name, group.block, group.sizes[0])


def _key(run: StoredRun) -> str:
    first = run.results[0].certificate
    blocks = [
        (block.family, block.unit.value, 0 if block.dim == 1 else first.law.norm(k))
        for k, block in enumerate(first.space.blocks)
    ]
    return json.dumps([_data(run), _deformation(run), blocks], sort_keys=True)


def _data(run: StoredRun) -> str | None:
    """Return the dataset, and its split unless it is the test images."""
    name, split = lookup(run.config, "data", "name"), lookup(run.config, "data", "split")
    if not name:
        return None
    return one_line(str(name)) + (" (train)" if split == "train" else "")


def _deformation(run: StoredRun) -> Config:
    written = run.config.get("deformation")
    if isinstance(written, dict) and "name" in written:
        return written
    families = [block.family for block in run.results[0].certificate.space.blocks]
    if len(families) == 1:
        return {"name": families[0]}
    return {"name": "compose", "parts": [{"name": family} for family in families]}


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that tell the folders apart.

    Folders best/ and held-out/ belong to the training above them, and are called by both names.
    """
    parts = [folder.resolve().parts for folder in folders]
    for k, own in enumerate(parts):
        if own in parts[:k]:
            raise InputError(
                "the runs", f"{folders[k]} twice", "must be different ones", "give each once"
            )
    names = []
    for own in parts:
        length = 2 if own[-1] in ("best", "held-out") else 1
        while sum(other[-length:] == own[-length:] for other in parts) > 1:
            length += 1
        names.append(one_line("/".join(own[-length:])))
    return names
