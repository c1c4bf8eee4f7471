"""Two ways to execute one classifier, compared sample by sample."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from deformrs import Rotation, SmoothedClassifier, Uniform
from deformrs.benchmarks.paths import compare_paths
from deformrs.benchmarks.subject import Subject
from deformrs.randomness import Span, Stage
from deformrs.sampling import Sampler
from images import ramp


def by_brightness(images: Tensor) -> Tensor:
    bright = images.mean(dim=(1, 2, 3)) > 0.2
    return torch.stack([~bright, bright], dim=1).float()


def by_batch(images: Tensor) -> Tensor:
    """Answers 1 to the first image of a batch."""
    scores = torch.zeros(len(images), 2)
    scores[:, 0] = 0.5
    scores[0, 1] = 1
    return scores


def subject(model: Callable[[Tensor], Tensor], batch_size: int = 40) -> Subject:
    classifier = SmoothedClassifier(model, Rotation(), Uniform(1.0), 2, batch_size=batch_size)
    images = [(float(k) * ramp(9) / 4, 0) for k in range(5)]
    return Subject(classifier, images, "net", "some")


def test_on_a_cpu_every_path_answers_alike() -> None:
    found = list(compare_paths(subject(by_brightness), 5, 64, "float32", "cpu"))
    assert [one.path for one in found] == [
        "the same again",
        "images in turns",
        "a quarter of the batch",
    ]
    assert [(one.samples, one.differing) for one in found] == [(320, 0)] * 3


def test_differing_answers_are_counted() -> None:
    again, turns, quarter = compare_paths(subject(by_batch), 5, 64, "float32", "cpu")
    assert again.differing == 0
    assert turns.differing > 0
    # 8 batches of 40 have 8 first images, 32 of 10 have these and 24 more.
    assert quarter.differing == 24
    assert quarter.per_million == pytest.approx(24 / 320 * 1e6)


def test_answers_are_those_that_are_counted() -> None:
    sampler = Sampler(by_brightness, Rotation(), Uniform(1.0), 2, padding="zeros", batch_size=7)
    image = ramp(9)[None] / 4
    span = Span(3, Stage.ESTIMATE, 5, 50)
    answers = sampler.answers(image, [span], seed=1)
    counts = sampler.count(image, [span], 1, seed=1)
    assert answers.shape == (45,)
    assert torch.bincount(answers, minlength=2).tolist() == counts[0].tolist()
