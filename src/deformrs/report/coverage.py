"""How many pictures of a run are right and certified on a whole region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from deformrs.certificate import Bound, Certificate
from deformrs.errors import UnsupportedError
from deformrs.regions import Region, Rotate, ShearBy, Shift, Zoom
from deformrs.regions.factors import Factor
from deformrs.runs import Result
from deformrs.space import Space


@dataclass(frozen=True)
class Covered:
    """The answer for one region and one run: a count, or why there is none."""

    region: str
    count: int | None
    total: int
    reason: str = ""


def covered(results: Sequence[Result], region: Region) -> Covered:
    """Guarantee: counts only pictures that are right and whose certificate covers the region."""
    right = [result.certificate for result in results if result.correct]
    asked: dict[Space, _Verdicts] = {}
    # From the middle outwards most answers follow from ones already known.
    order = _middle_first(sorted(right, key=lambda c: c.bound.lower - c.bound.upper))
    try:
        if not right:
            next(iter(region.shifts(results[0].certificate.space)))
        count = sum(asked.setdefault(c.space, _Verdicts(region)).holds(c) for c in order)
    except UnsupportedError as error:
        return Covered(region_words(region), None, len(results), str(error))
    return Covered(region_words(region), count, len(results))


@dataclass
class _Verdicts:
    """What is known of one region on one space, under one law.

    A bound with more on the candidate and less on the others certifies no less, so that a region
    of many corners need not be worked through for each of ten thousand pictures.
    """

    region: Region
    yes: list[Bound] = field(default_factory=list)
    no: list[Bound] = field(default_factory=list)

    def holds(self, certificate: Certificate) -> bool:
        bound = certificate.bound
        if any(bound.lower >= b.lower and bound.upper <= b.upper for b in self.yes):
            return True
        if any(bound.lower <= b.lower and bound.upper >= b.upper for b in self.no):
            return False
        answer = certificate.covers_region(self.region)
        (self.yes if answer else self.no).append(bound)
        return answer


def _middle_first(certificates: list[Certificate]) -> list[Certificate]:
    """The middle one, then the middles of both halves, and so on."""
    order: list[Certificate] = []
    spans = [(0, len(certificates))]
    for low, high in spans:
        if low < high:
            middle = (low + high) // 2
            order.append(certificates[middle])
            spans += [(low, middle), (middle + 1, high)]
    return order


def region_words(region: Region) -> str:
    """The region as people say it.

    >>> region_words(Region.parse("rotation<=10deg, scale=0.8..1.2, shift<=4px"))
    'rotation up to 10°, then zoom from 0.8 to 1.2, then shift up to 4 px'
    """
    return ", then ".join(_factor(factor) for factor in region.factors)


def _factor(factor: Factor) -> str:
    match factor:
        case Rotate():
            return _range("rotation", math.degrees(factor.low), math.degrees(factor.high), "°")
        case ShearBy():
            return _range("shear", 100 * factor.low, 100 * factor.high, " %")
        case Zoom():
            return f"zoom from {factor.low:.9g} to {factor.high:.9g}"
        case Shift(px=None):
            return f"shift up to {factor.length:.9g} half sides"
        case Shift():
            return f"shift up to {factor.px:.9g} px"
    return repr(factor)


def _range(name: str, low: float, high: float, sign: str) -> str:
    if low == -high:
        return f"{name} up to {high:.9g}{sign}"
    return f"{name} from {low:.9g}{sign} to {high:.9g}{sign}"
