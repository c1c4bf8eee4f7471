"""Statements about many certificates at once: how many may be false, and all of them together.

Derivations: docs/theory.md, section 8.
"""

from __future__ import annotations

from fractions import Fraction

from scipy.special import betainc

from deformrs.checks import SEED_BITS, check_alpha, check_integer
from deformrs.errors import InputError
from deformrs.rounding import float_down, round_up

_SAFETY = 1e-9
"""Far above the relative error of SciPy's binomial tail, which is 1.4e-12 at 10^6 trials."""

_TINY = 1e-100
"""Smaller tails are taken for this: SciPy's may underflow to 0."""


def most_false(images: int, alpha: float, failure: float) -> int:
    """Return how many of the certificates of that many images may be false.

    Guarantee: if the number of images was fixed before sampling and their noise is independent,
    more of their certificates are false with probability at most `failure`.

    The least k with P(Bin(images, alpha) > k) <= failure, rounded up. `images` counts those on
    which the classifier abstains too: how many do depends on the samples.

    >>> most_false(10_000, 0.001, 0.001)
    21
    """
    check_integer("the number of images", images, least=1)
    check_alpha(alpha)
    check_alpha(failure)
    if images * Fraction(alpha) <= Fraction(failure):  # by the union bound
        return 0
    low, high = 0, int(images)
    while low < high:
        middle = (low + high) // 2
        tail = max(_TINY, float(betainc(middle + 1, images - middle, alpha)))
        if round_up(tail, _SAFETY) <= failure:
            high = middle
        else:
            low = middle + 1
    return low


def shared_alpha(alpha: float, images: int) -> float:
    """Return the level of each certificate that lets all of them hold together.

    Guarantee: `images` times the result is at most alpha, so by the union bound any of that many
    certificates of this level is false with probability at most alpha.

    >>> shared_alpha(0.001, 10_000)
    1e-07
    """
    check_integer("the number of images", images, least=1)
    check_alpha(alpha)
    level = float_down(Fraction(alpha) / int(images))
    if level < 2.0**-SEED_BITS:
        raise InputError(
            "alpha",
            f"{alpha:g}, shared by {images:,} images",
            f"must leave each at least 2**-{SEED_BITS}, about {2.0**-SEED_BITS:.1g}: the entropy "
            "of the seed is the limit",
            "choose a larger alpha, or fewer images",
        )
    return level


def shared_noise(images: int, samples: int) -> float:
    """Return a bound on the probability that the noise of two images is not independent on a GPU.

    Guarantee: two of the images draw from one stream with probability at most the result, if each
    has at most `samples` samples in both stages together, and the starts of its streams are
    consecutive among 2**64 from a random one.

    >>> shared_noise(10_000, 100_100) < 1e-6
    True
    """
    check_integer("the number of images", images, least=1)
    check_integer("samples", samples, least=1)
    # Of four stages, three share a row of starts and one goes the other way: with blocks of 256
    # samples, an image takes fewer than samples + 3 of them.
    # Two intervals of that length overlap for fewer than 2 (samples + 3) differences of 2**64.
    return round_up(float(Fraction(int(images) ** 2 * (int(samples) + 3), 2**64)))
