"""Classifiers of exactly known truth, as data.

A classifier reads one parameter off a deformed ramp and answers by the interval it lies in, so the
probability of each class is a difference of the law's distribution function, at any shift, and the
radius within which the most probable class stays the same is known. A half-space under Gaussian
noise and a threshold under uniform noise are the worst cases of these laws: there the bounds are
tight, and a certifier that promises a little too much is false with a rate that few runs show.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from deformrs import Deformation, Gaussian, Rotation, Shear, Stopping, Translation, Uniform
from deformrs.plan import SamplingPlan
from deformrs.space import Space
from deformrs.statistics import clopper_pearson_lower
from images import places, ramp

SIZE = (4, 4)
ALPHA = 0.05


def angle(images: Tensor) -> Tensor:
    """The direction in which the middle of the ramp was read."""
    read = places(images)[:, :, 1:3, 1:3]
    along = (read[..., 1] - read[..., 0]).mean(dim=2)
    return torch.atan2(along[:, 1], along[:, 0])


def shear(images: Tensor) -> Tensor:
    """The middle of the top row, at y = -¾, was read at x - ¾ s."""
    return -places(images)[:, 0, 0, 1:3].mean(dim=1) / 0.75


def shift(images: Tensor) -> Tensor:
    """The x at which the middle was read."""
    return places(images)[:, 0, 1:3, 1:3].mean(dim=(1, 2))


READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "rotation": angle,
    "shear": shear,
    "translation": shift,
}


@dataclass(frozen=True)
class Truth:
    """A classifier, its noise, the protocol, and the true radius of its most probable class.

    It answers `answers[k]` where what it reads lies between `cuts[k - 1]` and `cuts[k]`. `radius`
    is 0 where two classes are equally probable. With `drawn`, counts are drawn from the exact
    probabilities rather than sampled through images, which is cheaper. `useful`: at least half of
    the runs certify this share of the true radius.
    """

    name: str
    deformation: Deformation
    noise: Uniform | Gaussian
    cuts: tuple[float, ...]
    answers: tuple[int, ...]
    radius: float
    n: int = 100
    n0: int = 30
    method: str = "clopper_pearson"
    runs: int = 2000
    drawn: bool = False
    useful: float = 0.0
    stops: bool = False

    @property
    def classes(self) -> int:
        return max(2, *self.answers) + (max(self.answers) > 1)

    @property
    def space(self) -> Space:
        return self.deformation.space(SIZE)

    @property
    def image(self) -> Tensor:
        return ramp(SIZE[0])

    def plan(self, seed: int) -> SamplingPlan:
        """Return the plan. If it `stops`, a radius is requested that is just too large."""
        if not self.stops:
            return SamplingPlan(self.n, self.n0, ALPHA, seed, self.method)
        stopping = Stopping(radii=(self.radius * (1 + 1e-6),))
        return SamplingPlan(self.n, self.n0, ALPHA, seed, self.method, stopping)

    def model(self, images: Tensor) -> Tensor:
        """Return the scores of each class: [n, K]."""
        read = READERS[self.deformation.name](images).double()
        places = torch.bucketize(read, torch.tensor(self.cuts, dtype=torch.float64), right=True)
        classes = torch.tensor(self.answers)[places]
        return torch.nn.functional.one_hot(classes, self.classes).float()

    def probabilities(self, moved: float = 0.0) -> tuple[float, ...]:
        """Return the exact probability of each class under the noise, shifted along the reading."""
        found = np.zeros(self.classes)
        scale = self.noise.scale
        assert isinstance(scale, float)
        turns = (-1, 0, 1) if self.deformation.name == "rotation" else (0,)
        ends = (-math.inf, *self.cuts, math.inf)
        if len(turns) > 1:
            ends = (-math.pi, *self.cuts, math.pi)
        for turn in turns:
            at = np.array(ends) + turn * math.tau - moved
            if isinstance(self.noise, Gaussian):
                below = ndtr(at / scale)
            else:
                below = np.clip((at + scale) / (2 * scale), 0, 1)
            np.add.at(found, list(self.answers), np.diff(below))
        return tuple(found.tolist())

    @functools.cached_property
    def exact(self) -> tuple[float, ...]:
        return self.probabilities()

    @property
    def top(self) -> int:
        """The most probable class, the last of equals."""
        return max(range(self.classes), key=lambda c: (self.exact[c], c))


def half_space(name: str, p: float, scale: float, **protocol: object) -> Truth:
    """Return the worst case of Gaussian noise: class 1 below a threshold, with probability p."""
    at = scale * float(ndtri(p))
    return Truth(name, Shear(), Gaussian(scale), (at,), (1, 0), at, **protocol)  # type: ignore[arg-type]


def several(name: str, probabilities: tuple[float, ...], **protocol: object) -> Truth:
    """Return a classifier of several classes with these probabilities, two of them largest."""
    cuts = tuple(0.1 * float(ndtri(p)) for p in np.cumsum(probabilities)[:-1])
    answers = tuple(range(len(probabilities)))
    return Truth(name, Shear(), Gaussian(0.1), cuts, answers, 0.0, **protocol)  # type: ignore[arg-type]


def comb(teeth: int = 128, duty: float = 0.1) -> Truth:
    """Return a classifier that answers 1 near the values that coarse noise takes, 0 elsewhere."""
    step = 0.4 / teeth
    middles = [k * step for k in range(-teeth, teeth + 1)]
    cuts = tuple(m + side * duty * step / 2 for m in middles for side in (-1, 1))
    answers = (*(0, 1) * len(middles), 0)
    return Truth("comb", Shear(), Uniform(0.4), cuts, answers, math.inf)


def coin_flips(pieces: int = 8192) -> Truth:
    """Return a classifier whose answer changes so often that no stratum knows it."""
    cuts = tuple(0.8 * k / pieces - 0.4 for k in range(1, pieces))
    answers = (0, 1) * (pieces // 2)
    protocol = {"n": 2048, "n0": 20, "stops": True, "method": "auto"}
    return Truth("coin flips", Shear(), Uniform(0.4), cuts, answers, 0.0, **protocol)  # type: ignore[arg-type]


# Just below a value of the bound: it is exceeded with a probability of almost exactly alpha.
_JUST = clopper_pearson_lower(18, 20, ALPHA) * (1 - 1e-6)
_TWO_OF_TEN = (0.3, 0.3, *(0.05,) * 8)
_DEGREES = math.radians(9.9)

TRUTHS = (
    half_space("even", 0.5, 0.1, n=130),
    half_space("likely", 0.8, 0.1, n=130, useful=0.6),
    half_space("just", _JUST, 0.1, n=20, n0=20),
    half_space("drawn even", 0.5, 0.1, n=200, runs=20_000, drawn=True),
    half_space("drawn likely", 0.9, 0.1, n=200, runs=20_000, drawn=True, useful=0.7),
    half_space("drawn sure", 0.99, 0.1, n=200, runs=20_000, drawn=True, useful=0.7),
    half_space("drawn any time", 0.9, 0.1, n=200, runs=20_000, drawn=True, method="anytime"),
    half_space("drawn capped", 0.9, 0.1, n=200, runs=20_000, drawn=True, method="anytime:200"),
    half_space("drawn runner-up", 0.9, 0.1, n=200, runs=20_000, drawn=True, method="runner_up"),
    Truth("arc", Rotation(), Uniform(0.9), (0.72,), (1, 0), 0.72, useful=0.8),
    Truth("gap", Rotation(), Uniform(1.6), (1 - math.pi, math.pi - 1), (0, 1, 0), math.pi - 1),
    Truth(
        "degrees",
        Rotation(),
        Uniform(_DEGREES / 0.9),
        (_DEGREES,),
        (1, 0),
        _DEGREES,
        n=2000,
        runs=200,
        useful=0.95,
    ),
    Truth(
        "plane",
        Translation(),
        Gaussian(0.12),
        (0.12 * float(ndtri(0.9)),),
        (1, 0),
        0.12 * float(ndtri(0.9)),
        runs=1000,
        useful=0.6,
    ),
    comb(),
    several("tie of ten", (0.1,) * 10, n=100, n0=100, drawn=True),
    several("two of ten", _TWO_OF_TEN, n=400, runs=7000, method="bonferroni", drawn=True),
    several("two of ten, ahead", _TWO_OF_TEN, n=400, runs=7000, method="runner_up", drawn=True),
    several("two of ten, chosen", _TWO_OF_TEN, n=400, runs=7000, method="auto", drawn=True),
    several(
        "two of ten, seldom selected", _TWO_OF_TEN, n=400, n0=5, method="runner_up", drawn=True
    ),
    half_space("stops even", 0.55, 0.1, n=220, stops=True, method="anytime:220"),
    half_space("stops likely", 0.8, 0.1, n=220, stops=True, method="anytime:220"),
    several("stops tied", (0.4, 0.4, 0.2), n=220, stops=True, method="auto"),
    half_space("strata", 0.8, 0.1, n=2048, n0=20, stops=True, method="auto", useful=0.9),
    several("tied strata", (0.4, 0.4, 0.2), n=2048, n0=20, stops=True, method="auto"),
    coin_flips(),
    Truth(
        "strata of the plane",
        Translation(),
        Gaussian(0.12),
        (0.12 * float(ndtri(0.7)),),
        (1, 0),
        0.12 * float(ndtri(0.7)),
        n=2048,
        n0=20,
        method="auto",
        runs=1000,
        stops=True,
    ),
)
BY_NAME = {truth.name: truth for truth in TRUTHS}
