"""The sampling plan: how many samples an image gets, and how sure its certificate is."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace

from deformrs.certificate import Certificate, Counts, PairedCounts
from deformrs.checks import SEED_BITS, check_integer, check_seed
from deformrs.errors import InputError
from deformrs.noise import NoiseLaw
from deformrs.rule import LEAST_STRATIFIED, Rule
from deformrs.space import Space
from deformrs.statistics import Method, shared_alpha
from deformrs.stopping import Stopping

MOST = 10**9
"""The most samples of an image: hours on the fastest device."""

MOST_STRATIFIED = 2
"""The most parameters whose noise is stratified: in more, there are too few strata along each."""


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
    chosen before the counts are seen. By default it is chosen for each image by its selection
    sample.

    By default the seed is drawn from the operating system. Whoever knows the seed before the model
    and the images are fixed can build a model that answers well on just these samples, and is
    certified falsely: give a seed only to repeat a result.

    >>> from deformrs import Rotation, Uniform
    >>> plan = SamplingPlan(n=10_000, stopping=Stopping(radii=("10deg",)))
    >>> plan.method_for(Uniform("30deg"), Rotation().space((28, 28))).name
    'stratified_auto'
    """

    n: int = 100_000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = field(default_factory=lambda: fresh_seed())
    method: str = "auto"
    stopping: Stopping | None = None

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
        if not isinstance(self.stopping, Stopping | None):
            raise InputError(
                "stopping",
                repr(self.stopping),
                "must be a Stopping",
                "e.g. Stopping(radii=('10deg',))",
            )
        method = Method.parse(self.method)
        if self.stopping is not None:
            method = self._stopping_early(method)
        elif method.sampling == "stratified":
            raise InputError(
                "the method",
                repr(self.method),
                "must be another one where the number of samples is fixed",
                "e.g. 'auto', or give a stopping criterion",
            )
        method.check_level(self.alpha)
        object.__setattr__(self, "alpha", float(self.alpha))

    def _stopping_early(self, method: Method) -> Method:
        """Return the method that holds whenever sampling stops, before it may be stratified."""
        if method.sampling == "fixed" and method.split in ("auto", "runner_up"):
            return replace(method, sampling="anytime", most=self.n)
        if not method.stops_early or method.most not in (None, self.n):
            raise InputError(
                "the method",
                repr(self.method),
                f"must be 'auto', 'runner_up', 'anytime:{self.n}' or 'anytime' where sampling "
                "stops early",
                "leave it out, since any other bound would err more often than alpha; or draw a "
                "fixed number of samples (--fixed on the command line, no stopping in Python)",
            )
        return method

    def method_for(self, law: NoiseLaw, space: Space) -> Method:
        """Return the method by which images of a space are certified.

        Where sampling stops early, the methods "auto" and "runner_up" stratify the noise of up to
        two parameters, and have a sharp last look otherwise.
        """
        method = Method.parse(self.method)
        if self.stopping is None:
            return method
        stratifies = (
            law.can_stratify and space.dim <= MOST_STRATIFIED and self.n >= LEAST_STRATIFIED
        )
        if method.sampling == "fixed" and stratifies:
            return replace(method, sampling="stratified")
        if method.sampling == "stratified" and not stratifies:
            raise InputError(
                "the method",
                repr(self.method),
                f"must be another one for {law!r} of {space.dim:,} parameters with n = {self.n:,}",
                "use 'auto', which stratifies the noise of one or two parameters from "
                f"n = {LEAST_STRATIFIED:,} on",
            )
        return self._stopping_early(method)

    def shared(self, images: int) -> SamplingPlan:
        """Return the plan of each of that many images, which share alpha.

        Guarantee: any of their certificates is false with probability at most `self.alpha`.
        """
        return replace(self, alpha=shared_alpha(self.alpha, images))

    def check_attainable(self, law: NoiseLaw, space: Space, num_classes: int) -> None:
        """Raise if nothing, or a query, could not be certified even if all samples agree."""
        best = self._agreeing(law, space, num_classes)
        if best.prediction is None:
            least = self._least_n(law, space, num_classes)
            raise InputError(
                "n",
                self.n,
                f"must be at least {least:,} to certify anything at alpha = {self.alpha:g}, even "
                "if all samples agree",
                f"e.g. {max(1000, least)}",
            )
        if self.stopping is not None:
            method = self.method_for(law, space)
            remedy = "use more noise or more samples"
            if method.sampling == "stratified":  # which has no sharp last look
                sharp = replace(method, sampling="anytime", most=self.n)
                remedy += f", or the method {sharp.name!r}"
            self.stopping.check_attainable(best, self.n, remedy)

    def _agreeing(self, law: NoiseLaw, space: Space, num_classes: int) -> Certificate:
        """Return the certificate from `n` samples that all agree."""
        method, others = self.method_for(law, space), (0,) * (num_classes - 1)
        independent, pairs = self.n, None
        rule = self.rule(law, space)
        if rule is not None and rule.rounds:
            independent, paired = rule.looks[-1], rule.rounds[-1] - rule.first
            pairs = PairedCounts((paired, *others), (0, *others))
        counts = Counts((self.n0, *others), (independent, *others), pairs)
        return law.certify(counts, space, self.alpha, method.name)

    def _least_n(self, law: NoiseLaw, space: Space, num_classes: int) -> int:
        """Return the fewest samples that certify anything if they all agree."""

        def decides(n: int) -> bool:
            plan = replace(self, n=n, method=Method.parse(self.method).at_most(n).name)
            return plan._agreeing(law, space, num_classes).prediction is not None

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
        method = self.method_for(law, space)
        return self.stopping.rule(law, space, self.alpha, self.n, method)
