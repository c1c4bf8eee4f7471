"""How long a certification will take: a short measurement, and the estimate in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from deformrs.space import Space

_ENOUGH, _MOST = 1.5, 3.0
"""Seconds that a measurement takes if it can, and that it does not exceed if it can."""

_GROWTH = 4

_EASY, _HARD = 200, 50
"""For a rough guide: samples that decide an easy image, and one hard image in so many a query.

On the safe side of the images counted in docs/speed.md.
"""
_MUCH = 2
"""Shorter times are named where they are so many times shorter."""


def samples_per_second(
    count: Callable[[int], object],
    most: int,
    *,
    first: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the speed of `count(n)`, which counts n samples and waits for them.

    It begins with `first` samples, and goes on with more, `most` at once, for a second or two. The
    first call, which may load and allocate, is left out. The best time counts: a busy machine only
    makes it worse.
    """
    count(first)
    size, spent, speed = first, 0.0, 0.0
    before: tuple[int, float] | None = None
    while True:
        began = clock()
        count(size)
        seconds = max(clock() - began, 1e-9)
        spent += seconds
        speed = max(speed, size / seconds)
        # Part of a call's time does not depend on its size.
        each = seconds / size
        if before is not None:
            each = max(0.0, (seconds - before[1]) / (size - before[0]))
        larger = _GROWTH * size
        expected = seconds + (larger - size) * each
        if spent >= _ENOUGH or larger > most or spent + expected > _MOST:
            return speed
        before = size, seconds
        size = larger


@dataclass(frozen=True)
class Cost:
    """What determines the time of a run: `images` left, samples of each, and the speed."""

    images: int
    n0: int
    n: int
    speed: float
    """Samples per second."""

    def words(self, queries: int, suggestion: str | None, *, until: bool = False) -> list[str]:
        """Return the estimate in words, as one or two texts.

        `queries` is the number of radii and regions that end the sampling of an image, and `until`
        says that something does. `suggestion` is an option that would shorten a run in which
        nothing does.
        """
        longest = self.images * (self.n0 + self.n) / self.speed
        digits = f"{self.speed:,.0f}" if self.speed >= 10 else f"{self.speed:.2g}"
        at_most = f"at most {duration(longest)} ({digits} samples/s)"
        if queries:
            guide, hard = self._deciding(queries)
            if longest < _MUCH * guide:
                return [at_most]
            return [f"roughly {duration(guide)}, if {hard} all {self.n:,} samples; {at_most}"]
        if until:
            return [f"{at_most}, mostly less: sampling stops by itself"]
        about = "about " if longest >= 1 else ""
        texts = [f"{about}{duration(longest)} at {self.n:,} samples an image ({digits} samples/s)"]
        guide, hard = self._deciding(1)
        if suggestion and longest >= max(60, _MUCH * guide):
            texts.append(f"with {suggestion} roughly {duration(guide)}, if {hard} all of them")
        return texts

    def _deciding(self, queries: int) -> tuple[float, str]:
        """Return a rough guide to the seconds until all images are decided, and its assumption."""
        hard = min(self.images, math.ceil(self.images * queries / _HARD))
        easy = min(self.n, _EASY)
        samples = self.images * (self.n0 + easy) + hard * (self.n - easy)
        need = f"{hard:,} of {self.images:,} images need{'s' * (hard == 1)}"
        return samples / self.speed, need


def duration(seconds: float) -> str:
    """Return a time to two digits, in the unit that people would use.

    >>> duration(0.2), duration(41.6), duration(540), duration(97_200), duration(864_000)
    ('less than a second', '42 s', '9 min', '27 h', '10 days')
    """
    if seconds < 1:
        return "less than a second"
    for size, unit, most in ((1, "s", 99), (60, "min", 99), (3600, "h", 72)):
        value = seconds / size
        if round(value) <= most:
            return f"{value:.1f} {unit}" if value < 3 and unit == "h" else f"{value:.0f} {unit}"
    return f"{seconds / 86400:,.0f} days"


def suggested_radius(scale: float, space: Space) -> str | None:
    """Return a round radius, about a third of the noise, as an option: `--radii 10deg`.

    None where one radius does not say what is certified.
    """
    if len(space.blocks) != 1:
        return None
    unit = space.blocks[0].unit
    third = scale * unit.factor(space.size) / 3 * (1 + 1e-9)
    power = 10.0 ** math.floor(math.log10(third))
    step = max(step for step in (1, 2, 3, 5) if step * power <= third)
    return f"--radii {step * power:.9g}{unit.suffix}"
