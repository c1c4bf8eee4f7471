"""How many samples the same questions take: a fixed number, or until they are settled."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from deformrs.benchmarks.questions import Questions
from deformrs.benchmarks.subject import Subject
from deformrs.engines import certify_dataset
from deformrs.questions import RadiusAsked
from deformrs.runs import Result
from deformrs.stopping import Stopping

N0 = 100
Protocol = Literal["fixed", "adaptive", "decide"]


@dataclass(frozen=True)
class Used:
    """What one protocol took, and what it certified: per cent right and certified at each radius.

    `n` is the most a picture may take; `share_of_fixed` is of pictures * (fixed n + n0).
    `points_from_fixed` is None where the same pictures were not certified with a fixed number.
    """

    data: str
    model: str
    protocol: Protocol
    asked: str
    n: int
    pictures: int
    samples: int
    per_picture: float
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
        what = (self.protocol, self.asked, self.n, self.pictures)
        return self.data, self.model, *what, self.precision, self.compiled


@dataclass(frozen=True)
class _Asked:
    protocol: Protocol
    words: str
    radii: tuple[str, ...]
    """Of which it speaks."""
    stopping: Stopping | None
    n: int


def measure_samples(
    subject: Subject, asked: Questions, precision: str, device: str
) -> Iterator[Used]:
    """Every protocol in turn, the fixed one first."""
    total = len(subject.pictures)
    count = min(asked.subset, total)
    everything = tuple(dict.fromkeys((*asked.radii, asked.radius)))
    fixed: dict[str, float] | None = None
    for one in _protocols(asked, everything):
        used = _used(subject, one, count, asked.n, fixed, precision, device)
        fixed = used.certified if one.protocol == "fixed" else fixed
        yield used
    if asked.whole and total > count:
        for one in _protocols(asked, everything):
            if one.protocol == "decide":
                yield _used(subject, one, total, asked.n, None, precision, device)


def _protocols(asked: Questions, everything: tuple[str, ...]) -> list[_Asked]:
    n, lower = asked.n, max(1, asked.n // 10)
    one, several = (asked.radius,), asked.radii
    return [
        _Asked("fixed", "", everything, None, n),
        _Asked(
            "adaptive",
            f"gain below {asked.tolerance}",
            everything,
            Stopping(tolerance=asked.tolerance),
            n,
        ),
        _Asked("decide", ", ".join(one), one, Stopping(radii=one), n),
        _Asked("decide", ", ".join(several), several, Stopping(radii=several), n),
        # The pictures that stay open to the end cost half of it: what does it help to wait?
        _Asked("decide", ", ".join(several), several, Stopping(radii=several), lower),
    ]


def _used(
    subject: Subject,
    asked: _Asked,
    count: int,
    fixed_n: int,
    fixed: dict[str, float] | None,
    precision: str,
    device: str,
) -> Used:
    skip = len(subject.pictures) // count
    began = time.perf_counter()
    results = list(
        certify_dataset(
            subject.classifier,
            subject.pictures,
            n=asked.n,
            n0=N0,
            skip=skip,
            max=skip * (count - 1) + 1,
            stopping=asked.stopping,
        )
    )
    seconds = time.perf_counter() - began
    samples = samples_of(results)
    certified = _certified(results, asked.radii)
    return Used(
        data=subject.data,
        model=subject.model,
        protocol=asked.protocol,
        asked=asked.words,
        n=asked.n,
        pictures=len(results),
        samples=samples,
        per_picture=round(samples / len(results), 1),
        share_of_fixed=samples / (len(results) * (fixed_n + N0)),
        certified=certified,
        points_from_fixed=None
        if fixed is None
        else {radius: round(share - fixed[radius], 4) for radius, share in certified.items()},
        seconds=round(seconds, 3),
        samples_per_s=round(samples / seconds, 1),
        precision=precision,
        compiled=subject.classifier.sampler.compiled,
        device=device,
    )


def samples_of(results: Sequence[Result]) -> int:
    """How many samples the certificates rest on."""
    return sum(r.certificate.counts.n0 + r.certificate.counts.n for r in results)


def _certified(results: Sequence[Result], radii: Sequence[str]) -> dict[str, float]:
    return {
        radius: round(100 * sum(RadiusAsked(radius).holds(r) for r in results) / len(results), 4)
        for radius in radii
    }
