"""Class counts, probability bounds and certificates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import check_integer, is_real
from deformrs.errors import InputError, UnsupportedError
from deformrs.rounding import format_alpha, format_down
from deformrs.space import Shift, Space
from deformrs.units import scaled_size


@dataclass(frozen=True)
class PairedCounts:
    """Predictions under stratified noise, of which every stratum gets two: a pair.

    `classes` says how often each class was predicted, `disagreements` in how many pairs it was
    exactly one of the two.

    >>> PairedCounts(classes=(5, 1), disagreements=(1, 1)).n
    6
    """

    classes: tuple[int, ...]
    disagreements: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_counts("the predictions of pairs", self.classes)
        _check_counts("the disagreements", self.disagreements)
        if not self._are_possible():
            raise InputError(
                "the counts of pairs",
                f"{self.classes} with disagreements {self.disagreements}",
                "must be possible for pairs of predictions",
                "count both predictions of every pair",
            )
        if self.n % 2 or not self.n:
            raise InputError(
                "the number of paired predictions", self.n, "must be even and positive", "e.g. 256"
            )

    def _are_possible(self) -> bool:
        n, unequal = self.n, self.disagreements
        if len(self.classes) != len(unequal):
            return False
        # A class in both predictions of a pair is counted twice.
        each = all(
            differing <= min(count, n - count) and (count - differing) % 2 == 0
            for count, differing in zip(self.classes, unequal, strict=True)
        )
        # A pair that disagrees is of exactly two classes.
        return each and sum(unequal) % 2 == 0 and 2 * max(unequal) <= sum(unequal)

    def __add__(self, other: PairedCounts) -> PairedCounts:
        return PairedCounts(
            _sums(self.classes, other.classes), _sums(self.disagreements, other.disagreements)
        )

    @property
    def n(self) -> int:
        """The number of predictions, twice that of the pairs."""
        return sum(self.classes)


@dataclass(frozen=True)
class Counts:
    """How often each class was predicted in the selection and in the estimation stage.

    Estimation may go on with stratified noise, whose predictions are `pairs`.

    Counts add: `a + b` is what one run over both sets of samples would have counted. For a bound
    on the sum to hold, the samples must differ (seeds, blocks), and their number must be fixed
    beforehand; to look at partial sums, use the any-time bound and keep the selection as it is.

    >>> Counts((9, 1), (90, 10)) + Counts((0, 0), (5, 5))
    Counts(selection=(9, 1), estimation=(95, 15), pairs=None)
    """

    selection: tuple[int, ...]
    estimation: tuple[int, ...]
    pairs: PairedCounts | None = None

    def __post_init__(self) -> None:
        for stage in ("selection", "estimation"):
            _check_counts(f"{stage} counts", getattr(self, stage))
        classes = {len(self.selection), len(self.estimation)}
        classes |= set() if self.pairs is None else {len(self.pairs.classes)}
        if len(classes) > 1 or len(self.selection) < 2:
            raise InputError(
                "the number of classes",
                f"{len(self.selection)} in selection, {len(self.estimation)} in estimation",
                "must be the same and at least 2",
                "count every class in both stages",
            )

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        if len(other.selection) != len(self.selection):
            raise InputError(
                "the other counts",
                f"of {len(other.selection)} classes",
                f"must be of {len(self.selection)}",
                "add counts of the same model",
            )
        pairs = [counts.pairs for counts in (self, other) if counts.pairs is not None]
        return Counts(
            _sums(self.selection, other.selection),
            _sums(self.estimation, other.estimation),
            pairs[0] + pairs[1] if len(pairs) == 2 else next(iter(pairs), None),
        )

    @property
    def n0(self) -> int:
        """The number of samples that selected the class."""
        return sum(self.selection)

    @property
    def n(self) -> int:
        """The number of fresh samples that bound its probability."""
        return sum(self.estimation) + (self.pairs.n if self.pairs else 0)

    @property
    def candidate(self) -> int:
        """The class predicted most often in the selection stage, the first of equals."""
        return self.selection.index(max(self.selection))

    @property
    def hits(self) -> int:
        """How often the candidate was predicted in the estimation stage."""
        return self.estimation[self.candidate] + (
            self.pairs.classes[self.candidate] if self.pairs else 0
        )


def _check_counts(name: str, values: object) -> None:
    if not isinstance(values, tuple):
        raise InputError(name, repr(values), "must be a tuple", "tuple(counts)")
    if not all(type(value) is int and value >= 0 for value in values):
        for value in values:  # names the first
            check_integer(f"a number in {name}", value, least=0)


def _sums(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Bound:
    """p_A >= `lower` for the candidate and p_B <= `upper` for every other class."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not all(is_real(p) and 0 <= p <= 1 for p in (self.lower, self.upper)):
            raise InputError(
                "a probability bound",
                f"({self.lower}, {self.upper})",
                "must lie in [0, 1]",
                "pass probabilities",
            )

    @property
    def decides(self) -> bool:
        """Whether the candidate is certified to be the most probable class."""
        return self.lower > self.upper


class Law(Protocol):
    """The part of a noise law that a certificate needs."""

    def norm(self, block: int) -> int: ...

    def certify(self, counts: Counts, space: Space, alpha: float, method: str) -> Certificate: ...

    def describe(self, space: Space) -> str: ...

    def covers(
        self, shifts: NDArray[np.float64], bound: Bound, space: Space
    ) -> NDArray[np.bool_]: ...

    def covers_region(self, region: RegionLike, bound: Bound, space: Space) -> bool: ...


class RegionLike(Protocol):
    """A set of transformations that knows which shifts enclose it."""

    def shifts(self, space: Space) -> Iterable[NDArray[np.float64]]: ...


@dataclass(frozen=True, repr=False)
class Certificate:
    """A prediction and the shifts of the deformation's parameters under which it holds.

    >>> from deformrs import Rotation, Uniform
    >>> counts = Counts((0, 100), (12, 988))
    >>> c = Uniform("30deg").certify(counts, Rotation().space((28, 28)), alpha=0.001)
    >>> print(c)
    class 1 for any rotation up to 28.39° (n = 1,000, alpha = 0.001, p >= 0.9731)
    >>> c.covers("20deg"), c.covers([0.6])
    (True, False)

    Guarantee: with probability at least 1 - `alpha` over the sampling, either the smoothed
    classifier answers `prediction` at every shift that `covers` accepts, or `prediction` is None.

    Made by `NoiseLaw.certify`, which can be called again on `counts` for another alpha, with the
    same `method`: if sampling stopped early, only the any-time bounds hold.
    """

    prediction: int | None
    """The class, or None: it abstains."""
    radii: tuple[float, ...]
    """One radius a block of parameters, the other blocks at rest; 0.0 when it abstains."""
    bound: Bound
    counts: Counts
    alpha: float
    method: str
    """How `bound` was computed from `counts`: a name from `deformrs.statistics`."""
    law: Law
    space: Space
    seed: int | None = field(default=None, compare=False)
    """The seed of the samples; with the image's index it repeats them. None where it is unknown."""
    preview: NDArray[np.uint8] | None = field(default=None, compare=False)
    """A small copy of the image, [h, w, 1 or 3], which notebooks show; it is stored nowhere."""

    @property
    def p_lower(self) -> float:
        """The lower bound on the probability of the candidate class."""
        return self.bound.lower

    @property
    def radius(self) -> float:
        """The certified radius in the parameter's unit, rounded down; 0.0 when it abstains.

        Every shift of at most this norm is covered (l1 for uniform noise, l2 for Gaussian).
        """
        if len(self.radii) != 1:
            families = ", ".join(block.family for block in self.space.blocks)
            raise UnsupportedError(
                "radius",
                f"requested of a certificate over {families}",
                "has one value for each of them, in different units",
                "use radii, covers(shift) or covers_region(region)",
            )
        return self.radii[0]

    def radius_in(self, unit: str) -> float:
        """Return the certified radius in "deg", "rad", "px" or "%", rounded down.

        180 degrees where every angle is certified.

        >>> from deformrs import Translation, Uniform
        >>> space = Translation().space((28, 28))
        >>> c = Uniform("4px").certify(Counts((0, 9), (0, 1000)), space, alpha=0.001)
        >>> f"{c.radius_in('px'):.3f}"
        '3.945'
        """
        radius, block = self.radius, self.space.blocks[0]
        converted = block.unit.radius_in(unit, radius, self.space.size)
        # Half a turn is a float a little below π.
        half_turn = block.is_whole(radius) and block.period == math.tau and unit in ("deg", "°")
        return 180.0 if half_turn else converted

    def at(self, alpha: float) -> Certificate:
        """Return the certificate of the same counts at another alpha, by the same bound.

        Choose alpha before you see the result: the best of several is not certified at its level.
        Where sampling stopped early, a smaller alpha certifies far less.

        >>> from deformrs import Rotation, Uniform
        >>> counts = Counts((0, 100), (12, 988))
        >>> c = Uniform("30deg").certify(counts, Rotation().space((28, 28)), alpha=0.001)
        >>> c.at(alpha=0.05).radius > c.radius
        True
        """
        again = self.law.certify(self.counts, self.space, alpha, self.method)
        return replace(again, seed=self.seed, preview=self.preview)

    def covers(self, shift: Shift) -> bool:
        """Return whether one shift is certified: `[0.1, 0.2]`, `["4px", "2px"]`, or `"10deg"`.

        One number or quantity for each parameter; a single quantity where there is one parameter.
        Of several parameters, every shift up to a length is certified if `radius` is at least that.

        Guarantee: True only if the shift lies inside the exact certified set of the noise law.
        """
        row = self.space.as_shift(shift)
        return self.prediction is not None and bool(
            self.law.covers(row, self.bound, self.space).all()
        )

    def covers_region(self, region: RegionLike | str) -> bool:
        """Return whether every transformation of a region, or of its text, is certified.

        >>> from deformrs import Rotation, Uniform
        >>> counts = Counts((0, 100), (12, 988))
        >>> c = Uniform("30deg").certify(counts, Rotation().space((28, 28)), alpha=0.001)
        >>> c.covers_region("rotation<=20deg")
        True

        Guarantee: True only if the certified set contains the whole region.
        """
        if isinstance(region, str):
            from deformrs.regions import Region

            region = Region.parse(region)
        if not hasattr(region, "shifts"):
            raise InputError(
                "the region",
                repr(region),
                "must be a Region",
                "e.g. Region.parse('rotation<=10deg')",
            )
        # Evaluated also when abstaining: a region that does not suit the space is an error.
        covered = self.law.covers_region(region, self.bound, self.space)
        return covered and self.prediction is not None

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return (
            f"Certificate(prediction={self.prediction}, radii={self.radii}, "
            f"p_lower={self.p_lower}, n={self.counts.n}, alpha={self.alpha}, "
            f"method={self.method!r}, law={self.law!r}, seed={self.seed})"
        )

    def _repr_html_(self) -> str:
        from deformrs.notebook import to_html

        return to_html(self)

    def summary(self) -> str:
        """Return the certificate as one line; every figure is rounded to the safe side."""
        return f"{self.claim} ({self.odds})"

    @property
    def odds(self) -> str:
        """The number of samples, alpha and the lower bound on the probability, in words."""
        alpha, least = format_alpha(self.alpha), format_down(self.p_lower, 4)
        return f"n = {self.counts.n:,}, alpha = {alpha}, p >= {least}"

    @property
    def claim(self) -> str:
        """The certified claim, in words."""
        if self.prediction is None:
            return "abstains: no class is certain enough"
        return f"class {self.prediction} for {self.reach}"

    @property
    def reach(self) -> str:
        """How far the prediction holds: `any rotation up to 27.31°`."""
        return ", or ".join(self._reach(index) for index in range(len(self.radii)))

    def _reach(self, index: int) -> str:
        block, radius = self.space.blocks[index], self.radii[index]
        family = block.family.replace("_", " ")
        if block.is_whole(radius):
            return f"every {family}"
        norm = "" if block.dim == 1 else f" (l{self.law.norm(index)} norm)"
        shown = f" ({scaled_size(radius)})" if block.family == "scaling" else ""
        return f"any {family} up to {block.unit.show_down(radius, self.space.size)}{norm}{shown}"
