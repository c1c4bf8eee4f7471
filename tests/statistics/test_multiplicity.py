"""How many certificates of a test set are false: exact tails, coverage, broken variants."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from deformrs.errors import InputError
from deformrs.randomness import BLOCK, Stage
from deformrs.statistics import clopper_pearson_lower, most_false, shared_alpha, shared_noise
from exact import HP, high, upper_tail

SETS = 20_000
ALPHA, IMAGES, FAILURE = 0.05, 200, 0.05


def rejects(wrong: int, sets: int = SETS, failure: float = FAILURE) -> bool:
    """Return whether "at most a share `failure` of the sets is wrong" is untenable.

    Of a true statement, with probability at most 1e-6.
    """
    return bool(binomtest(wrong, sets, failure, alternative="greater").pvalue < 1e-6)


@pytest.mark.parametrize(
    ("images", "most"), [(1, 0), (20, 1), (100, 2), (1000, 5), (10_000, 21), (50_000, 73)]
)
def test_known_values(images: int, most: int) -> None:
    """The quantiles of scipy.stats.binom, which is another way to the same sums."""
    assert most_false(images, 0.001, 0.001) == most
    assert most == (0 if images == 1 else binom.ppf(1 - 0.001, images, 0.001))


@pytest.mark.parametrize("images", [1, 2, 7, 40, 1000, 10_000, 1_000_000])
@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.001, 1e-7])
@pytest.mark.parametrize("failure", [0.05, 0.001, 1e-9])
def test_guarantee_most_false_agrees_with_60_digits(
    images: int, alpha: float, failure: float
) -> None:
    """P(Bin > k) is at most the failure probability, and P(Bin > k - 1) is not."""
    most = most_false(images, alpha, failure)
    level, allowed = Fraction(alpha), high(failure) * (1 + HP.mpf(10) ** -50)  # a tie, if one image
    assert 0 <= most <= images
    if most < images:
        assert upper_tail(most + 1, images, level, tiny=True) <= allowed
    if most > 0:
        assert upper_tail(most, images, level, tiny=True) > allowed * (1 - high(1e-8))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(1, 40), st.sampled_from([Fraction(1, 4), Fraction(1, 16)]), st.floats(1e-6, 0.4))
def test_agrees_with_sums_of_fractions(images: int, alpha: Fraction, failure: float) -> None:
    chances = [
        math.comb(images, k) * alpha**k * (1 - alpha) ** (images - k) for k in range(images + 1)
    ]
    tails = [sum(chances[k + 1 :]) for k in range(images + 1)]
    allowed = next(k for k, tail in enumerate(tails) if tail <= Fraction(failure))
    assert most_false(images, float(alpha), failure) == allowed


@pytest.mark.parametrize(
    ("images", "alpha", "k"), [(40, 0.05, 3), (1000, 0.001, 0), (10_000, 0.001, 21)]
)
def test_tails_are_rounded_up_by_far_more_than_their_error(
    images: int, alpha: float, k: int
) -> None:
    """A failure probability that the tail at k just meets is not enough."""
    tail = float(upper_tail(k + 1, images, Fraction(alpha)))
    assert most_false(images, alpha, tail * (1 + 1e-8)) == k
    assert most_false(images, alpha, tail * (1 + 1e-10)) == k + 1


def sums_of(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the law of the number of events of these probabilities, by dynamic programming."""
    law = np.array([1.0])
    for chance in chances.tolist():
        law = np.convolve(law, [1 - chance, chance])
    return law


@pytest.mark.parametrize("seed", range(5))
def test_guarantee_most_false_covers_images_that_err_less_often(seed: int) -> None:
    """Exactly, for probabilities of up to alpha: images that err less often do not hurt."""
    chances = np.random.default_rng(seed).uniform(0, ALPHA, IMAGES)
    chances[: 40 * seed] = ALPHA
    most = most_false(IMAGES, ALPHA, FAILURE)
    assert sums_of(chances)[most + 1 :].sum() <= FAILURE
    assert sums_of(np.full(IMAGES, ALPHA))[most:].sum() > FAILURE, "it is the least such number"


def false_and_stated(seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Simulate sets of images of p = 1/2: all certificates are false, and the other images abstain.

    n = 100 samples of each, so that the lower bound exceeds 1/2 with probability at most ALPHA.
    Return how many are false, and how many images do not abstain: the same.
    """
    needed = next(k for k in range(101) if clopper_pearson_lower(k, 100, ALPHA) > 0.5)
    hits = np.random.default_rng(seed).binomial(100, 0.5, size=(SETS, IMAGES))
    false = (hits >= needed).sum(axis=1)
    return false, false.copy()


def test_guarantee_most_false_covers_simulated_sets() -> None:
    false, _ = false_and_stated()
    assert false.mean() > 0.7 * ALPHA * IMAGES, "the sets err nearly as often as they may"
    assert not rejects(int((false > most_false(IMAGES, ALPHA, FAILURE)).sum()))
    # As strict as it may be: of independent errors of probability alpha each.
    independent = np.random.default_rng(1).binomial(IMAGES, ALPHA, SETS)
    assert not rejects(int((independent > most_false(IMAGES, ALPHA, FAILURE)).sum()))


def test_counting_only_the_images_that_do_not_abstain_is_rejected() -> None:
    """All of those are false here, and a few of so few images should be: nearly every set fails."""
    false, stated = false_and_stated()
    allowed = np.array([most_false(max(1, k), ALPHA, FAILURE) for k in range(IMAGES + 1)])
    wrong = int((false > allowed[stated]).sum())
    assert rejects(wrong)
    assert wrong > 0.9 * SETS


def test_noise_that_images_share_is_rejected() -> None:
    """Groups of 20 images with the same noise err together."""
    groups = np.random.default_rng(2).binomial(IMAGES // 20, ALPHA, SETS)
    wrong = int((20 * groups > most_false(IMAGES, ALPHA, FAILURE)).sum())
    assert rejects(wrong)


def test_the_mean_instead_of_a_quantile_is_rejected() -> None:
    false = np.random.default_rng(3).binomial(IMAGES, ALPHA, SETS)
    assert rejects(int((false > ALPHA * IMAGES).sum()))


def test_tiny_tails_are_not_taken_for_zero() -> None:
    """SciPy's tails underflow below 1e-240: then every certificate may be false."""
    assert most_false(100, 1e-9, 1e-150) == 100


@given(st.integers(1, 10_000_000), st.floats(1e-9, 0.9))
def test_guarantee_shared_alpha_adds_up_to_at_most_alpha(images: int, alpha: float) -> None:
    level = shared_alpha(alpha, images)
    assert images * Fraction(level) <= Fraction(alpha)
    assert images * Fraction(math.nextafter(level, 1)) > Fraction(alpha), "and to no less"
    assert most_false(images, level, alpha) == 0


def test_a_share_below_the_entropy_of_the_seed_is_refused() -> None:
    assert shared_alpha(2.0**-60, 16) == 2.0**-64
    with pytest.raises(InputError, match="shared by 17 images; it must leave each at least 2"):
        shared_alpha(2.0**-60, 17)


@pytest.mark.parametrize("samples", [2, 255, 257, 1100, 100_100])
def test_guarantee_shared_noise_is_a_union_bound_over_pairs(samples: int) -> None:
    """The starts that an image takes, of all stages, against the exact share of overlaps."""
    taken = max(
        block * len(Stage) + stage + 1 for stage in Stage for block in range(-(-samples // BLOCK))
    )
    assert taken <= samples + 3
    for images in (1, 2, 50_000):
        pairs = images * (images - 1) // 2
        found = Fraction(shared_noise(images, samples))
        assert found >= Fraction(pairs * (2 * taken - 1), 2**64)
        stated = Fraction(images**2 * (samples + 3), 2**64)
        assert stated < found < stated * Fraction(1 + 1e-11)
    assert shared_noise(50_000, 100_100) < 2e-5


@pytest.mark.parametrize(
    "arguments", [(0, 0.1, 0.1), (1.5, 0.1, 0.1), (10, 0.0, 0.1), (10, 0.1, 1.0), (10, 2, 0.1)]
)
def test_what_is_no_probability_is_refused(arguments: tuple[int, float, float]) -> None:
    with pytest.raises(InputError):
        most_false(*arguments)


@pytest.mark.parametrize("images", [0, -1, 1.5])
def test_what_is_no_number_of_images_or_samples_is_refused(images: int) -> None:
    for call in (partial(shared_alpha, 0.1), partial(shared_noise, samples=10)):
        with pytest.raises(InputError, match="the number of images is"):
            call(images)
    with pytest.raises(InputError, match="samples is"):
        shared_noise(10, images)
    assert shared_noise(1, 1) > 0


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0, math.nan])
def test_an_alpha_that_cannot_be_shared_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="must lie in"):
        shared_alpha(alpha, 1)
