"""Plain accuracy near chance: a sign of wrong labels, preprocessing or weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scipy.special import bdtr, bdtrc

from deformrs.rounding import percent_down
from deformrs.runs import Result

LOOKS = (20, 50, 100, 200, 500, 1000)
"""Numbers of images after which a run is tested, besides its end."""
_LEVEL = 0.01
_MARGIN, _DECENT = 0.05, 1 / 3
"""Fractions of the way from chance to 1: what counts as chance still, and as a decent model."""


def is_near_chance(right: int, total: int, num_classes: int) -> bool:
    """Return whether an accuracy may be that of guessing, and is not that of a decent model.

    Both are binomial tests at level 1 %: that the accuracy is above chance and a margin fails, and
    that it is as low as this under a decent model is excluded. So few images never tell.

    >>> is_near_chance(1, 20, 10), is_near_chance(12, 20, 10), is_near_chance(0, 5, 10)
    (True, False, False)
    """
    chance = 1 / num_classes
    near, decent = (chance + part * (1 - chance) for part in (_MARGIN, _DECENT))
    above = right > 0 and bdtrc(right - 1, total, near) <= _LEVEL
    return not above and bool(bdtr(right, total, decent) < _LEVEL)


def is_below_chance(right: int, total: int, num_classes: int) -> bool:
    """Return whether an accuracy is lower than guessing would be, as with labels that are swapped.

    >>> is_below_chance(0, 20, 2), is_below_chance(0, 20, 10)
    (True, False)
    """
    return bool(bdtr(right, total, 1 / num_classes) < _LEVEL / 10)


class AccuracyWatch:
    """Warns once if the plain accuracy of a run is near chance.

    `causes(below)` lists the likely causes and how to check each, the likeliest first.
    """

    def __init__(
        self,
        total: int,
        num_classes: int,
        causes: Callable[[bool], Sequence[str]],
        warn: Callable[[str], None],
    ) -> None:
        self._total, self._num_classes = total, num_classes
        self._causes, self._warn = causes, warn
        self._seen = self._known = self._right = 0
        self._labels: set[int] = set()
        self._warned = False

    def add(self, result: Result) -> None:
        """Take a result into account, and warn if the accuracy is near chance by now."""
        self._seen += 1
        self._labels.add(result.label)
        if result.plain is not None:
            self._known += 1
            self._right += result.plain == result.label
        ends = self._seen == self._total
        # Images of one class, often the first of a folder, say little about all.
        due = ends or (self._seen in LOOKS and len(self._labels) > 1)
        if due and not self._warned and is_near_chance(*self._counts):
            self._warned = True
            # Of images of one class, a constant prediction has all or none right.
            below = len(self._labels) > 1 and is_below_chance(*self._counts)
            self._warn("\n".join([self._words(below), *(f"  - {c}" for c in self._causes(below))]))

    @property
    def _counts(self) -> tuple[int, int, int]:
        return self._right, self._known, self._num_classes

    def _words(self, below: bool) -> str:
        right, known, num_classes = self._counts
        one_class = ", all of one class," if len(self._labels) == 1 else ""
        return (
            f"without noise the model is right on {right} of {known} images{one_class} "
            f"({percent_down(right, known)} %), {'below' if below else 'near'} the "
            f"{100 / num_classes:.3g} % of guessing among {num_classes} classes. Likely causes:"
        )
