"""The methods of ART, compared with the library's own and, where it is installed, with ART."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch import Tensor

from deformrs import Compose, Rotation, Scaling, SmoothedClassifier, Uniform
from deformrs.art import RandomizedSmoothing
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import Independent
from examples import IMAGES, smoothed

X = IMAGES.numpy()


def undecided(images: Tensor) -> Tensor:
    """Classify by the parity of the first bits of an image, which noise makes random."""
    parity = (images.double().sum((1, 2, 3)) * 2**20).long() % 2
    return torch.stack([parity, 1 - parity], dim=1).float()


@pytest.fixture
def wavering() -> RandomizedSmoothing:
    """A classifier that abstains wherever the noise moves the image."""
    return RandomizedSmoothing(SmoothedClassifier(undecided, Rotation(), Uniform(0.5)))


@pytest.mark.parametrize("n", [100, 700])
def test_guarantee_certify_returns_the_certificates_of_the_library(n: int) -> None:
    """Each image has its own noise, that of its place, and its radius loses no bit."""
    g = smoothed()
    predictions, radii = RandomizedSmoothing(g, n0=50, alpha=0.01).certify(X, n, seed=3)
    for index, image in enumerate(X):
        certificate = g.certify(image, n, 50, 0.01, seed=3, index=index)
        assert certificate.counts.n == n
        assert certificate.prediction == (predictions[index] if predictions[index] >= 0 else None)
        assert radii[index] == certificate.radius, "not even the last bit is rounded up"
    assert predictions.shape == radii.shape == (len(X),)
    assert predictions.dtype == np.int64
    assert radii.dtype == np.float64
    assert (radii > 0).any()


def test_a_threshold_that_single_precision_would_pass_is_not_passed() -> None:
    """NumPy rounds a number to the precision of the array it is compared with."""
    _, radii = RandomizedSmoothing(smoothed()).certify(X, 1000, seed=0)
    radius = radii[radii > 0][:1]
    above = float(np.nextafter(radius[0], 9))
    assert not (radius >= above).any()
    assert (radius.astype(np.float32) >= above).any()


def test_guarantee_predict_is_that_of_the_library() -> None:
    g = smoothed()
    rows = RandomizedSmoothing(g, n=300, alpha=0.01).predict(X, seed=3)
    assert rows.shape == (len(X), 5)
    for index, (image, row) in enumerate(zip(X, rows, strict=True)):
        prediction = g.predict(image, 300, 0.01, 3, index=index)
        assert row.sum() == (prediction is not None)
        assert prediction is None or row[prediction] == 1


def test_abstention_is_minus_one_with_radius_zero_and_a_row_of_zeros(
    wavering: RandomizedSmoothing,
) -> None:
    """The seed is fixed; with another, at most one in 160 fails: six results at alpha each."""
    predictions, radii = wavering.certify(X, 200, seed=1)
    assert predictions.tolist() == [-1, -1, -1]
    assert radii.tolist() == [0, 0, 0]
    assert not wavering.predict(X, seed=1).any()


@pytest.mark.usefixtures("random_seeds")
def test_the_seed_is_fresh_in_every_call() -> None:
    """Counts near 700 of 1,000 vary by dozens: those of three images are not equal five times."""
    smoothing = RandomizedSmoothing(smoothed())
    assert len({smoothing.certify(X, 1000)[1].tobytes() for _ in range(5)}) > 1


def test_the_batch_size_changes_no_result() -> None:
    smoothing = RandomizedSmoothing(smoothed(), n=200)
    whole, parts = (smoothing.certify(X, 200, size, seed=3) for size in (None, 7))
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(smoothing.predict(X, seed=3), smoothing.predict(X, 7, seed=3))
    with pytest.raises(InputError, match="batch_size"):
        smoothing.predict(X, batch_size=0)


@pytest.mark.parametrize("x", [X + 1, X - 0.1, X * np.nan, X[0], X[None]])
def test_other_images_are_errors(x: np.ndarray) -> None:
    smoothing = RandomizedSmoothing(smoothed())
    with pytest.raises(InputError):
        smoothing.certify(x, 100)
    with pytest.raises(InputError):
        smoothing.predict(x)


def test_settings_are_checked_at_once() -> None:
    with pytest.raises(InputError, match="alpha is 2"):
        RandomizedSmoothing(smoothed(), alpha=2)
    with pytest.raises(InputError, match="n is 0"):
        RandomizedSmoothing(smoothed()).certify(X, 0)
    several = SmoothedClassifier(
        undecided, Compose(Rotation(), Scaling()), Independent(Uniform(0.5), Uniform(0.1))
    )
    with pytest.raises(UnsupportedError, match="must have one radius in ART"):
        RandomizedSmoothing(several)


@pytest.mark.filterwarnings("ignore")
def test_the_arguments_have_the_names_and_order_of_art() -> None:
    """Checked against version 1.20.1."""
    theirs = pytest.importorskip("art.estimators.certification.randomized_smoothing")
    mixin = theirs.randomized_smoothing.RandomizedSmoothingMixin
    for name in ("certify", "predict"):
        given = list(inspect.signature(getattr(mixin, name)).parameters)
        own = list(inspect.signature(getattr(RandomizedSmoothing, name)).parameters)
        assert own[:-1] == given[: len(own) - 1]
        assert own[-1] == "seed"
