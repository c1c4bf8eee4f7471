"""Coverage through the whole path: warp, model, two stages, bound, law.

20,000 certifications a setting at alpha = 0.05. The classifier reads a shift off a ramp and answers
1 below a threshold, so p_A and the true radius are known. A certificate is false if its radius
exceeds the true one, or if it names the less probable class. If the rate of false certificates is
at most alpha, the exact binomial test below rejects with probability at most 1e-6.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import betainc, ndtri
from torch import Tensor

from deformrs import Certificate, Gaussian, Shear, SmoothedClassifier
from images import one_if_below, ramp

# Of 130 samples the exact error of Clopper-Pearson is 0.043 to 0.048 for these p_A, and 0.088 to
# 0.094 at twice the level: close enough to alpha to notice both an excess and a lack.
ALPHA, RUNS, N, N0 = 0.05, 20_000, 130, 20
SIGMA = 0.1
RAMP = ramp(4)[:1]


def shear(images: Tensor) -> Tensor:
    """The middle of the top row, at y = -¾, is read at x - ¾ s of a brightness 0.5 + 0.4 x."""
    return (0.5 - images[:, 0, 0, 1:3].mean(dim=1)) / 0.3


def rejected(false: int) -> bool:
    """P(Bin(RUNS, ALPHA) >= false) <= 1e-6?"""
    return false > 0 and float(betainc(false, RUNS - false + 1, ALPHA)) <= 1e-6


@pytest.mark.parametrize("p_a", [0.5, 0.6, 0.9])
def test_guarantee_a_certificate_is_false_with_probability_at_most_alpha(p_a: float) -> None:
    """20,000 of class `Certificate`, each through the sampler."""
    threshold = SIGMA * float(ndtri(p_a))
    g = SmoothedClassifier(
        one_if_below(shear, threshold),
        Shear(),
        Gaussian(SIGMA),
        num_classes=2,
        batch_size=256,
    )
    certificates = [g.certify(RAMP, N, N0, ALPHA, index=index) for index in range(RUNS)]
    false = sum(is_false(certificate, threshold, p_a) for certificate in certificates)
    assert not rejected(false), f"{false} of {RUNS} certificates are false"
    # The same counts certified at 2 alpha are caught: the test has teeth.
    doubled = [
        Gaussian(SIGMA).certify(c.counts, c.space, 2 * ALPHA, "clopper_pearson")
        for c in certificates
    ]
    assert rejected(sum(is_false(certificate, threshold, p_a) for certificate in doubled))
    # And what was counted is what the closed form says, to five standard errors.
    hits = sum(c.counts.estimation[1] for c in certificates) / (RUNS * N)
    assert abs(hits - p_a) < 5 * math.sqrt(p_a * (1 - p_a) / (RUNS * N))


def is_false(certificate: Certificate, true_radius: float, p_a: float) -> bool:
    if certificate.prediction is None:
        return False
    if certificate.prediction == 0:
        return p_a >= 0.5
    return certificate.radius > true_radius


def test_the_shear_is_read_exactly() -> None:
    shears = torch.tensor([-0.4, -0.1, 0.0, 0.2, 0.5])
    torch.testing.assert_close(shear(Shear().apply(RAMP, shears[:, None])), shears)
