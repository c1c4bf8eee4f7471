"""Finding the end of a safe range."""

from __future__ import annotations

import math

import pytest

from deformrs.statistics.search import last_safe


@pytest.mark.parametrize("end", [0.0, 1e-300, 0.1, 0.5, math.pi / 4, 1 - 1e-16])
def test_guarantee_last_safe_is_safe_and_next_to_what_is_not(end: float) -> None:
    """From below and, mirrored, from above."""
    found = last_safe(lambda p: p <= end, safe=0.0, unsafe=1.0)
    assert found <= end < math.nextafter(found, 2)
    found = last_safe(lambda p: p >= end, safe=1.0, unsafe=0.0)
    assert math.nextafter(found, -1) <= end <= found


def test_nothing_safe_leaves_it_where_it_began() -> None:
    """Not even an answer that is no number moves it."""
    assert last_safe(lambda p: False, safe=0.0, unsafe=1.0) == 0.0
    assert last_safe(lambda p: math.nan <= p, safe=1.0, unsafe=0.0) == 1.0
