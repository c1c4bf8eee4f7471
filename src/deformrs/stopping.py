"""Queries of a certificate, and stopping rules: sample until every query is decided.

A rule decides how many samples are drawn and nothing else. The certificate is computed from their
counts by a bound that is valid at any stopping time (docs/theory.md, section 4). Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from deformrs.certificate import Bound, Certificate
from deformrs.checks import check_alpha, check_integer, is_real
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import NoiseLaw
from deformrs.regions import Patch, Region, Scale, parse_factors
from deformrs.rounding import array_up, complement_up, round_up
from deformrs.space import Space
from deformrs.statistics import sequential
from deformrs.statistics.bounds import last_safe
from deformrs.statistics.sequential import half, hits_needed, last_lowers
from deformrs.units import Unit, parse_quantity

if TYPE_CHECKING:
    from deformrs.runs import Result

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A look makes the device wait, and a late one costs samples. These are 57 looks up to 100,000; 23
# looks, each half as many again, take 7 % more samples for four radii (simulated, CIFAR-10).
FIRST_LOOK, GROWTH = 16, 1.17

GIVEN_UP = 0.05
"""An image is given up once a query would be certified with at most this probability.

This loses certificates that were unlikely anyway, never makes false ones, and saves a tenth to a
third of the samples (simulated from CIFAR-10 and MNIST counts).
"""


def looks(n: int) -> tuple[int, ...]:
    """Return the sample sizes at which to look, each about 17 % above the last, up to n.

    >>> looks(30)
    (16, 19, 22, 26, 30)
    """
    check_integer("n", n, least=1)
    ends, end = [], FIRST_LOOK
    while end < n:
        ends.append(end)
        end = max(end + 1, round(end * GROWTH))
    return (*ends, int(n))


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

    def check_attainable(self, best: Certificate) -> None:
        """Raise unless a certificate from samples that all agree holds for every query."""
        self.check(best.space)
        noise = f"{best.law.describe(best.space)} with n = {best.counts.n:,}"
        for radius in self.radii:
            if parse_radius(radius, best.space) > best.radius:
                raise InputError(
                    "the radius",
                    radius,
                    f"cannot be certified by {noise}, even if all samples agree",
                    f"at most {_shown(best)}; use more noise or more samples",
                )
        for given, region in zip(self.regions, self._regions, strict=True):
            if not best.covers_region(region):
                limit = f"at most a radius of {_shown(best)}; " if len(best.radii) == 1 else ""
                raise InputError(
                    "the region",
                    given,
                    f"cannot be certified by {noise}, even if all samples agree",
                    f"{limit}use more noise, more samples or a smaller region",
                )
        if self.tolerance is not None and parse_radius(self.tolerance, best.space) >= best.radius:
            raise InputError(
                "the tolerance",
                self.tolerance,
                f"must be below the largest radius that {noise} can certify, {_shown(best)}",
                "stop at a smaller gain, or request radii",
            )

    def rule(
        self, law: NoiseLaw, space: Space, alpha: float, n: int, *, last_look: bool = True
    ) -> Rule:
        """Return the stopping rule for images of one size, with at most n samples each.

        `last_look` says that the bound is sharp at n, like that of `capped_method(n)`.
        """
        law.check(space)
        check_alpha(alpha, below=0.5)
        check_integer("n", n, least=1)
        self.check(space)
        thresholds = self.thresholds(law, space)
        gain = None if self.tolerance is None else parse_radius(self.tolerance, space)
        return Rule(thresholds, gain, law, space, float(alpha), int(n), last_look)

    def thresholds(self, law: NoiseLaw, space: Space) -> tuple[float, ...]:
        """Return the lower bounds on p_A from which on the radii and regions are certified."""
        tests = [_reaches(law, space, parse_radius(radius, space)) for radius in self.radii]
        tests += [_covers(law, space, region) for region in self._regions]
        return tuple(sorted({t for test in tests if (t := _threshold(test)) is not None}))

    @cached_property
    def _regions(self) -> tuple[Region | Patch, ...]:
        return tuple(Region.parse(r) if isinstance(r, str) else r for r in self.regions)


@dataclass(frozen=True)
class Rule:
    """Decides which images need no more samples. Made by `Stopping.rule`.

    `thresholds` are the lower bounds on p_A from which on each query is certified; a query that no
    bound can certify is decided from the start and has none.
    """

    thresholds: tuple[float, ...]
    tolerance: float | None
    law: NoiseLaw
    space: Space
    alpha: float
    n: int
    last_look: bool = True

    @property
    def looks(self) -> tuple[int, ...]:
        """The sample sizes at which to ask the rule."""
        return looks(self.n)

    def decided(self, hits: Integers, trials: Integers) -> NDArray[np.bool_]:
        """Return where every query is decided and the tolerance met. hits, trials: [k] -> [k]

        A query is decided where the any-time bound certifies it, and where it is given up: the
        opposite bound excludes it (wrongly with probability at most GIVEN_UP over all looks), or
        the remaining samples are unlikely to certify it. At n, everything is decided.

        Guarantee: what is decided as certified is certified by `law.certify` on these counts.
        """
        hits, trials = np.asarray(hits), np.asarray(trials)
        sequential.check_tallies(hits, trials)
        if (trials > self.n).any():
            raise InputError(
                "the number of trials", trials.max(), f"must not exceed n = {self.n}", "stop there"
            )
        # Many images share their counts, most of all after few samples.
        (hits, trials), back = np.unique(np.stack([hits, trials]), axis=1, return_inverse=True)
        done = np.ones(len(hits), dtype=bool)
        for p in self.thresholds:
            done[done] = self._decided(hits[done], trials[done], p)
        if self.tolerance is not None:
            done[done] = self._gains(hits[done], trials[done]) < self.tolerance
        decided: NDArray[np.bool_] = (done | (trials == self.n))[back.reshape(-1)]
        return decided

    def _decided(self, hits: Integers, trials: Integers, p: float) -> NDArray[np.bool_]:
        """Return where p_A >= p is certified, excluded, or too unlikely to be certified by n."""
        certified = sequential.reaches(hits, trials, self._level, p)
        excluded = sequential.reaches(trials - hits, trials, GIVEN_UP, complement_up(p))
        decided = certified | excluded
        left = ~decided
        decided[left] = ~self._hopeful(hits[left], trials[left], p)
        return decided

    def _hopeful(self, hits: Integers, trials: Integers, p: float) -> NDArray[np.bool_]:
        """Return where the remaining samples may still certify p_A >= p."""
        if not self.last_look:
            return sequential.may_reach(hits, trials, self._level, p, self.n)
        # The most hits that the counts make plausible. The last look is the sharpest.
        upper = sequential.anytime_uppers(hits, trials, GIVEN_UP)
        to_come = self.n - trials
        lucky = to_come * upper - ndtri(GIVEN_UP) * np.sqrt(to_come * upper * (1 - upper))
        most: Floats = hits + np.minimum(lucky + 1, to_come)
        return most >= hits_needed(p, self.alpha, self.n)

    @property
    def _level(self) -> float:
        """The level of the any-time bound."""
        return half(self.alpha) if self.last_look else self.alpha

    def _gains(self, hits: Integers, trials: Integers) -> Floats:
        """Return an upper bound on what more samples can add to the radius."""
        lowers = sequential.anytime_lowers(hits, trials, self._level)
        uppers = sequential.anytime_uppers(hits, trials, self.alpha)
        final = np.full_like(trials, self.n)
        hopeful = hits + final - trials
        if self.last_look:
            bests = last_lowers(hopeful, self.n, self.alpha)
        else:
            bests = sequential.anytime_lowers(hopeful, final, self.alpha)
        return self._radii(np.minimum(uppers, array_up(bests))) - self._radii(lowers)

    def _radii(self, lowers: Floats) -> Floats:
        """Return the radius that each lower bound certifies; 0 where it abstains."""
        bounds = [Bound(p, complement_up(p)) for p in lowers.tolist()]
        radii = (self.law.radii(b, self.space)[0] if b.decides else 0.0 for b in bounds)
        return np.fromiter(radii, dtype=np.float64, count=len(bounds))


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
