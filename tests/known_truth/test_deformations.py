"""Classifiers whose true radius is known in closed form, through the real warp and sampler.

Each reads one parameter off the image and answers 1 while it is below a threshold t: a
half-space, on which the bounds are tight, so that the true radius is t. With n = 100,000 and
p_A = 0.9 the Clopper-Pearson bound at alpha = 0.001 costs about 1.5 % of the radius. A certificate
above the truth would occur with probability alpha = 0.001 in each case; seeds are fixed.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from deformrs import (
    DCT,
    Affine,
    Bound,
    Compose,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Rotation,
    Scaling,
    SmoothedClassifier,
    Translation,
    Uniform,
    VectorField,
)
from images import SIDE, Reader, blob, centroid, linear_map, one_if_below, places, ramp

N = 100_000
Z = float(ndtri(0.9))


def angle_of_blob(images: Tensor) -> Tensor:
    """Rotation by θ reads at R(θ)p, so the blob at angle 0 appears at -θ."""
    x, y = centroid(images).unbind(-1)
    return torch.atan2(-y, x)


def zoom_of_blob(images: Tensor) -> Tensor:
    """A blob at distance ½ appears at ½/α."""
    return 0.5 / centroid(images)[:, 0] - 1


def shift_of_blob(images: Tensor) -> Tensor:
    """Reading t_x further right shows the blob t_x further left."""
    return -centroid(images)[:, 0]


def mean_displacement(images: Tensor) -> Tensor:
    """The displacement along x over 100 pixels, scaled to unit norm in the field's parameters."""
    moved = (places(images) - places(ramp()))[:, 0]
    return moved[:, 3:13, 3:13].sum(dim=(1, 2)) / 10


def affine_mix(images: Tensor) -> Tensor:
    """(a + d' + e)/√3 with d' = c: a direction that no axis favours."""
    matrix, shift = linear_map(images)
    return (matrix[:, 0, 0] - 1 + matrix[:, 1, 0] + shift[:, 0]) / math.sqrt(3)


def dct_mix(images: Tensor) -> Tensor:
    """(A_00 + A_01)/√2 of v_x: rows and columns that mirror each other isolate them."""
    low, high = 5, 10
    moved = (places(images) - places(ramp()))[:, 0]
    corners = moved[:, [low, high]][:, :, [low, high]].mean(dim=1)
    wave = math.cos(math.pi * (low + 0.5) / SIDE)
    constant, slope = corners.mean(dim=1), (corners[:, 0] - corners[:, 1]) / (2 * wave)
    return (constant + slope) / math.sqrt(2)


def angle_of_ramp(images: Tensor) -> Tensor:
    matrix, _ = linear_map(images)
    return torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0])


def shift_of_turned_ramp(images: Tensor) -> Tensor:
    """t_x of T = R(p + t)."""
    matrix, shift = linear_map(images)
    return matrix[:, 0, 0] * shift[:, 0] + matrix[:, 1, 0] * shift[:, 1]


TURN_AND_SHIFT = Compose(Rotation(), Translation())
BOTH = Independent(Uniform(0.5), Gaussian(0.08))
CASES: dict[str, tuple[Tensor, Deformation, NoiseLaw, Reader, float, int]] = {
    # image, deformation, noise, what is read, true radius, block
    "rotation": (blob(0.5, 0), Rotation(), Uniform(0.9), angle_of_blob, 0.72, 0),
    "rotation, Gaussian": (blob(0.5, 0), Rotation(), Gaussian(0.4), angle_of_blob, 0.4 * Z, 0),
    "translation": (blob(0, 0), Translation(), Gaussian(0.12), shift_of_blob, 0.12 * Z, 0),
    "translation, uniform": (blob(0, 0), Translation(), Uniform(0.4), shift_of_blob, 0.32, 0),
    "scaling": (blob(0.5, 0), Scaling(), Uniform(0.3), zoom_of_blob, 0.24, 0),
    "vector field": (ramp(), VectorField(), Gaussian(0.03), mean_displacement, 0.03 * Z, 0),
    "affine": (ramp(), Affine(), Gaussian(0.1), affine_mix, 0.1 * Z, 0),
    "dct": (ramp(), DCT(2), Gaussian(0.1), dct_mix, 0.1 * Z, 0),
    "composition, its angle": (ramp(), TURN_AND_SHIFT, BOTH, angle_of_ramp, 0.4, 0),
    "composition, its shift": (ramp(), TURN_AND_SHIFT, BOTH, shift_of_turned_ramp, 0.08 * Z, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_radius_lies_below_the_truth_and_within_five_per_cent(case: str) -> None:
    image, deformation, noise, reader, truth, block = CASES[case]
    model = one_if_below(reader, truth)
    # Not checked: the negative of a blob lies at 180 degrees, where both classes meet.
    g = SmoothedClassifier(model, deformation, noise, 2, batch_size=2000, check_model=False)
    certificate = g.certify(image, n=N)
    assert certificate.prediction == 1
    assert 0.95 * truth <= certificate.radii[block] <= truth
    # The classifier is a half-space with p_A = 0.9: the count itself shows that what was read off
    # the image is what was drawn. Five standard deviations: false alarm below 1e-6.
    assert abs(certificate.counts.hits / N - 0.9) < 5 * math.sqrt(0.09 / N)


@pytest.mark.parametrize("case", ["translation", "affine", "dct", "vector field"])
def test_half_space_flips_just_outside_the_gaussian_radius(case: str) -> None:
    """The bound is tight: the prediction holds 3 % inside the radius, and changes 3 % outside."""
    image, deformation, noise, reader, truth, _ = CASES[case]
    space = deformation.space((image.shape[1], image.shape[2]))
    exact = Bound(0.9, 0.1)
    radius = noise.radii(exact, space)[0]
    assert radius == pytest.approx(truth, rel=1e-9)
    direction = _steepest(reader, deformation, image)
    g = SmoothedClassifier(one_if_below(reader, truth), deformation, noise, 2, batch_size=2000)
    inside, outside = ((factor * radius * direction).tolist() for factor in (0.97, 1.03))
    assert noise.covers(space.as_shift(inside), exact, space).all()
    assert not noise.covers(space.as_shift(outside), exact, space).any()
    assert g.predict(image, n=N, shift=inside) == 1
    assert g.predict(image, n=N, shift=outside) == 0


def _steepest(reader: Reader, deformation: Deformation, image: Tensor) -> Tensor:
    """Return the unit direction in parameter space that raises what is read, by differences."""
    dim = deformation.dim((image.shape[1], image.shape[2]))
    steps = 0.01 * torch.eye(dim)
    gradient = reader(deformation.apply(image, steps)) - reader(deformation.apply(image, -steps))
    direction: Tensor = gradient.double() / torch.linalg.vector_norm(gradient.double())
    return direction


def test_worst_case_of_the_independent_law_flips_at_its_boundary() -> None:
    """The classifier that the Neyman-Pearson lemma calls worst, for one joint shift (turn, move).

    It answers 1 where the shifted noise cannot reach (the first `turn` of the angles), 0 where only
    the shifted noise reaches, and between them 1 while t_x stays below z. At the joint shift its
    probability is exactly one half.
    """
    turn, move, width, sigma = 0.25, 0.05, 0.5, 0.08
    lost, length = turn / (2 * width), move / sigma
    # (1-u) Φ(z - r) = ½ fixes z, and with it p_A = u + (1-u) Φ(z).
    z = float(ndtri(0.5 / (1 - lost))) + length
    p_a = lost + (1 - lost) * float(ndtr(z))

    def worst(images: Tensor) -> Tensor:
        angle, low = angle_of_ramp(images), shift_of_turned_ramp(images) < z * sigma
        one = (angle < turn - width) | (low & (angle < width))
        return torch.stack([~one, one], dim=1).float()

    g = SmoothedClassifier(worst, TURN_AND_SHIFT, BOTH, num_classes=2, batch_size=2000)
    certificate = g.certify(ramp(), n=N)
    assert certificate.prediction == 1
    assert abs(certificate.counts.hits / N - p_a) < 5 * math.sqrt(p_a * (1 - p_a) / N)
    joint = torch.tensor([turn, move, 0.0], dtype=torch.float64)
    assert not certificate.covers(joint.tolist())
    assert certificate.covers((0.95 * joint).tolist())
    assert g.predict(ramp(), n=N, shift=(0.95 * joint).tolist()) == 1
    assert g.predict(ramp(), n=N, shift=(1.05 * joint).tolist()) == 0


def outside_the_arc(middle: float, half_width: float) -> Reader:
    """Return the classifier that answers 1 but for angles near `middle`."""

    def classify(images: Tensor) -> Tensor:
        matrix, _ = linear_map(images)
        angle = torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0])
        inside = torch.remainder(angle - middle + math.pi, 2 * math.pi) - math.pi
        one = inside.abs() > half_width
        return torch.stack([~one, one], dim=1).float()

    return classify


@pytest.mark.parametrize("width", [math.pi, 2.8])
def test_round_the_circle_every_angle_is_certified_and_holds(width: float) -> None:
    """λ = 2.8 leaves a gap of 2π - 5.6; p_A - p_B > 0.244 certifies the whole circle."""
    arc = 0.9  # p_A = 1 - 0.9/λ: 0.71 and 0.68
    g = SmoothedClassifier(
        outside_the_arc(1.0, arc), Rotation(), Uniform(width), 2, batch_size=2000
    )
    certificate = g.certify(ramp(), n=20_000)
    assert certificate.prediction == 1
    assert abs(certificate.counts.hits / 20_000 - (1 - arc / width)) < 0.02
    assert certificate.radius == math.pi
    assert "every rotation" in certificate.summary()
    for angle in torch.linspace(-math.pi, math.pi, 13).tolist():
        assert certificate.covers([angle])
        assert g.predict(ramp(), n=2000, shift=[angle]) == 1


def test_on_the_circle_below_the_threshold_the_answer_does_change() -> None:
    """λ = 1.6 cannot certify all angles, and turning the worst arc into view shows why."""
    g = SmoothedClassifier(
        outside_the_arc(math.pi, 1.0), Rotation(), Uniform(1.6), 2, batch_size=2000
    )
    certificate = g.certify(ramp(), n=20_000)
    assert certificate.prediction == 1
    assert certificate.radius < 1.6
    assert not certificate.covers([math.pi])
    assert g.predict(ramp(), n=20_000, shift=[math.pi]) == 0
