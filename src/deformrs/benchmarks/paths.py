"""How often two ways to execute the same classifier answer otherwise to the same sample.

The noise is the same on every path; how a network rounds is not, unless on a CPU in
float32 and uncompiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from deformrs.benchmarks.subject import Subject
from deformrs.execution import Compiled
from deformrs.randomness import Span, Stage
from deformrs.sampling import Sampler

SEED = 0


@dataclass(frozen=True)
class Compared:
    """One path beside the one that is certified with, `differing` of `samples` answers apart."""

    data: str
    model: str
    path: str
    batch_size: int
    compiled: str
    beside_batch_size: int
    beside_compiled: str
    samples: int
    differing: int
    per_million: float
    precision: str
    device: str

    @property
    def key(self) -> tuple[object, ...]:
        """What a later measurement of the same takes the place of."""
        beside = (self.beside_batch_size, self.beside_compiled, self.precision)
        return self.data, self.model, self.path, self.batch_size, self.compiled, *beside


def compare_paths(
    subject: Subject, images: int, n: int, precision: str, device: str
) -> Iterator[Compared]:
    """Other batches, images that take turns, and no compilation, each against the usual path."""
    classifier = subject.classifier
    some = _images(subject, images)
    places = range(len(some))
    in_turn = [Span(i, Stage.PREDICT, 0, n, image=i) for i in places]
    usual = classifier.sampler
    expected = usual.answers(some, in_turn, seed=SEED)

    def compared(path: str, sampler: Sampler, answers: Tensor) -> Compared:
        differing = int((answers != expected).sum())
        return Compared(
            subject.data,
            subject.model,
            path,
            sampler.batch_size,
            sampler.compiled,
            usual.batch_size,
            usual.compiled,
            len(expected),
            differing,
            round(1e6 * differing / len(expected), 1),
            precision,
            device,
        )

    def other(batch_size: int, how: Compiled) -> Sampler:
        return Sampler(
            classifier.model,
            classifier.deformation,
            classifier.noise,
            classifier.num_classes,
            padding=classifier.padding,
            batch_size=batch_size,
            how=how,
        )

    again = usual.answers(some, in_turn, seed=SEED)
    yield compared("the same again", usual, again)
    each = max(1, n // 8)
    turns = [span.part(at, min(at + each, n)) for at in range(0, n, each) for span in in_turn]
    answers = usual.answers(some, turns, seed=SEED)
    yield compared("images in turns", usual, _sorted(answers, turns))
    quarter = other(max(1, usual.batch_size // 4), usual.compiled)
    answers = quarter.answers(some, in_turn, seed=SEED)
    yield compared("a quarter of the batch", quarter, answers)
    if usual.compiled != "no":
        plain = other(usual.batch_size, "no")
        answers = plain.answers(some, in_turn, seed=SEED)
        yield compared("not compiled", plain, answers)


def _images(subject: Subject, count: int) -> Tensor:
    """From all over the data set, on the device: [count, c, h, w]."""
    total = len(subject.images)
    skip = max(1, total // count)
    images = [subject.image_at(place) for place in range(0, total, skip)[:count]]
    return torch.stack(images).to(subject.classifier.device_for(images[0]))


def _sorted(answers: Tensor, spans: list[Span]) -> Tensor:
    """Answers to spans in any order, by image and sample."""
    parts = dict(zip(spans, torch.split(answers, [len(span) for span in spans]), strict=True))
    ordered = sorted(spans, key=lambda span: (span.image, span.start))
    return torch.cat([parts[span] for span in ordered])
