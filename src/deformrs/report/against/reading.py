"""What one run comes to beside the paper, counted once; its results can be let go then."""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from deformrs.errors import InputError
from deformrs.noise import NoiseLaw
from deformrs.noise.scaled import ScaledLaw
from deformrs.report.against.compositions import COMPOSITIONS, Route
from deformrs.report.against.facts import Facts, facts_of
from deformrs.report.coverage import Covered
from deformrs.report.groups import Group, Member, lookup, make_groups
from deformrs.report.published import SIZES, Paper
from deformrs.report.radii import Radius
from deformrs.report.steps import Steps, steps_of
from deformrs.report.summary import summarise
from deformrs.runs import StoredRun
from deformrs.space import Block
from deformrs.units import Size, Unit

FAMILIES = ("rotation", "scaling", "translation", "affine", "dct", "vector_field")
"""The paper's tables, in the order of its figures."""
_SUFFIXES = {Unit.ANGLE: "deg", Unit.LENGTH: "px", Unit.FRACTION: "%", Unit.COEFFICIENT: ""}
_SIGNS = {Unit.ANGLE: "°", Unit.FRACTION: " %", Unit.LENGTH: " half sides", Unit.COEFFICIENT: ""}
_THIN = 200


@dataclass(frozen=True)
class Reading:
    """Counts of one run, under a short name. `family` is the table it belongs to, or None."""

    folder: Path
    dataset: str
    deformation: str
    family: str | None
    paper: Paper | None
    unpublished: str
    """Why the paper has no table of it, in words."""
    block: Block | None
    sizes: tuple[Size, ...]
    noise: str
    scale: str
    """The number of the noise scale as the paper counts it; else the noise as it was typed."""
    scale_shown: str
    order: tuple[str, float]
    """By which runs are sorted: the law, then its scale."""
    total: int
    right: int
    plain: int | None
    certified: dict[Fraction, int]
    """How many are right and certified, at each published radius, in the unit people use."""
    asked: frozenset[Fraction]
    """The published radii that each image had its samples for; at others it may have had too few.
    """
    average: Fraction
    curve: Steps | None
    route: Route | None
    compositions: dict[str, Covered]
    """What the run has on each composition, by its name; empty where it cannot be asked."""
    sampled_for: frozenset[str]
    """The names of those that each image had its samples for."""
    alpha: float
    facts: Facts
    held: dict[tuple[int, str], int]
    """At how many of those radii each image holds, by its number and digest."""
    classifier: str
    """What tells one smoothed classifier from another: model, deformation and noise."""


def read(run: StoredRun) -> Reading:
    """Guarantee: no count and no radius is above that of the run's results.

    A run on images that the paper has no numbers for is an error.
    """
    (group,) = make_groups([run])
    member, dataset = group.members[0], _dataset(run, group)
    paper, block = group.paper, group.block
    radii = () if paper is None else _radii(paper)
    typed = [] if block is None else [Radius(_text(r, block), block) for r in radii]
    held = {} if block is None else _held(run, typed)
    summary = summarise(run.results)
    certified = {r: sum(number > k for number in held.values()) for k, r in enumerate(radii)}
    name = str(group.deformation["name"])
    route: Route | None = {"affine": "affine", "compose": "composed"}.get(name)  # type: ignore[assignment]
    answers = [] if route is None else [(c.name, c.asked(run.results)) for c in COMPOSITIONS]
    scale, shown = _scale(member, block)
    return Reading(
        folder=run.folder,
        dataset=dataset,
        deformation=group.family,
        family=None if paper is None else name,
        paper=paper,
        unpublished=_unpublished(group),
        block=block,
        sizes=group.sizes,
        noise=member.short_noise,
        scale=scale,
        scale_shown=shown,
        order=_order(member),
        total=summary.total,
        right=summary.right,
        plain=summary.plain,
        certified=certified,
        asked=frozenset(r for r, own in zip(radii, typed, strict=False) if own.settled_by(run)),
        average=summary.averages[0],
        curve=None
        if block is None
        else steps_of(run.results, block).thinned(list(certified), most=_THIN),
        route=route,
        compositions={name: answer for name, answer in answers if answer.count is not None},
        sampled_for=frozenset(c.name for c in COMPOSITIONS if c.settled_by(run)),
        alpha=member.first.alpha,
        facts=facts_of(run),
        held=held,
        classifier=json.dumps(
            [run.config.get(key) for key in ("model", "deformation", "noise", "padding")],
            sort_keys=True,
        ),
    )


def _held(run: StoredRun, radii: list[Radius]) -> dict[tuple[int, str], int]:
    """Radii rise, so the number of them at which an image holds tells which ones."""
    sizes = {result.certificate.space.size for result in run.results}
    values = {size: [radius.value(size) for radius in radii] for size in sizes}
    return {
        (result.index, result.pixels): sum(
            result.holds(value) for value in values[result.certificate.space.size]
        )
        for result in run.results
    }


def _dataset(run: StoredRun, group: Group) -> str:
    name, split = (lookup(run.config, "data", key) for key in ("name", "split"))
    if group.data in SIZES and split in (None, "test"):
        return group.data
    near = difflib.get_close_matches(str(name).partition(" ")[0], SIZES, n=1)
    raise InputError(
        f"the data of {run.folder}",
        f"{name}{'' if split is None else f', split {split}'}",
        f"must be what the paper has numbers for, the test images of {', '.join(SIZES)}",
        "leave this run out" + (f", or certify the test images of {near[0]}" if near else ""),
    )


def _unpublished(group: Group) -> str:
    if group.paper is not None:
        return ""
    if group.block is None:
        return "the paper has no composition of these families in this order"
    if group.norm == 1:
        return "its radii are of the l1 norm, the paper's of the l2 norm"
    return "the paper has no table of this deformation"


def _radii(paper: Paper) -> tuple[Fraction, ...]:
    """Those of the family's own tables, not of compositions."""
    return tuple(sorted({*paper.table_radii, *paper.headline_radii}))


def _text(radius: Fraction, block: Block) -> str:
    return f"{float(radius):.10g}{_SUFFIXES[block.unit]}"


def _scale(member: Member, block: Block | None) -> tuple[str, str]:
    """For the file and for people."""
    law = member.first.law
    if block is not None and isinstance(law, ScaledLaw) and isinstance(law.scale, float):
        scale = math.degrees(law.scale) if block.unit is Unit.ANGLE else law.scale
        people = 100 * scale if block.unit is Unit.FRACTION else scale
        return f"{scale:.6g}", f"{people:.6g}{_SIGNS[block.unit]}"
    typed = lookup(member.run.config, "options", "noise")
    text = typed if isinstance(typed, str) else repr(law)
    return text, text


def _order(member: Member) -> tuple[str, float]:
    law = member.first.law
    name = law.name if isinstance(law, NoiseLaw) else ""
    single = isinstance(law, ScaledLaw) and isinstance(law.scale, float)
    return name, float(law.scale) if single else 0.0  # type: ignore[attr-defined]
