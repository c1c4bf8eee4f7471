"""The sign test: the p-value by which a smoothed prediction abstains."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from scipy.stats import binomtest

from deformrs.errors import InputError
from deformrs.statistics import sign_test


def exact(first: int, second: int) -> Fraction:
    """min(1, 2 P(Bin(N, 1/2) >= m)), counted in integers."""
    total, larger = first + second, max(first, second)
    ways = sum(math.comb(total, k) for k in range(larger, total + 1))
    return min(Fraction(1), Fraction(2 * ways, 2**total))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (10, 0, 2 / 2**10),  # both ends of ten fair coins
        (9, 1, 22 / 2**10),  # (10 + 1) outcomes at each end
        (8, 2, 112 / 2**10),  # (45 + 10 + 1) at each end
        (5, 5, 1.0),  # a tie: 2 * 638/1024, capped
        (1, 0, 1.0),
    ],
)
def test_textbook_values(first: int, second: int, expected: float) -> None:
    assert sign_test(first, second) == pytest.approx(expected, rel=1e-11)
    assert sign_test(second, first) == sign_test(first, second)


def test_is_exact_for_every_pair_of_up_to_sixty_answers() -> None:
    for total in range(1, 61):
        for first in range(total + 1):
            p_value, reference = sign_test(first, total - first), exact(first, total - first)
            assert reference <= Fraction(p_value) or p_value == 1 == reference
            assert p_value == pytest.approx(float(reference), rel=1e-11)


@pytest.mark.parametrize(("first", "second"), [(60, 40), (501, 499), (5200, 4800), (1, 37)])
def test_agrees_with_scipy(first: int, second: int) -> None:
    reference = binomtest(first, first + second, 0.5).pvalue
    assert sign_test(first, second) == pytest.approx(reference, rel=1e-9)


@pytest.mark.parametrize("total", [1, 2, 7, 20, 51])
def test_guarantee_sign_test_p_value_is_at_most_alpha_with_probability_at_most_alpha(
    total: int,
) -> None:
    """Exactly, for every alpha at which anything changes: the p-values themselves."""
    p_values = {k: Fraction(sign_test(k, total - k)) for k in range(total + 1)}
    for alpha in p_values.values():
        ways = sum(math.comb(total, k) for k, p_value in p_values.items() if p_value <= alpha)
        assert Fraction(ways, 2**total) <= alpha


def test_more_evidence_gives_a_smaller_p_value() -> None:
    p_values = [sign_test(k, 100 - k) for k in range(50, 101)]
    assert all(a > b for a, b in itertools.pairwise(p_values[1:]))


@pytest.mark.parametrize(("first", "second"), [(0, 0), (-1, 3), (3, -1)])
def test_impossible_counts_are_refused(first: int, second: int) -> None:
    with pytest.raises(InputError, match=r"is -?\d+; it must"):
        sign_test(first, second)
