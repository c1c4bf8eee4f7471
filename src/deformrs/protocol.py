"""How many samples images get: the fixed protocol, or as few as settle what is asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from deformrs.certificate import Counts
from deformrs.errors import InputError
from deformrs.randomness import ROOM, Span, Stage
from deformrs.sampling import Sampler, Watch
from deformrs.statistics import capped_method, check_method
from deformrs.stopping import Rule, Stopping, looks


def counts_of(
    sampler: Sampler,
    images: Tensor,
    indices: Sequence[int],
    n: int,
    n0: int,
    *,
    seed: int,
    rule: Rule | None = None,
    watch: Watch | None = None,
    settled: Watch | None = None,
) -> list[Counts]:
    """The counts of each of images: [k, c, h, w], whose samples share batches.

    Each gets n0 samples to select and n to estimate. With a rule the estimation stops where the
    rule says so, image by image; `settled` is told how many did after every look.
    """
    k = len(images)
    # The first k rows are those of the selection, the others those of the estimation.
    counts = np.zeros((2 * k, sampler.num_classes), dtype=np.int64)
    spans = [Span(index, Stage.SELECT, 0, n0, p, p) for p, index in enumerate(indices)]
    active: NDArray[np.intp] = np.arange(k)
    # Looks lie close together at first, and see the same block of noise again and again.
    draws = sampler.draws(images, seed, room=0 if rule is None else ROOM)
    start = 0
    for end in (n,) if rule is None else looks(n):
        spans += [Span(indices[p], Stage.ESTIMATE, start, end, p, k + p) for p in active.tolist()]
        counts += sampler.count(images, spans, 2 * k, seed=seed, draws=draws, watch=watch)
        spans, start = [], end
        if rule is None:
            continue
        candidates = counts[active].argmax(axis=1)  # the first of equals, as in `Counts`
        hits = counts[k + active, candidates]
        left = active[~rule.settled(hits, np.full(len(active), end))]
        if settled is not None:
            settled(len(active) - len(left))
        active = left
        if not len(active):
            break
    rows = [tuple(row) for row in counts.tolist()]
    return [Counts(*both) for both in zip(rows[:k], rows[k:], strict=True)]


def method_for(method: str | None, stopping: Stopping | None, n: int) -> str:
    """The bound that counts are certified with, of at most n samples."""
    if not (stopping is None or isinstance(stopping, Stopping)):
        raise InputError(
            "stopping", repr(stopping), "must be a Stopping", "e.g. Stopping(radii=('10deg',))"
        )
    capped = capped_method(n)
    check_method(capped)
    if method is None:
        return "clopper_pearson" if stopping is None else capped
    check_method(method)
    if stopping is not None and method not in ("anytime", capped):
        raise InputError(
            "the method",
            repr(method),
            f"must be {capped!r} or 'anytime' where sampling stops by what was seen",
            "leave it out; any other bound would err more often than alpha",
        )
    return method
