"""Runs that can be compared in one chart: of one deformation, on one data set."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deformrs.certificate import Certificate
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError
from deformrs.report.layout import one_line
from deformrs.report.people import noise_words
from deformrs.report.published import TITLES, Paper, paper_for
from deformrs.runs import Result, StoredRun
from deformrs.space import Block
from deformrs.units import Size


@dataclass(frozen=True)
class Member:
    """A run of a group, under a name that no other run of the report has."""

    name: str
    run: StoredRun

    @property
    def results(self) -> list[Result]:
        return self.run.results

    @property
    def first(self) -> Certificate:
        """What all certificates of a run share can be read off it."""
        return self.results[0].certificate

    @property
    def noise(self) -> str:
        return noise_words(self.results)

    @property
    def short_noise(self) -> str:
        """The noise in as few words as a legend has room for."""
        return self.noise.replace(" noise of scale", "")

    @cached_property
    def class_names(self) -> list[str]:
        """The names of the classes, by number; empty where the run does not know them."""
        names = lookup(self.run.config, "data", "class_names")
        return [str(name) for name in names] if isinstance(names, list) else []

    def class_name(self, label: int) -> str:
        """The name of a class, or its number in words."""
        known = 0 <= label < len(self.class_names)
        return self.class_names[label] if known else f"class {label}"


@dataclass(frozen=True)
class Group:
    """Runs of one deformation on one data set, their radii of one norm."""

    data: str | None
    deformation: Config
    members: tuple[Member, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.members[0].first.space.blocks

    @property
    def block(self) -> Block | None:
        """The only block of parameters; None where there are several and so no one radius."""
        return self.blocks[0] if len(self.blocks) == 1 else None

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of the images, each once."""
        sizes = (r.certificate.space.size for m in self.members for r in m.results)
        return tuple(dict.fromkeys(sizes))

    @property
    def norm(self) -> int | None:
        """The norm of the radius where it matters: one parameter has only one."""
        block = self.block
        return None if block is None or block.dim == 1 else self.members[0].first.law.norm(0)

    @property
    def family(self) -> str:
        """The deformation in words: its families and settings.

        >>> Group(None, {"name": "dct", "k": 3, "basis": "dct"}, ()).family
        'DCT (k = 3, basis = dct)'
        """
        return _family(self.deformation)

    @property
    def title(self) -> str:
        family = self.family[0].upper() + self.family[1:]
        family += " (l1 norm)" if self.norm == 1 else ""
        return family if self.data is None else f"{family} on {TITLES.get(self.data, self.data)}"

    @cached_property
    def paper(self) -> Paper | None:
        """What the paper has on this, if anything; its radii of several parameters are l2."""
        if self.block is None or self.norm == 1:
            return None
        return paper_for(self.data, dict(self.deformation))


def make_groups(runs: Sequence[StoredRun]) -> list[Group]:
    """The runs sorted into groups, in the order given; none may be empty or given twice."""
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
    names = _names([run.folder for run in runs])
    found: dict[str, list[Member]] = {}
    for name, run in zip(names, runs, strict=True):
        found.setdefault(_key(run), []).append(Member(name, run))
    return [
        Group(_data(members[0].run), _deformation(members[0].run), tuple(members))
        for members in found.values()
    ]


def slugs(groups: Sequence[Group]) -> list[str]:
    """Short names for files, a different one for each group."""
    taken: list[str] = []
    for group in groups:
        words = f"{group.data or ''} {group.family} {'l1' if group.norm == 1 else ''}".lower()
        plain = re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:60].strip("-") or "group"
        # Names that differ only in letters that files had better not have.
        same = sum(slug == plain or slug.startswith(f"{plain}-again-") for slug in taken)
        taken.append(plain if not same else f"{plain}-again-{same}")
    return taken


def lookup(config: Config, *keys: str) -> ConfigValue:
    """config[key][key]…, or None where there is no such entry."""
    value: ConfigValue = config
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _key(run: StoredRun) -> str:
    first = run.results[0].certificate
    blocks = [
        (block.family, block.unit.value, 0 if block.dim == 1 else first.law.norm(k))
        for k, block in enumerate(first.space.blocks)
    ]
    return json.dumps([_data(run), _deformation(run), blocks], sort_keys=True)


def _data(run: StoredRun) -> str | None:
    """The data set, and its split where it is not the one that is published about."""
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


def _family(config: Config) -> str:
    name, parts = str(config["name"]), config.get("parts")
    if name == "compose" and isinstance(parts, list):
        return ", then ".join(_family(part) for part in parts if isinstance(part, dict))
    fields = ", ".join(f"{key} = {value}" for key, value in config.items() if key != "name")
    words = {"dct": "DCT"}.get(name, name.replace("_", " "))
    return f"{words} ({fields})" if fields else words


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell the folders apart.

    Folders best/ and held-out/ belong to the training above them, and are called by both names.
    """
    parts = [folder.resolve().parts for folder in folders]
    for place, own in enumerate(parts):
        if own in parts[:place]:
            raise InputError(
                "the runs", f"{folders[place]} twice", "must be different ones", "give each once"
            )
    names = []
    for own in parts:
        length = 2 if own[-1] in ("best", "held-out") else 1
        while sum(other[-length:] == own[-length:] for other in parts) > 1:
            length += 1
        names.append(one_line("/".join(own[-length:])))
    return names
