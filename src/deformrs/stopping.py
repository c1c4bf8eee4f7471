"""Queries of a certificate, and when sampling stops: as soon as all of them are decided.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deformrs.certificate import Bound, Certificate
from deformrs.checks import check_alpha, check_integer, is_real
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import NoiseLaw
from deformrs.noise.law import distance_of
from deformrs.regions import Patch, Region, Scale, parse_factors
from deformrs.rounding import complement_up, round_up
from deformrs.rule import Rule
from deformrs.space import Space
from deformrs.statistics import Method
from deformrs.statistics.bounds import last_safe
from deformrs.units import Unit, parse_quantity

if TYPE_CHECKING:
    from deformrs.runs import Result


@dataclass(frozen=True)
class Stopping:
    """The queries that sampling must decide before it stops. At least one is given.

    Each of `radii` and `regions` is decided as certified or not; with a `tolerance`, sampling stops
    where more samples can raise the radius by less. Text is a quantity such as "10deg" or "5px", a
    number is in the unit of the parameters.

    >>> Stopping(radii=("10deg", "30deg")).to_config()
    {'radii': ['10deg', '30deg'], 'regions': [], 'tolerance': None}
    """

    radii: tuple[float | str, ...] = ()
    regions: tuple[Region | Patch | str, ...] = ()
    tolerance: float | str | None = None

    def __post_init__(self) -> None:
        for name, example in (("radii", '("10deg",)'), ("regions", '("rotation<=10deg",)')):
            values = getattr(self, name)
            # A string is a sequence too: of letters.
            if not isinstance(values, tuple | list):
                raise InputError(name, repr(values), "must be a tuple", f"e.g. {example}")
            object.__setattr__(self, name, tuple(values))
        object.__setattr__(self, "radii", tuple(_quantity("a radius", r) for r in self.radii))
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", _quantity("the tolerance", self.tolerance))
        elif not (self.radii or self.regions):
            raise InputError(
                "the stopping criterion",
                "empty",
                "must have at least one of radii, regions and tolerance",
                'e.g. radii=("10deg",)',
            )
        for region in self.regions:
            if isinstance(region, str):
                Region.parse(region)
            elif not isinstance(region, Region | Patch):
                raise InputError(
                    "a region", repr(region), "must be a Region or text", "e.g. 'rotation<=10deg'"
                )

    def to_config(self) -> Config:
        """Return the criterion as plain values, for a run's configuration."""
        regions = {to_stored_region(region) for region in self.regions}
        return {
            "radii": list[ConfigValue](sorted(set(self.radii), key=str)),
            "regions": list[ConfigValue](sorted(regions)),
            "tolerance": self.tolerance,
        }

    @classmethod
    def from_config(cls, config: Config) -> Stopping:
        """Return the criterion that a run's configuration holds."""
        stored: dict[str, Any] = {"radii": [], "regions": [], "tolerance": None} | config
        regions = tuple(map(from_stored_region, stored["regions"]))
        return cls(tuple(stored["radii"]), regions, stored["tolerance"])

    def check(self, space: Space) -> None:
        """Raise if certificates over this space cannot answer a query."""
        for radius in self.radii:
            parse_radius(radius, space)
        if self.tolerance is not None and parse_radius(self.tolerance, space, "the tolerance") == 0:
            # More samples can always gain a little.
            raise InputError("the tolerance", repr(self.tolerance), "must be positive", "e.g. 1deg")
        for region in self._regions:
            # A region notices that it does not suit the space when it is enclosed.
            next(iter(region.shifts(space)), None)

    def check_attainable(self, best: Certificate, n: int, remedy: str) -> None:
        """Raise unless a certificate from samples that all agree, of at most n, holds for every
        query."""
        self.check(best.space)
        noise = f"{best.law.describe(best.space)} with n = {n:,}"
        for radius in self.radii:
            if parse_radius(radius, best.space) > best.radius:
                raise InputError(
                    "the radius",
                    radius,
                    f"cannot be certified by {noise}, even if all samples agree",
                    f"at most {_shown(best)}; {remedy}",
                )
        for given, region in zip(self.regions, self._regions, strict=True):
            if not best.covers_region(region):
                limit = f"at most a radius of {_shown(best)}; " if len(best.radii) == 1 else ""
                raise InputError(
                    "the region",
                    given,
                    f"cannot be certified by {noise}, even if all samples agree",
                    f"{limit}{remedy}, or request a smaller region",
                )
        if self.tolerance is not None and parse_radius(self.tolerance, best.space) >= best.radius:
            raise InputError(
                "the tolerance",
                self.tolerance,
                f"must be below the largest radius that {noise} can certify, {_shown(best)}",
                "stop at a smaller gain, or request radii",
            )

    def rule(self, law: NoiseLaw, space: Space, alpha: float, n: int, method: Method) -> Rule:
        """Return the stopping rule for images of one size, with at most n samples each."""
        law.check(space)
        check_alpha(alpha, below=0.5)
        check_integer("n", n, least=1)
        self.check(space)
        gain = None if self.tolerance is None else parse_radius(self.tolerance, space)
        radii = {parse_radius(radius, space) for radius in self.radii}
        regions = [distance_of(law, region, space) for region in self._regions]
        return Rule(
            tuple(r for r in sorted(radii) if _threshold(_reaches(law, space, r)) is not None),
            tuple(r for r in regions if r.within(1.0, 0.0).all()),
            gain,
            law,
            space,
            float(alpha),
            int(n),
            method,
        )

    def thresholds(self, law: NoiseLaw, space: Space) -> tuple[float, ...]:
        """Return the lower bounds on p_A from which on the radii and regions are certified."""
        tests = [_reaches(law, space, parse_radius(radius, space)) for radius in self.radii]
        tests += [_covers(law, space, region) for region in self._regions]
        return tuple(sorted({t for test in tests if (t := _threshold(test)) is not None}))

    @cached_property
    def _regions(self) -> tuple[Region | Patch, ...]:
        return tuple(Region.parse(r) if isinstance(r, str) else r for r in self.regions)


def _shown(best: Certificate) -> str:
    """Return the certified radius in its unit, rounded down."""
    block = best.space.blocks[0]
    if block.is_whole(best.radius) and block.unit is Unit.ANGLE:
        return "180°"
    return block.unit.show_down(best.radius, best.space.size)


def to_stored_region(region: Region | Patch | str) -> str:
    """Return a region as it is stored in a run, where "zoom" is the former name of scale.

    >>> to_stored_region("zoom=1..2, shift<=4px")
    'scale=0.5..1.0, shift<=4px'
    """
    if not isinstance(region, str):
        return repr(region).replace("Scale(", "Zoom(")
    items = region.split(",")
    for place, (item, factor) in enumerate(zip(items, parse_factors(region), strict=True)):
        if isinstance(factor, Scale) and "zoom" in item:
            items[place] = f"scale={factor.low!r}..{factor.high!r}"
    return ",".join(items)


def from_stored_region(text: str) -> str:
    """Return the text of a stored region in the words that `Region.parse` takes."""
    return text.replace("zoom", "scale").replace("Zoom(", "Scale(")


def _reaches(law: NoiseLaw, space: Space, radius: float) -> Callable[[Bound], bool]:
    return lambda bound: law.radii(bound, space)[0] >= radius


def _covers(law: NoiseLaw, space: Space, region: Region | Patch) -> Callable[[Bound], bool]:
    return lambda bound: law.covers_region(region, bound, space)


def _threshold(holds: Callable[[Bound], bool]) -> float | None:
    """Return the least lower bound that is enough, rounded up; None if no bound is."""

    def enough(p: float) -> bool:
        bound = Bound(p, complement_up(p))
        return bound.decides and holds(bound)

    if not enough(1.0):
        return None
    # Rounded up, so that rounding inside `holds` cannot turn a yes into a no further on.
    p = round_up(last_safe(enough, safe=1.0, unsafe=0.5))
    return p if p < 1 else None


def _quantity(name: str, value: object) -> float | str:
    """Return a quantity as it was given: text with a unit, or a number of at least 0."""
    if isinstance(value, str):
        return value
    if not is_real(value) or value < 0:  # type: ignore[operator]
        raise InputError(name, repr(value), "must be a quantity of at least 0", "e.g. '10deg'")
    return float(value)  # type: ignore[arg-type]


def parse_radius(value: float | str, space: Space, name: str = "the radius") -> float:
    """Return a radius in the unit of the parameters, at most half a period.

    >>> from deformrs import Translation
    >>> parse_radius("7px", Translation().space((28, 28)))
    0.5
    """
    if len(space.blocks) != 1:
        raise UnsupportedError(
            name,
            f"{value!r}, for {', '.join(block.family for block in space.blocks)} together",
            "is one number only for one family",
            "ask for a region, e.g. 'rotation<=10deg, scale=0.8..1.2'",
        )
    block = space.blocks[0]
    radius = parse_quantity(value, block.unit, space.size) if isinstance(value, str) else value
    if not (is_real(radius) and radius >= 0):
        raise InputError(name, repr(value), "must be finite and not negative", "e.g. 10deg")
    return block.reach(radius)


@dataclass(frozen=True)
class RadiusQuery:
    """Whether the prediction is correct and certified up to a radius: 10deg, 5px or 20%."""

    text: str

    @property
    def words(self) -> str:
        """The query as a phrase: `up to 10deg`."""
        return f"up to {self.text}"

    def check(self, space: Space) -> None:
        """Raise if certificates over this space cannot answer the query."""
        parse_radius(self.text, space)

    def holds(self, result: Result) -> bool:
        """Return whether a result is correct and certified up to the radius."""
        return result.holds(parse_radius(self.text, result.certificate.space))


@dataclass(frozen=True)
class RegionQuery:
    """Whether the prediction is correct and certified for every transformation of a region."""

    text: str
    region: Region

    @property
    def words(self) -> str:
        """The query as a phrase: `for rotation<=10deg`."""
        return f"for {self.text}"

    def check(self, space: Space) -> None:
        """Raise if certificates over this space cannot answer the query."""
        next(iter(self.region.shifts(space)), None)

    def holds(self, result: Result) -> bool:
        """Return whether a result is correct and certified for the whole region."""
        return result.correct and result.certificate.covers_region(self.region)


Query = RadiusQuery | RegionQuery


def parse_queries(radii: Sequence[str], regions: Sequence[str]) -> list[Query]:
    """Return the queries of a command line."""
    return [
        *(RadiusQuery(text) for text in radii),
        *(RegionQuery(text, Region.parse(text)) for text in regions),
    ]
