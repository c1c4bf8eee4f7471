"""Sampling that stops: the noise of the fixed protocol, no more of it than is needed, no lies."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import betainc, ndtri

from deformrs import Gaussian, Shear, SmoothedClassifier
from deformrs.certificate import Counts
from deformrs.errors import InputError
from deformrs.plan import SamplingPlan
from deformrs.randomness import Stage
from deformrs.sampling import Progress
from deformrs.statistics import bound
from deformrs.stopping import Rule, Stopping, looks
from examples import IMAGE, smoothed
from images import one_if_below, ramp

TEN = Stopping(radii=("10deg",))
IMAGES = [torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(k)) for k in range(9)]


def test_the_samples_are_the_first_of_the_fixed_protocol() -> None:
    g = smoothed()
    for index, image in enumerate(IMAGES):
        c = g.certify(image, n=3000, index=index, stopping=TEN)
        assert c.method == "anytime:3000"
        assert c.counts.n in looks(3000)
        fixed = g.certify(image, n=c.counts.n, index=index, method="anytime:3000")
        assert c == fixed
        plain = g.certify(image, n=3000, index=index, method="anytime", stopping=TEN)
        assert plain == g.certify(image, n=plain.counts.n, index=index, method="anytime")


def test_the_rule_is_that_of_the_bound() -> None:
    """Both on one classifier: a rule that stopped by another level would lose certificates."""
    g = smoothed()
    space = g.deformation.space((12, 12))
    found = {}
    for method, last_look in (("anytime:400", True), ("anytime", False)):
        got = g.certify_batch(IMAGES, range(9), SamplingPlan(400, method=method, stopping=TEN))
        rule = TEN.rule(g.noise, space, 1e-3, 400, last_look=last_look)
        stacked = torch.stack(IMAGES)
        expected = sampled(g, stacked, range(9), 100, rule)
        found[method] = [c.counts for c in got]
        assert found[method] == expected
    assert found["anytime"] != found["anytime:400"]


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_images_that_share_batches_are_those_of_each_alone(batch_size: int) -> None:
    alone = [
        smoothed().certify(image, n=2000, index=5 * k, stopping=TEN)
        for k, image in enumerate(IMAGES)
    ]
    assert len({c.counts.n for c in alone}) > 2, "some are easy and some are not"
    told: list[int] = []
    samples: list[int] = []
    together = smoothed(batch_size=batch_size).certify_batch(
        IMAGES,
        [5 * k for k in range(9)],
        SamplingPlan(2000, stopping=TEN),
        Progress(sampled=samples.append, decided=told.append),
    )
    assert together == alone
    assert sum(told) == len(IMAGES)
    assert sum(samples) == sum(c.counts.n0 + c.counts.n for c in alone)


def test_a_question_that_is_settled_stops_and_an_open_one_goes_on() -> None:
    def brightest(images: torch.Tensor) -> torch.Tensor:
        return torch.eye(5)[torch.zeros(len(images), dtype=torch.long)]

    sure = smoothed(brightest).certify(IMAGE, n=100_000, stopping=TEN)
    assert sure.counts.n < 60
    assert sure.radius >= math.radians(10)
    none = smoothed(brightest).certify(IMAGE, n=500, stopping=Stopping(radii=("170deg",)))
    assert none.counts.n == looks(500)[0], "beyond the noise: nothing to wait for"
    # At the edge of what holds, neither bound ever tells: until it is too late for a yes.
    p = 0.8
    edge = 0.1 * float(ndtri(p))
    g = SmoothedClassifier(one_if_below(shear, edge), Shear(), Gaussian(0.1), 2)
    assert g.certify(RAMP, n=700, stopping=Stopping(radii=(edge,))).counts.n > 400


def test_adaptive_stops_where_more_samples_gain_little() -> None:
    g = smoothed()
    for index, image in enumerate(IMAGES[:4]):
        rough, fine = (
            g.certify(image, n=20_000, index=index, stopping=Stopping(tolerance=tolerance))
            for tolerance in ("20deg", "5deg")
        )
        assert rough.counts.n < fine.counts.n
        full = g.certify(image, n=20_000, index=index)
        assert full.radius - fine.radius < math.radians(5)
        assert full.radius - rough.radius < math.radians(20)


def test_any_other_bound_is_refused() -> None:
    with pytest.raises(InputError, match="must be 'anytime:100' or 'anytime' where sampling"):
        smoothed().certify(IMAGE, n=100, method="clopper_pearson", stopping=TEN)
    with pytest.raises(InputError, match="must be 'anytime:100' or 'anytime' where sampling"):
        smoothed().certify(IMAGE, n=100, method="anytime:50", stopping=TEN)
    with pytest.raises(InputError, match="method is 'wald'"):
        smoothed().certify(IMAGE, n=100, method="wald", stopping=TEN)


# Coverage through the whole path, looking after every look. The classifier reads a shear off a
# ramp, so that p_A is known; what is asked is a radius just beyond the truth.
ALPHA, RUNS, N, SIGMA = 0.05, 6_000, 220, 0.1
RAMP = ramp(4)[:1]


def shear(images: torch.Tensor) -> torch.Tensor:
    return (0.5 - images[:, 0, 0, 1:3].mean(dim=1)) / 0.3


def rejected(false: int) -> bool:
    """P(Bin(RUNS, ALPHA) >= false) <= 1e-6?"""
    return false > 0 and float(betainc(false, RUNS - false + 1, ALPHA)) <= 1e-6


def sampled(
    g: SmoothedClassifier, images: torch.Tensor, indices: range, n0: int, rule: Rule
) -> list[Counts]:
    """The counts under that rule, whatever it is."""
    selection = np.array(g.count_batch(list(images), indices, n0, Stage.SELECT))
    estimation = g.sampler.count_until(images, indices, selection.argmax(axis=1), rule, seed=0)
    return [
        Counts(tuple(a), tuple(b))
        for a, b in zip(selection.tolist(), estimation.tolist(), strict=True)
    ]


class Peeking(Rule):
    """Stops as soon as Clopper-Pearson says what one would like to hear: invalid."""

    def decided(self, hits: NDArray[np.int64], trials: NDArray[np.int64]) -> NDArray[np.bool_]:
        (p,) = self.thresholds
        lower = {
            (k, n): bound(Counts((0, 1), (n - k, k)), self.alpha).lower
            for k, n in set(zip(hits.tolist(), trials.tolist(), strict=True))
        }
        pairs = zip(hits.tolist(), trials.tolist(), strict=True)
        return np.array([lower[pair] >= p for pair in pairs])


@pytest.mark.parametrize("p_a", [0.55, 0.8])
def test_guarantee_false_certificates_stay_below_alpha_however_often_one_looks(p_a: float) -> None:
    """`certify_batch` and a rule that peeks, 6,000 images each."""
    true_radius = SIGMA * float(ndtri(p_a))
    g = SmoothedClassifier(
        one_if_below(shear, true_radius), Shear(), Gaussian(SIGMA), 2, batch_size=4096
    )
    asked = Stopping(radii=(true_radius * (1 + 1e-6),))
    space = Shear().space((4, 4))
    rule = asked.rule(Gaussian(SIGMA), space, ALPHA, N)
    peeking = Peeking(rule.thresholds, None, rule.law, space, ALPHA, N)
    plan = SamplingPlan(N, 20, ALPHA, stopping=asked)
    false = fooled = 0
    for start in range(0, RUNS, 1000):
        indices = range(start, start + 1000)
        certificates = g.certify_batch([RAMP] * 1000, indices, plan)
        false += sum(c.radius > true_radius for c in certificates if c.prediction == 1)
        images = RAMP.expand(1000, *RAMP.shape)
        found = sampled(g, images, indices, 20, peeking)
        fooled += sum(
            bound(c, ALPHA).lower >= rule.thresholds[0] for c in found if c.candidate == 1
        )
    assert not rejected(false), f"{false} of {RUNS} certificates are false"
    assert rejected(fooled), "the test must notice who peeks"


def test_the_selection_is_that_of_the_fixed_protocol() -> None:
    """Stopping reads the candidate from the selection, which is the fixed protocol's."""
    g = smoothed()
    c = g.certify(IMAGE, n=500, n0=33, seed=3, index=4, stopping=TEN)
    assert c.counts.selection == g.count(IMAGE, 33, Stage.SELECT, seed=3, index=4)


@pytest.mark.parametrize("indices", [[], [0], [0, 1, 2]])
def test_every_image_has_an_index(indices: list[int]) -> None:
    with pytest.raises(InputError, match="the number of indices is . for 2 images"):
        smoothed().certify_batch(IMAGES[:2], indices, SamplingPlan(50))
    with pytest.raises(InputError, match="the number of indices"):
        smoothed().count_batch(IMAGES[:2], indices, 50, Stage.ESTIMATE)


def test_stopping_must_be_one() -> None:
    with pytest.raises(InputError, match="stopping is '10deg'; it must be a Stopping"):
        smoothed().certify(IMAGE, n=50, stopping="10deg")  # type: ignore[arg-type]
