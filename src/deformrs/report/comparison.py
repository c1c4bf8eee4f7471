"""The published numbers beside ours."""

from __future__ import annotations

from fractions import Fraction

from deformrs.noise.scaled import ScaledLaw
from deformrs.report.groups import Group, Member
from deformrs.report.layout import Cell, Table
from deformrs.report.people import shown_down
from deformrs.report.published import SETTINGS, SIZES, Number, Paper, explained
from deformrs.report.section import Entry, Section
from deformrs.report.words import share
from deformrs.rounding import format_down
from deformrs.units import Unit

NONE = Cell("–")


def same_scale(member: Member, paper: Paper) -> list[Number]:
    """The paper's row for the noise of this run, if it has one."""
    law = member.first.law
    if not isinstance(law, ScaledLaw) or not isinstance(law.scale, float):
        return []
    return paper.of_scale(law.name, law.scale)


def best_table(section: Section) -> Table | None:
    """Our best run against the paper's best scale; None where the paper has nothing."""
    paper = section.group.paper
    if paper is None:
        return None
    rows, used = [], list[Number]()
    for place, radius in enumerate(section.radii):
        at = radius.in_people_units(section.group.sizes[0])
        theirs, others = paper.best(at), paper.others(at)
        if theirs is None and not others:
            continue
        entry = section.best_at(place)
        used += [*paper.at(at), *others]
        rows.append(
            (
                Cell(radius.shown),
                _ours(entry, place, named=len(section.entries) > 1),
                NONE if theirs is None else Cell(theirs.shown, _where(theirs, paper.at(at))),
                NONE if theirs is None else Cell(_difference(entry, place, theirs)),
                Cell("; ".join(f"{number.method} {number.shown}" for number in others) or "–"),
            )
        )
    if not rows:
        return None
    ours = "ours, best run" if len(section.entries) > 1 else "ours"
    return Table(
        title=f"Beside the published numbers: {section.group.title}",
        align="lrrrl",
        columns=("radius", ours, "paper, best scale", "difference", "other methods"),
        rows=tuple(rows),
        notes=(*_settings(section.group, paper), *explained(used)),
    )


def same_scale_table(section: Section) -> Table | None:
    """Each run against the paper's row of the same noise, where it has one."""
    group, paper = section.group, section.group.paper
    if paper is None:
        return None
    rows, used = list[tuple[Cell, ...]](), list[Number]()
    for entry in section.entries:
        name = Cell(entry.member.name, entry.member.short_noise)
        numbers = same_scale(entry.member, paper)
        for place, radius in enumerate(section.radii):
            at = radius.in_people_units(group.sizes[0])
            for number in (n for n in numbers if n.is_at(at)):
                if number.accuracy or entry.summary.certified[place]:
                    used.append(number)
                    ours, difference = _ours(entry, place), _difference(entry, place, number)
                    cells = (Cell(radius.shown), ours, Cell(number.shown), Cell(difference))
                    rows.append((name, *cells))
        for number in (n for n in numbers if n.average is not None):
            used.append(number)
            rows.append((name, *_averages(entry, group, number)))
    if not rows:
        return None
    return Table(
        title=f"At the same noise scale: {group.title}",
        align="llrrr",
        columns=("run", "radius", "ours", "paper, same scale", "difference"),
        rows=tuple(rows),
        notes=(*([] if best_table(section) else _settings(group, paper)), *explained(used)),
    )


def _averages(entry: Entry, group: Group, number: Number) -> tuple[Cell, ...]:
    unit, theirs = group.blocks[0].unit, number.average or Fraction(0)
    ours = entry.summary.averages[0]
    return (
        Cell("average"),
        Cell(shown_down(ours, unit)),
        Cell(shown_down(theirs, unit) + number.dagger),
        Cell(_signed(shown_down(ours - theirs, unit))),
    )


def _ours(entry: Entry, place: int, *, named: bool = False) -> Cell:
    count, total = entry.summary.certified[place], entry.summary.total
    detail = f"{count:,}/{total:,}" + (f", {entry.member.name}" if named and count else "")
    return Cell(share(count, total), detail)


def _difference(entry: Entry, place: int, number: Number) -> str:
    """In percentage points, rounded down."""
    ours = Fraction(100 * entry.summary.certified[place], entry.summary.total)
    return _signed(format_down(ours - (number.accuracy or 0), 1))


def _signed(number: str) -> str:
    return number.replace("-", "−") if number.startswith("-") else f"+{number}"


def _where(number: Number, rivals: list[Number]) -> str:
    """Where a number stands, and which better ones were passed over as impossible."""
    where = number.region or "main table"
    if number.scale_shown:
        where = f"scale {number.scale_shown}"
    better = [r for r in rivals if r.misprint and (r.accuracy or 0) > (number.accuracy or 0)]
    return "; ".join([where, *(f"not {r.shown} at scale {r.scale_shown}" for r in better)])


def _settings(group: Group, paper: Paper) -> list[str]:
    notes = [
        f"The paper certified {SETTINGS[paper.dataset]}. Models, images and samples differ from "
        "ours, so the difference compares results, not methods. Differences are in percentage "
        "points; the best over scales is chosen on the test images, by the paper as here."
    ]
    size = SIZES[paper.dataset]
    block = group.block
    if block is not None and block.unit is Unit.LENGTH and group.sizes != (size,):
        ours = ", ".join(f"{height} x {width}" for height, width in group.sizes[:3])
        notes.append(
            f"The paper's images have {size[0]} x {size[1]} pixels, ours {ours}: a pixel is not "
            "the same length on both."
        )
    return notes
