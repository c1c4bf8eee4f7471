"""When to stop sampling an image: as soon as what is asked of it is settled. Needs no torch.

A rule decides how many samples are drawn and nothing else. The certificate is computed from their
counts by a bound that holds whenever one stops (docs/theory.md, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from deformrs.certificate import Bound
from deformrs.checks import check_alpha, check_integer, is_real
from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import NoiseLaw
from deformrs.regions import Patch, Region
from deformrs.rounding import array_up, complement_up, round_up
from deformrs.runs import Result
from deformrs.space import Space
from deformrs.statistics import sequential
from deformrs.statistics.search import last_safe
from deformrs.statistics.sequential import half, hits_needed, last_lowers
from deformrs.units import parse_quantity

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# A look costs a wait for the device, a late one samples. These are 57 looks up to 100,000; growing
# by half each time is 23, and takes 7 % more samples for four radii (simulated, CIFAR-10).
FIRST_LOOK, GROWTH = 16, 1.17

GIVEN_UP = 0.05
"""How unlikely it must be that a question would be answered yes, for an image to be given up.

It costs certificates that were hardly to be had, never false ones, and saves a tenth to a third of
the samples (simulated, from CIFAR-10 and MNIST counts).
"""


def looks(n: int) -> tuple[int, ...]:
    """Numbers of samples after which to look, each some 17 % above the last, up to n.

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
    """What sampling is for, so that it can stop when that is done. At least one is given.

    Each of `radii` and `regions` is to be settled as certified or not; with a `tolerance`, until
    more samples can raise the radius by less than that. A text is a quantity such as "10deg" or
    "5px", a number is in the unit of the parameters.

    >>> Stopping(radii=("10deg", "30deg")).to_config()
    {'radii': ['10deg', '30deg'], 'regions': [], 'tolerance': None}
    """

    radii: tuple[float | str, ...] = ()
    regions: tuple[Region | Patch | str, ...] = ()
    tolerance: float | str | None = None

    def __post_init__(self) -> None:
        for name, example in (("radii", '("10deg",)'), ("regions", '("rotation<=10deg",)')):
            values = getattr(self, name)
            # A text is a sequence too: of letters.
            if not isinstance(values, tuple | list):
                raise InputError(name, repr(values), "must be a tuple", f"e.g. {example}")
            object.__setattr__(self, name, tuple(values))
        object.__setattr__(self, "radii", tuple(_plain("a radius", r) for r in self.radii))
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", _plain("the tolerance", self.tolerance))
        elif not (self.radii or self.regions):
            raise InputError(
                "what sampling shall settle",
                "nothing",
                "must be at least one of radii, regions and tolerance",
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
        """Plain values that say what is asked, for a run's configuration."""
        regions = {r if isinstance(r, str) else repr(r) for r in self.regions}
        return {
            "radii": list[ConfigValue](sorted(set(self.radii), key=str)),
            "regions": list[ConfigValue](sorted(regions)),
            "tolerance": self.tolerance,
        }

    def check(self, space: Space) -> None:
        """Raise if this cannot be asked of certificates over that space."""
        for radius in self.radii:
            _quantity("the radius", radius, space)
        if self.tolerance is not None and _quantity("the tolerance", self.tolerance, space) == 0:
            # More samples can always gain a little.
            raise InputError("the tolerance", repr(self.tolerance), "must be positive", "e.g. 1deg")
        for region in self._regions:
            # Enclosing it is where a region finds that it does not suit the space.
            next(iter(region.shifts(space)), None)

    def rule(
        self, law: NoiseLaw, space: Space, alpha: float, n: int, *, last_look: bool = True
    ) -> Rule:
        """The rule for images of one size, of at most n samples each.

        `last_look` says that the bound is sharp at n, as that of `capped_method(n)` is.
        """
        law.check(space)
        check_alpha(alpha, below=0.5)
        check_integer("n", n, least=1)
        self.check(space)
        asked = [_quantity("the radius", radius, space) for radius in self.radii]
        tests = [_reaches(law, space, radius) for radius in asked]
        tests += [_covers(law, space, region) for region in self._regions]
        found = {threshold for test in tests if (threshold := _threshold(test)) is not None}
        gain = None if self.tolerance is None else _quantity("the tolerance", self.tolerance, space)
        return Rule(tuple(sorted(found)), gain, law, space, float(alpha), int(n), last_look)

    @cached_property
    def _regions(self) -> tuple[Region | Patch, ...]:
        return tuple(Region.parse(r) if isinstance(r, str) else r for r in self.regions)


@dataclass(frozen=True)
class Rule:
    """Who needs no more samples. Made by `Stopping.rule`.

    `thresholds` are the probabilities from which on each question is answered yes; one that
    cannot be answered yes at all is settled and not among them.
    """

    thresholds: tuple[float, ...]
    tolerance: float | None
    law: NoiseLaw
    space: Space
    alpha: float
    n: int
    last_look: bool = True

    def settled(self, hits: Whole, trials: Whole) -> NDArray[np.bool_]:
        """Where every question is settled, and the tolerance met. hits, trials: [k] -> [k]

        A question is settled where the any-time bound certifies it, and where it is given up: the
        opposite bound excludes it (wrongly with probability at most GIVEN_UP, in all looks
        together), or the samples left will hardly certify it. From n on, everything is.

        Guarantee: what is settled as certified is certified by `law.certify` on these counts.
        """
        hits, trials = np.asarray(hits), np.asarray(trials)
        sequential.check_tallies(hits, trials)
        if (trials > self.n).any():
            raise InputError(
                "the number of trials", trials.max(), f"must not exceed n = {self.n}", "stop there"
            )
        # Many images share their counts, the more so the fewer samples they have.
        (hits, trials), back = np.unique(np.stack([hits, trials]), axis=1, return_inverse=True)
        done = np.ones(len(hits), dtype=bool)
        for p in self.thresholds:
            done[done] = self._answered(hits[done], trials[done], p)
        if self.tolerance is not None:
            done[done] = self._gains(hits[done], trials[done]) < self.tolerance
        settled: NDArray[np.bool_] = (done | (trials == self.n))[back.reshape(-1)]
        return settled

    def _answered(self, hits: Whole, trials: Whole, p: float) -> NDArray[np.bool_]:
        """Is it known whether the probability is at least p, or too late to show it?"""
        certified = sequential.reaches(hits, trials, self._level, p)
        excluded = sequential.reaches(trials - hits, trials, GIVEN_UP, complement_up(p))
        answered = certified | excluded
        left = ~answered
        answered[left] = ~self._hopeful(hits[left], trials[left], p)
        return answered

    def _hopeful(self, hits: Whole, trials: Whole, p: float) -> NDArray[np.bool_]:
        """May the samples left show that the probability is at least p?"""
        if not self.last_look:
            return sequential.may_reach(hits, trials, self._level, p, self.n)
        # As many hits as the counts and good luck allow. The last look is the sharpest.
        upper = sequential.anytime_uppers(hits, trials, GIVEN_UP)
        to_come = self.n - trials
        lucky = to_come * upper - ndtri(GIVEN_UP) * np.sqrt(to_come * upper * (1 - upper))
        most: Floats = hits + np.minimum(lucky + 1, to_come)
        return most >= hits_needed(p, self.alpha, self.n)

    @property
    def _level(self) -> float:
        """What the any-time bound may err."""
        return half(self.alpha) if self.last_look else self.alpha

    def _gains(self, hits: Whole, trials: Whole) -> Floats:
        """By how much more samples can raise the radius, at most."""
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
        """The radius that each bound certifies; 0 where it abstains."""
        bounds = [Bound(p, complement_up(p)) for p in lowers.tolist()]
        radii = (self.law.radii(b, self.space)[0] if b.decides else 0.0 for b in bounds)
        return np.fromiter(radii, dtype=np.float64, count=len(bounds))


def _reaches(law: NoiseLaw, space: Space, radius: float) -> Callable[[Bound], bool]:
    return lambda bound: law.radii(bound, space)[0] >= radius


def _covers(law: NoiseLaw, space: Space, region: Region | Patch) -> Callable[[Bound], bool]:
    return lambda bound: law.covers_region(region, bound, space)


def _threshold(holds: Callable[[Bound], bool]) -> float | None:
    """The least probability from which on a bound is enough, rounded up; None if none is."""

    def enough(p: float) -> bool:
        bound = Bound(p, complement_up(p))
        return bound.decides and holds(bound)

    if not enough(1.0):
        return None
    # Above, so that rounding inside `holds` cannot turn a yes into a no further on.
    p = round_up(last_safe(enough, safe=1.0, unsafe=0.5))
    return p if p < 1 else None


def _plain(name: str, value: object) -> float | str:
    if isinstance(value, str):
        return value
    if not is_real(value) or value < 0:  # type: ignore[operator]
        raise InputError(name, repr(value), "must be a quantity of at least 0", "e.g. '10deg'")
    return float(value)  # type: ignore[arg-type]


def _quantity(name: str, value: float | str, space: Space) -> float:
    """In the unit of the parameters, on images of that size."""
    if len(space.blocks) != 1:
        raise UnsupportedError(
            name,
            f"{value!r}, asked of {', '.join(block.family for block in space.blocks)} together",
            "is one number only for one family",
            "ask for a region, e.g. 'rotation<=10deg, scale=0.8..1.2'",
        )
    block = space.blocks[0]
    if not isinstance(value, str):
        return block.reach(value)
    quantity = parse_quantity(value, block.unit, space.size)
    if not (is_real(quantity) and quantity >= 0):
        raise InputError(name, repr(value), "must be finite and not negative", "e.g. 10deg")
    return block.reach(quantity)


@dataclass(frozen=True)
class RadiusQuery:
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
class RegionQuery:
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


Query = RadiusQuery | RegionQuery


def parse_queries(radii: Sequence[str], regions: Sequence[str]) -> list[Query]:
    """The questions that people typed."""
    return [
        *(RadiusQuery(text) for text in radii),
        *(RegionQuery(text, Region.parse(text)) for text in regions),
    ]
