"""For a real network, a search inside the certified set finds no shift that changes the prediction.

Certificates and predictions at alpha = 1e-6: over 24 certificates and at most 24 x 4 predictions a
sound library fails this test with probability below 2e-4.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from deformrs import (
    Certificate,
    Compose,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Rotation,
    SmoothedClassifier,
    Translation,
    Uniform,
)
from deformrs.data import load_digits
from deformrs.models import SmallCNN
from deformrs.randomness import Stage
from deformrs.report.gallery import certified_shifts
from deformrs.training import train

ALPHA = 1e-6
CASES: dict[str, tuple[Deformation, NoiseLaw]] = {
    "rotation": (Rotation(), Uniform(math.radians(60))),
    "translation": (Translation(), Gaussian(0.3)),
    "both": (
        Compose(Rotation(), Translation()),
        Independent(Uniform(math.radians(60)), Gaussian(0.2)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_flip_inside(case: str) -> None:
    deformation, noise = CASES[case]
    model = SmallCNN(width=16)
    train(model, *load_digits("train"), deformation, noise, epochs=4)
    g = SmoothedClassifier(model, deformation, noise, 10)
    tests, _ = load_digits("test")
    certified = decided = flips_outside = 0
    for index in range(8):
        certificate = g.certify(tests[index], n=2000, alpha=ALPHA, index=index)
        if certificate.prediction is None:
            continue
        certified += 1
        inside = candidates(certificate)
        for shift in worst(g, tests[index], certificate, inside, keep=3):
            assert certificate.covers(shift)
            prediction = g.predict(tests[index], n=4000, alpha=ALPHA, seed=1, shift=shift.tolist())
            assert prediction in (certificate.prediction, None), f"image {index} flips at {shift}"
            decided += prediction is not None
        # The same search outside the certified set does find flips.
        outside = np.concatenate([4 * inside, 16 * inside])
        (shift,) = worst(g, tests[index], certificate, outside, keep=1)
        prediction = g.predict(tests[index], n=1000, alpha=ALPHA, seed=1, shift=shift.tolist())
        flips_outside += prediction not in (certificate.prediction, None)
    assert certified >= 5
    assert decided >= 2 * certified, "of three predictions an image, at least two are definite"
    assert flips_outside >= 3


def candidates(certificate: Certificate) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return shifts at the edge of the certified set and half-way to it."""
    edge = certified_shifts(certificate, 16, seed=1)
    return np.concatenate([edge, 0.5 * edge])


def worst(
    g: SmoothedClassifier,
    image: torch.Tensor,
    certificate: Certificate,
    shifts: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    keep: int,
) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Return the shifts at which the certified class is predicted least often."""
    assert certificate.prediction is not None
    hits = [
        g.count(image, 128, Stage.PREDICT, seed=2, shift=shift.tolist())[certificate.prediction]
        for shift in shifts
    ]
    return [shifts[k] for k in np.argsort(hits)[:keep]]
