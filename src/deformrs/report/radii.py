"""The radii at which a table is made: as people type them, or chosen for them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from deformrs.checks import is_real
from deformrs.errors import InputError
from deformrs.report.groups import Group, lookup
from deformrs.report.people import reach
from deformrs.runs import Result, StoredRun
from deformrs.space import Block
from deformrs.units import Size, Unit, parse_quantity

_SUFFIXES = {Unit.ANGLE: "deg", Unit.LENGTH: "px", Unit.FRACTION: "%", Unit.COEFFICIENT: ""}
_EXAMPLES = {
    Unit.ANGLE: "10deg",
    Unit.LENGTH: "5px",
    Unit.FRACTION: "20%",
    Unit.COEFFICIENT: "0.1",
}
_HANDFUL = 6


@dataclass(frozen=True)
class Radius:
    """A radius as it was typed: `10deg`, `5px`, `20%`, `0.065`.

    >>> from deformrs.space import Block
    >>> Radius("5px", Block("translation", 2, Unit.LENGTH)).shown
    '5 px'
    """

    text: str
    block: Block

    def value(self, size: Size) -> float:
        """In the package's own unit, on images of that size."""
        return self.block.reach(parse_quantity(self.text, self.block.unit, size))

    def in_people_units(self, size: Size) -> Fraction:
        """In degrees, pixels or per cent; exactly as typed where it was typed so."""
        suffix = _SUFFIXES[self.block.unit]
        number = self.text.replace("°", "deg").removesuffix(suffix).strip()
        if suffix and number != self.text.replace("°", "deg").strip():
            return Fraction(number)
        return Fraction(self.value(size) * self.block.unit.factor(size)).limit_denominator(10**9)

    @property
    def shown(self) -> str:
        """As typed, with the sign people write."""
        text = " ".join(self.text.split())
        text = re.sub(r"\s*deg$", "°", text)
        return re.sub(r"\s*(px|%|rad)$", r" \1", text)

    def settled_by(self, run: StoredRun) -> bool:
        """Was it settled, or sampled for? Not where sampling stopped when other radii were."""
        if "stopping" not in run.config:
            return True
        if lookup(run.config, "stopping", "tolerance") is not None:
            return True
        listed = lookup(run.config, "stopping", "radii")
        asked = listed if isinstance(listed, list) else []
        size = run.results[0].certificate.space.size
        values = [Radius(text, self.block).value(size) for text in asked if isinstance(text, str)]
        values += [self.block.reach(r) for r in asked if isinstance(r, int | float)]
        return any(math.isclose(value, self.value(size), abs_tol=1e-12) for value in values)

    def holds(self, result: Result) -> bool:
        """Return whether the prediction is correct and certified at this radius."""
        return result.holds(self.value(result.certificate.space.size))


def radii_of(groups: Sequence[Group], texts: Sequence[str]) -> list[tuple[Radius, ...]]:
    """For each group the radii that are of its unit, or a choice of its own if none are asked.

    A text that fits none of the groups is an error.
    """
    chosen = [_fitting(group, texts) for group in groups]
    used = {radius.text for radii in chosen for radius in radii}
    for text in texts:
        if text not in used:
            examples = {f"{_EXAMPLES[g.block.unit]} ({g.family})": 0 for g in groups if g.block}
            raise InputError(
                "the radius",
                repr(text),
                "must be at least 0 and in the unit of one of the runs",
                "e.g. " + ", ".join(examples) if examples else "ask a composition for a region",
            )
    return [
        _distinct(radii, group) if texts else default_radii(group)
        for radii, group in zip(chosen, groups, strict=True)
    ]


def default_radii(group: Group) -> tuple[Radius, ...]:
    """The paper's radii where it has a table, and round numbers up to the largest one certified.

    Where sampling stopped when some radii were settled: these.
    """
    block = group.block
    if block is None:
        return ()
    asked = [lookup(member.run.config, "stopping", "radii") for member in group.members]
    texts = [text for radii in asked if isinstance(radii, list) for text in radii]
    settled = _fitting(group, [text for text in texts if isinstance(text, str)])
    if settled:
        return _distinct(settled, group)
    largest = max(
        reach(block, result.certificate.radius, result.certificate.space.size)
        for member in group.members
        for result in member.results
    )
    paper = [] if group.paper is None else [r for r in group.paper.radii if r <= largest]
    numbers = {Fraction(0), *paper}
    if len(numbers) < _HANDFUL - 1:
        numbers |= set(_round_numbers(largest, block.unit))
    suffix = _SUFFIXES[block.unit]
    return tuple(Radius(f"{float(number):.10g}{suffix}", block) for number in sorted(numbers))


def _fitting(group: Group, texts: Sequence[str]) -> tuple[Radius, ...]:
    """Those of the texts that can be read as a radius of this group's unit."""
    if group.block is None:
        return ()
    found = []
    for text in texts:
        try:
            value = parse_quantity(text, group.block.unit, group.sizes[0])
        except InputError:
            continue  # it may fit another group; one that fits none is an error
        if is_real(value) and value >= 0:
            found.append(Radius(text, group.block))
    return tuple(found)


def _distinct(radii: tuple[Radius, ...], group: Group) -> tuple[Radius, ...]:
    by_value = {radius.value(group.sizes[0]): radius for radius in reversed(radii)}
    return tuple(by_value[value] for value in sorted(by_value))


def _round_numbers(largest: Fraction, unit: Unit) -> list[Fraction]:
    """At most a handful of multiples of a round number, none above `largest`.

    >>> [float(number) for number in _round_numbers(Fraction("29.9"), Unit.ANGLE)]
    [5.0, 10.0, 15.0, 20.0, 25.0]
    """
    if largest <= 0:
        return []
    power = Fraction(10) ** (math.floor(math.log10(largest)) - 1)
    steps = [power * factor for factor in (1, 2, 5, 10, 20, 50)]
    if unit is Unit.ANGLE and largest > 60:
        steps = [Fraction(15), Fraction(30), Fraction(45)]
    step = next(step for step in steps if largest / step < _HANDFUL)
    return [step * k for k in range(1, math.floor(largest / step) + 1)]
