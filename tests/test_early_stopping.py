"""Sampling that stops early: the noise of the fixed protocol, and no more of it than needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtri

from deformrs import Gaussian, Rotation, Shear, SmoothedClassifier, Uniform
from deformrs.certificate import Counts
from deformrs.errors import InputError
from deformrs.plan import SamplingPlan
from deformrs.randomness import Stage
from deformrs.rule import Rule, looks
from deformrs.sampling import Progress
from deformrs.statistics import Method
from deformrs.stopping import Stopping
from examples import IMAGE, smoothed
from images import one_if_below, ramp

TEN = Stopping(radii=("10deg",))
IMAGES = [torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(k)) for k in range(9)]


RAMP = ramp(4)[:1]


def shear(images: torch.Tensor) -> torch.Tensor:
    return (0.5 - images[:, 0, 0, 1:3].mean(dim=1)) / 0.3


def sampled(
    g: SmoothedClassifier, images: torch.Tensor, indices: range, n0: int, rule: Rule
) -> list[Counts]:
    """Return the counts of images that are sampled under that rule."""
    selection = np.array(g.count_batch(list(images), indices, n0, Stage.SELECT))
    estimation = g.sampler.count_until(images, indices, selection, rule, seed=0)
    return [
        Counts(tuple(a), tuple(b))
        for a, b in zip(selection.tolist(), estimation.tolist(), strict=True)
    ]


def test_the_samples_are_the_first_of_the_fixed_protocol() -> None:
    g = smoothed()
    for index, image in enumerate(IMAGES[:4]):
        c = g.certify(image, n=2000, index=index, stopping=TEN)
        assert c.method == Method.parse("anytime_auto:2000").chosen(c.counts).name
        assert c.counts.n in looks(2000)
        fixed = g.certify(image, n=c.counts.n, index=index, method="anytime_auto:2000")
        assert c == fixed
        plain = g.certify(image, n=2000, index=index, method="anytime", stopping=TEN)
        assert plain == g.certify(image, n=plain.counts.n, index=index, method="anytime")


def test_the_rule_is_that_of_the_bound() -> None:
    """Both on one classifier: a rule that stopped by another level would lose certificates."""
    g = smoothed()
    space = g.deformation.space((12, 12))
    counts = {}
    for method in ("anytime:400", "anytime"):
        certificates = g.certify_batch(
            IMAGES, range(9), SamplingPlan(400, method=method, stopping=TEN)
        )
        rule = TEN.rule(g.noise, space, 1e-3, 400, Method.parse(method))
        stacked = torch.stack(IMAGES)
        expected = sampled(g, stacked, range(9), 100, rule)
        counts[method] = [c.counts for c in certificates]
        assert counts[method] == expected
    assert counts["anytime"] != counts["anytime:400"]


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_images_that_share_batches_are_those_of_each_alone(batch_size: int) -> None:
    alone = [
        smoothed().certify(image, n=2000, index=5 * k, stopping=TEN)
        for k, image in enumerate(IMAGES)
    ]
    assert len({c.counts.n for c in alone}) > 2, "some images are easy and some are not"
    decided: list[int] = []
    samples: list[int] = []
    together = smoothed(batch_size=batch_size).certify_batch(
        IMAGES,
        [5 * k for k in range(9)],
        SamplingPlan(2000, stopping=TEN),
        Progress(sampled=samples.append, decided=decided.append),
    )
    assert together == alone
    assert sum(decided) == len(IMAGES)
    assert sum(samples) == sum(c.counts.n0 + c.counts.n for c in alone)


def test_a_decided_query_stops_sampling_and_an_open_one_does_not() -> None:
    def brightest(images: torch.Tensor) -> torch.Tensor:
        return torch.eye(5)[torch.zeros(len(images), dtype=torch.long)]

    sure = smoothed(brightest).certify(IMAGE, n=100_000, stopping=TEN)
    assert sure.counts.n < 60
    assert sure.radius >= math.radians(10)
    # Beyond the noise: no sample can certify it, so it is decided at once, and refused.
    beyond, space = Stopping(radii=("170deg",)), Rotation().space((9, 9))
    rule = beyond.rule(Uniform(2.0), space, 0.001, 500, Method.parse("anytime_auto:500"))
    first = np.array([[looks(500)[0], 0, 0]])
    assert rule.decided(first, first).all()
    with pytest.raises(InputError, match=r"170deg; it cannot be certified.*at most 111\.08°"):
        smoothed(brightest).certify(IMAGE, n=500, stopping=beyond)
    # At the edge, neither bound ever decides, until it is too late to certify.
    p = 0.8
    edge = 0.1 * float(ndtri(p))
    g = SmoothedClassifier(one_if_below(shear, edge), Shear(), Gaussian(0.1), 2)
    stopping = Stopping(radii=(edge,))
    taken = [g.certify(RAMP, n=700, seed=seed, stopping=stopping).counts.n for seed in range(9)]
    assert np.median(taken) > 250


def test_adaptive_stops_where_more_samples_gain_little() -> None:
    g = smoothed()
    for index, image in enumerate(IMAGES[:2]):
        rough, fine = (
            g.certify(image, n=20_000, index=index, stopping=Stopping(tolerance=tolerance))
            for tolerance in ("20deg", "5deg")
        )
        assert rough.counts.n < fine.counts.n
        full = g.certify(image, n=20_000, index=index)
        assert full.radius - fine.radius < math.radians(5)
        assert full.radius - rough.radius < math.radians(20)


def test_any_other_bound_is_refused() -> None:
    with pytest.raises(
        InputError, match="must be 'auto', 'runner_up', 'anytime:100' or 'anytime' where"
    ):
        smoothed().certify(IMAGE, n=100, method="clopper_pearson", stopping=TEN)
    with pytest.raises(
        InputError, match="must be 'auto', 'runner_up', 'anytime:100' or 'anytime' where"
    ):
        smoothed().certify(IMAGE, n=100, method="anytime:50", stopping=TEN)
    with pytest.raises(InputError, match="method is 'wald'"):
        smoothed().certify(IMAGE, n=100, method="wald", stopping=TEN)


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
