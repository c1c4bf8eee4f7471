"""Finding the end of a safe range."""

from __future__ import annotations

import functools
import math
import operator

import numpy as np
import pytest

from deformrs.statistics.bounds import last_safe, last_safe_each


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


def test_guarantee_last_safe_each_is_last_safe_of_each() -> None:
    """Ranges from below and from above, of different lengths, none and all of them safe."""
    ends = np.array([0.0, 1e-300, 0.1, 0.5, math.pi / 4, 1 - 1e-16, -1.0, 2.0])
    zero, one = np.zeros(len(ends)), np.ones(len(ends))
    lasts = last_safe_each(lambda p, which: p <= ends[which], safe=zero, unsafe=one)
    firsts = last_safe_each(lambda p, which: p >= ends[which], safe=one, unsafe=zero)
    for end, last, first in zip(ends.tolist(), lasts.tolist(), firsts.tolist(), strict=True):
        assert last == last_safe(functools.partial(operator.ge, end), 0.0, 1.0)
        assert first == last_safe(functools.partial(operator.le, end), 1.0, 0.0)
    # What was given is left as it was, and nothing to search is no trouble.
    assert not zero.any()
    assert last_safe_each(lambda p, which: p < 0, zero[:0], one[:0]).shape == (0,)


def test_answers_that_are_no_numbers_leave_every_range_where_it_began() -> None:
    found = last_safe_each(lambda p, which: p * math.nan > 0, np.zeros(3), np.ones(3))
    assert found.tolist() == [0.0, 0.0, 0.0]
