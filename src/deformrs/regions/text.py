"""Regions written as text: "rotation<=10deg, scale=0.8..1.2, shift<=4px"."""

from __future__ import annotations

import difflib
import re

from deformrs.errors import InputError
from deformrs.regions.factors import Factor, Rotate, ShearBy, Shift, Zoom
from deformrs.units import Unit, parse_quantity

_FAMILIES = {
    "rotation": "rotation",
    "rotate": "rotation",
    "scale": "scaling",
    "scaling": "scaling",
    "zoom": "scaling",
    "shift": "translation",
    "translation": "translation",
    "shear": "shear",
}
_ITEM = re.compile(r"\s*(\w+)\s*(<=|=)\s*([^,]+?)\s*")


def parse_factors(text: str) -> tuple[Factor, ...]:
    """The factors of a region, in the order written."""
    if not isinstance(text, str):
        raise InputError("the region", repr(text), "must be text", "e.g. 'rotation<=10deg'")
    return tuple(_factor(item) for item in text.split(","))


def _factor(item: str) -> Factor:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InputError(
            "a part of the region",
            repr(item.strip()),
            "must read name<=limit or name=low..high",
            "e.g. rotation<=10deg or scale=0.8..1.2",
        )
    name, sign, value = match.groups()
    if name not in _FAMILIES:
        near = difflib.get_close_matches(name, _FAMILIES, n=1)
        raise InputError(
            "a transformation",
            repr(name),
            "must be one of " + ", ".join(_FAMILIES),
            f"did you mean {near[0]!r}?" if near else "check the spelling",
        )
    ends = value.split("..") if sign == "=" else [value]
    if len(ends) != (2 if sign == "=" else 1):
        raise InputError(
            "a range", repr(value), "must read low..high after '='", "or use <= for a limit"
        )
    return _build(_FAMILIES[name], sign, ends)


def _build(family: str, sign: str, ends: list[str]) -> Factor:
    if family == "translation":
        if sign == "=":
            raise InputError("a shift", "a range", "is limited by its length", "e.g. shift<=4px")
        # Pixels stay pixels until the size of the picture is known.
        if ends[0].endswith("px"):
            return Shift(px=parse_quantity(ends[0].removesuffix("px"), Unit.COEFFICIENT))
        return Shift(length=parse_quantity(ends[0], Unit.LENGTH))
    unit = Unit.ANGLE if family == "rotation" else Unit.FRACTION
    values = [parse_quantity(end, unit) for end in ends]
    # A limit is a distance from the identity: 0 for angles and shears, 1 for zooms.
    rest = 1.0 if family == "scaling" else 0.0
    low, high = values if sign == "=" else (rest - values[0], rest + values[0])
    if family == "rotation":
        return Rotate(low, high)
    return Zoom(low, high) if family == "scaling" else ShearBy(low, high)
