"""How many images of a run are right and certified on a whole region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deformrs.errors import UnsupportedError
from deformrs.regions import Factor, Region, Rotate, ShearBy, Shift, Zoom
from deformrs.runs import Result


@dataclass(frozen=True)
class Covered:
    """The answer for one region and one run: a count, or why there is none."""

    region: str
    count: int | None
    total: int
    reason: str = ""


def covered(results: Sequence[Result], region: Region) -> Covered:
    """Guarantee: counts only images that are right and whose certificate covers the region."""
    try:
        # All are asked, also those that are wrong: one suffices to see that it cannot be asked.
        count = sum(r.certificate.covers_region(region) and r.correct for r in results)
    except UnsupportedError as error:
        return Covered(region_words(region), None, len(results), str(error))
    return Covered(region_words(region), count, len(results))


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
