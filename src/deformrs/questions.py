"""What people ask of a certificate: a radius, or a region of transformations. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deformrs.errors import InputError, UnsupportedError
from deformrs.regions import Region
from deformrs.runs import Result
from deformrs.space import Space
from deformrs.units import parse_quantity


@dataclass(frozen=True)
class RadiusAsked:
    """Does it hold up to this radius? `text` is a quantity such as 10deg, 5px or 20%."""

    text: str

    @property
    def words(self) -> str:
        return f"up to {self.text}"

    def check(self, space: Space) -> None:
        """Raise if it cannot be asked of certificates over that space."""
        if len(space.blocks) != 1:
            families = ", ".join(block.family for block in space.blocks)
            raise UnsupportedError(
                "the radius",
                f"{self.text!r}, asked of {families} together",
                "is one number only for one family",
                "ask for a region, e.g. 'rotation<=10deg, scale=0.8..1.2'",
            )
        if parse_quantity(self.text, space.blocks[0].unit, space.size) < 0:
            raise InputError("the radius", repr(self.text), "must not be negative", "e.g. 10deg")

    def holds(self, result: Result) -> bool:
        """Right, and certified that far?"""
        space = result.certificate.space
        block = space.blocks[0]
        return result.holds(block.reach(parse_quantity(self.text, block.unit, space.size)))


@dataclass(frozen=True)
class RegionAsked:
    """Does it hold for every transformation of a region?"""

    text: str
    region: Region

    @property
    def words(self) -> str:
        return f"for {self.text}"

    def check(self, space: Space) -> None:
        """Raise if it cannot be asked of certificates over that space."""
        for _ in self.region.shifts(space):
            return

    def holds(self, result: Result) -> bool:
        """Right, and certified for all of it?"""
        return result.correct and result.certificate.covers_region(self.region)


Question = RadiusAsked | RegionAsked


def questions(radii: Sequence[str], regions: Sequence[str]) -> list[Question]:
    """The questions that people typed."""
    return [
        *(RadiusAsked(text) for text in radii),
        *(RegionAsked(text, Region.parse(text)) for text in regions),
    ]
