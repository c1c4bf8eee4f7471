"""The any-time bound with a sharp last look."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deformrs.certificate import Counts
from deformrs.errors import InputError
from deformrs.statistics import (
    anytime_lower,
    bound,
    capped_lower,
    capped_method,
    check_method,
    clopper_pearson_lower,
    is_anytime,
)
from deformrs.statistics.sequential import hits_needed, last_lowers


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.data(), st.integers(1, 3000), st.sampled_from([0.001, 0.05, 0.4]))
def test_guarantee_capped_lower_spends_alpha_once(
    data: st.DataObject, trials: int, alpha: float
) -> None:
    """Half on the any-time bound, half on the last look: never more than both allow."""
    hits, most = data.draw(st.integers(0, trials)), data.draw(st.integers(1, 3000))
    found = capped_lower(hits, trials, alpha, most)
    early = anytime_lower(hits, trials, alpha / 2)
    assert found == early if trials != most else found >= early
    assert found <= max(early, clopper_pearson_lower(hits, trials, alpha / 2))
    assert capped_lower(hits, trials, alpha, trials) == max(
        early, clopper_pearson_lower(hits, trials, alpha / 2)
    )


def test_the_last_look_loses_little_against_a_fixed_number() -> None:
    fixed = clopper_pearson_lower(92_000, 100_000, 0.001)
    last = capped_lower(92_000, 100_000, 0.001, 100_000)
    early = anytime_lower(92_000, 100_000, 0.001)
    assert fixed - last < 0.15 * (fixed - early)


@pytest.mark.parametrize("most", [1, 50, 3000, 100_000])
def test_arrays_are_those_of_each(most: int) -> None:
    hits = np.unique(np.linspace(0, most, 60).round().astype(np.int64))
    each = [capped_lower(int(h), most, 0.01, most) for h in hits]
    assert last_lowers(hits, most, 0.01) == pytest.approx(each, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("most", [1, 30, 2000, 100_000])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.999])
def test_the_hits_needed_are_the_least(p: float, most: int) -> None:
    needed = hits_needed(p, 0.001, most)
    if needed <= most:
        assert clopper_pearson_lower(needed, most, 0.0005) >= p * (1 - 1e-8)
    assert clopper_pearson_lower(needed - 1, most, 0.0005) < p


def test_its_name_says_the_number() -> None:
    assert capped_method(700) == "anytime:700"
    counts = Counts((10, 0), (680, 20))
    assert bound(counts, 0.01, "anytime:700").lower == capped_lower(680, 700, 0.01, 700)
    assert bound(counts, 0.01, "anytime:900").lower == capped_lower(680, 700, 0.01, 900)
    assert is_anytime("anytime:700")
    assert is_anytime("anytime")
    assert not is_anytime("clopper_pearson")


@pytest.mark.parametrize(
    "method", ["anytime:", "anytime:0", "anytime:07", "anytime:-5", "anytime:1e3", "anytime:٣", 7]
)
def test_other_names_are_refused(method: object) -> None:
    with pytest.raises(InputError, match="must be a known bound"):
        check_method(method)
