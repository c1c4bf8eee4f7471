"""Short names for the folders of runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from deformrs.report.layout import one_line


def short_names(places: Sequence[Path]) -> list[str]:
    """For each folder the shortest end of its path that no other has.

    Where they lie in several folders it has two parts or more, but none from above the folder that
    holds them all.

    >>> short_names([Path("/a/mnist/turn-54"), Path("/a/cifar10/turn-54"), Path("/a/one")])
    ['mnist/turn-54', 'cifar10/turn-54', 'one']
    """
    above = os.path.commonpath([place.parent for place in places])
    ways = [tuple(map(one_line, place.relative_to(above).parts)) for place in places]
    least = min(2, len({place.parent for place in places}))
    return ["/".join(_end(number, ways, least)) for number in range(len(ways))]


def _end(number: int, ways: Sequence[tuple[str, ...]], least: int) -> tuple[str, ...]:
    way, others = ways[number], [*ways[:number], *ways[number + 1 :]]
    for parts in range(least, len(way)):
        if all(other[-parts:] != way[-parts:] for other in others):
            return way[-parts:]
    return way
