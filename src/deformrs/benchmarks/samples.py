"""How many samples the same questions take: a fixed number, or until they are settled."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from deformrs.benchmarks.questions import Questions
from deformrs.benchmarks.subject import Subject
from deformrs.dataset import certify_dataset
from deformrs.report.summary import count_certified
from deformrs.runs import Result
from deformrs.stopping import RadiusQuery, Stopping

N0 = 100
Protocol = Literal["fixed", "adaptive", "decide"]


@dataclass(frozen=True)
class Used:
    """What one protocol took, and what it certified: per cent right and certified at each radius.

    `n` is the most an image may take; `share_of_fixed` is of images * (fixed n + n0).
    `points_from_fixed` is None where the same images were not certified with a fixed number.
    """

    data: str
    model: str
    protocol: Protocol
    asked: str
    n: int
    images: int
    samples: int
    per_image: float
    share_of_fixed: float
    certified: dict[str, float]
    points_from_fixed: dict[str, float] | None
    seconds: float
    samples_per_s: float
    precision: str
    compiled: str
    device: str

    @property
    def key(self) -> tuple[object, ...]:
        """What a later measurement of the same takes the place of."""
        what = (self.protocol, self.asked, self.n, self.images)
        return self.data, self.model, *what, self.precision, self.compiled


@dataclass(frozen=True)
class Setting:
    """What all rows of one classifier have in common."""

    data: str
    model: str
    precision: str
    compiled: str
    device: str


@dataclass(frozen=True)
class AskedOf:
    """One way to ask: `n` is the most samples an image may take."""

    protocol: Protocol
    words: str
    radii: tuple[str, ...]
    """Of which it speaks."""
    n: int
    stopping: Stopping | None = None


def measure_samples(
    subject: Subject, asked: Questions, precision: str, device: str
) -> Iterator[Used]:
    """Every protocol in turn, the fixed one first."""
    total = len(subject.images)
    count = min(asked.subset, total)
    everything = tuple(dict.fromkeys((*asked.radii, asked.radius)))
    compiled = subject.classifier.sampler.compiled
    setting = Setting(subject.data, subject.model, precision, compiled, device)
    fixed: dict[str, float] | None = None
    for one in _protocols(asked, everything):
        used = tally(setting, one, *_sampled(subject, one, count), asked.n, fixed)
        fixed = used.certified if one.protocol == "fixed" else fixed
        yield used
    if asked.whole and total > count:
        for one in _protocols(asked, everything):
            if one.protocol == "decide":
                yield tally(setting, one, *_sampled(subject, one, total), asked.n, None)


def tally(
    setting: Setting,
    asked: AskedOf,
    results: Sequence[Result],
    seconds: float,
    fixed_n: int,
    fixed: dict[str, float] | None,
) -> Used:
    """What results come to, beside `fixed_n` samples an image, and what those certified."""
    samples = samples_of(results)
    certified = certified_at(asked.radii, results)
    return Used(
        data=setting.data,
        model=setting.model,
        protocol=asked.protocol,
        asked=asked.words,
        n=asked.n,
        images=len(results),
        samples=samples,
        per_image=round(samples / len(results), 1),
        share_of_fixed=samples / (len(results) * (fixed_n + N0)),
        certified=certified,
        points_from_fixed=None
        if fixed is None
        else {radius: round(share - fixed[radius], 4) for radius, share in certified.items()},
        seconds=round(seconds, 3),
        samples_per_s=round(samples / seconds, 1),
        precision=setting.precision,
        compiled=setting.compiled,
        device=setting.device,
    )


def certified_at(radii: Sequence[str], results: Sequence[Result]) -> dict[str, float]:
    """Per cent right and certified at each radius."""
    return {
        radius: round(100 * count_certified(results, RadiusQuery(radius)) / len(results), 4)
        for radius in radii
    }


def samples_of(results: Sequence[Result]) -> int:
    """How many samples the certificates rest on."""
    return sum(r.certificate.counts.n0 + r.certificate.counts.n for r in results)


def _protocols(asked: Questions, everything: tuple[str, ...]) -> list[AskedOf]:
    n, lower = asked.n, max(1, asked.n // 10)
    one, several = (asked.radius,), asked.radii
    adaptive = Stopping(tolerance=asked.tolerance)
    return [
        AskedOf("fixed", "", everything, n),
        AskedOf("adaptive", f"gain below {asked.tolerance}", everything, n, adaptive),
        AskedOf("decide", ", ".join(one), one, n, Stopping(radii=one)),
        AskedOf("decide", ", ".join(several), several, n, Stopping(radii=several)),
        # The images that stay open to the end cost half of it: what does it help to wait?
        AskedOf("decide", ", ".join(several), several, lower, Stopping(radii=several)),
    ]


def _sampled(subject: Subject, asked: AskedOf, count: int) -> tuple[list[Result], float]:
    """The results of so many images, and the seconds they took."""
    skip = len(subject.images) // count
    began = time.perf_counter()
    results = certify_dataset(
        subject.classifier,
        subject.images,
        n=asked.n,
        n0=N0,
        skip=skip,
        max=skip * (count - 1) + 1,
        stopping=asked.stopping,
    )
    return list(results), time.perf_counter() - began
