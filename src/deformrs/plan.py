"""The sampling plan: how many samples an image gets, and how sure its certificate is."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from deformrs.certificate import Counts
from deformrs.checks import SEED_BITS, check_integer, check_seed
from deformrs.errors import InputError
from deformrs.noise import NoiseLaw
from deformrs.space import Space
from deformrs.statistics import bound, capped_method, check_level, check_method
from deformrs.stopping import Rule, Stopping

MOST = 10**9
"""The most samples of an image: hours on the fastest device."""


def fresh_seed() -> int:
    """Return 64 bits of the operating system's entropy, which nobody can know beforehand."""
    return secrets.randbits(SEED_BITS)


def seed_or_fresh(seed: int | None) -> int:
    """Return a seed, or a fresh one for None."""
    return fresh_seed() if seed is None else seed


@dataclass(frozen=True)
class SamplingPlan:
    """The settings of one certification: sample sizes, confidence, seed, bound and stopping.

    `n0` samples select the class and `n` fresh ones bound its probability; with `stopping`, no more
    of the `n` than decide its queries. `method` names a bound of `deformrs.statistics`, and must be
    chosen before the counts are seen. By default it is Clopper-Pearson, and with `stopping` the
    any-time bound for at most `n` samples.

    By default the seed is drawn from the operating system. Whoever knows the seed before the model
    and the images are fixed can build a model that answers well on just these samples, and is
    certified falsely: give a seed only to repeat a result.

    >>> SamplingPlan(n=1000, stopping=Stopping(radii=("10deg",))).bound
    'anytime:1000'
    """

    n: int = 100_000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = field(default_factory=lambda: fresh_seed())
    method: str | None = None
    stopping: Stopping | None = None
    bound: str = field(init=False)
    """The bound in use: `method`, or the default."""

    def __post_init__(self) -> None:
        check_integer("n", self.n, least=1)
        check_integer("n0", self.n0, least=1)
        check_seed("seed", self.seed)
        for name in ("n", "n0"):
            if getattr(self, name) > MOST:
                raise InputError(
                    name, f"{getattr(self, name):,}", f"must be at most {MOST:,}", "e.g. 100000"
                )
        for name in ("n", "n0", "seed"):  # NumPy's integers cannot be stored in a run
            object.__setattr__(self, name, int(getattr(self, name)))
        object.__setattr__(self, "bound", self._choose_bound())
        check_level(self.alpha, self.bound)
        object.__setattr__(self, "alpha", float(self.alpha))

    def _choose_bound(self) -> str:
        capped = capped_method(self.n)
        check_method(capped)
        if self.method is not None:
            check_method(self.method)
        if self.stopping is None:
            return self.method or "clopper_pearson"
        if not isinstance(self.stopping, Stopping):
            raise InputError(
                "stopping",
                repr(self.stopping),
                "must be a Stopping",
                "e.g. Stopping(radii=('10deg',))",
            )
        if self.method not in (None, "anytime", capped):
            raise InputError(
                "the method",
                repr(self.method),
                f"must be {capped!r} or 'anytime' where sampling stops early",
                "leave it out; any other bound would err more often than alpha",
            )
        return self.method or capped

    def check_attainable(self, law: NoiseLaw, space: Space, num_classes: int) -> None:
        """Raise if nothing, or a query, could not be certified even if all samples agree."""
        best = law.certify(self._agreeing(self.n, num_classes), space, self.alpha, self.bound)
        if best.prediction is None:
            least = self._least_n(num_classes)
            raise InputError(
                "n",
                self.n,
                f"must be at least {least:,} to certify anything at alpha = {self.alpha:g}, even "
                "if all samples agree",
                f"e.g. {max(1000, least)}",
            )
        if self.stopping is not None:
            self.stopping.check_attainable(best)

    def _agreeing(self, n: int, num_classes: int) -> Counts:
        others = (0,) * (num_classes - 1)
        return Counts((self.n0, *others), (n, *others))

    def _least_n(self, num_classes: int) -> int:
        """Return the fewest samples that certify anything if they all agree."""

        def decides(n: int) -> bool:
            method = capped_method(n) if ":" in self.bound else self.bound
            return bound(self._agreeing(n, num_classes), self.alpha, method).decides

        few, enough = self.n, 2 * self.n
        while not decides(enough):
            few, enough = enough, 2 * enough
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if decides(middle) else (middle, enough)
        return enough

    def rule(self, law: NoiseLaw, space: Space) -> Rule | None:
        """Return the rule that stops the sampling of an image; None to draw all `n` samples."""
        if self.stopping is None:
            return None
        last_look = self.bound != "anytime"
        return self.stopping.rule(law, space, self.alpha, self.n, last_look=last_look)
