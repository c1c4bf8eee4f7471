"""The warning about an accuracy near chance."""

from __future__ import annotations

import numpy as np
import pytest

from deformrs import Rotation, Uniform
from deformrs.certificate import Counts
from deformrs.chance import LOOKS, AccuracyWatch, is_near_chance
from deformrs.runs import Result

SOME = Uniform(0.5).certify(Counts((5, 0), (9, 0)), Rotation().space((8, 8)), 0.001)


def said(labels: list[int], answers: list[int | None], num_classes: int) -> list[str]:
    """The warnings of a run with these labels and plain predictions."""
    found: list[str] = []
    watch = AccuracyWatch(len(labels), num_classes, lambda below: [f"below: {below}"], found.append)
    for index, (label, answer) in enumerate(zip(labels, answers, strict=True)):
        watch.add(Result(index, label, SOME, plain=answer))
    return found


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100, 1000])
def test_guessing_is_named_and_a_decent_model_is_not(num_classes: int) -> None:
    generator = np.random.default_rng(num_classes)
    named = wrong = 0
    for _ in range(200):
        labels = generator.integers(num_classes, size=200)
        guesses = generator.integers(num_classes, size=200)
        right = generator.random(200) < 0.75
        named += bool(said(labels.tolist(), guesses.tolist(), num_classes))
        wrong += bool(said(labels.tolist(), np.where(right, labels, guesses).tolist(), num_classes))
    # At 200 images two classes are the hardest: a guesser is named in 97 % of the runs. A model at
    # 75 % is warned about at one of four looks with less than 1 % each, at most once in 200 here.
    assert named >= 185
    assert wrong <= 1


def test_it_is_said_once_and_as_soon_as_it_is_known() -> None:
    labels = [index % 10 for index in range(100)]
    (text,) = said(labels, [3] * 100, 10)
    assert text.splitlines() == [
        "without noise the model is right on 2 of 20 images (10.0 %), near the 10 % of "
        "guessing among 10 classes. Likely causes:",
        "  - below: False",
    ]


def test_swapped_labels_are_below_chance() -> None:
    labels = [index % 2 for index in range(30)]
    (text,) = said(labels, [1 - label for label in labels], 2)
    assert "right on 0 of 20 images (0.0 %), below the 50 %" in text
    assert "below: True" in text


def test_images_of_one_class_are_awaited_and_then_named() -> None:
    two_classes = [0] * 25 + [1] * 25
    assert not said(two_classes, [1] * 50, 3), "half are right once both are seen"
    (text,) = said([0] * 30, [1] * 30, 2)
    assert "of 30 images, all of one class, (0.0 %), near the 50 %" in text
    assert "below: False" in text, "a constant answer has all or none right"


def test_few_images_are_judged_at_the_end_if_they_tell() -> None:
    assert not said([0, 1, 2], [5, 5, 5], 10)
    assert not said([*range(10)], [None, None, *[10] * 8], 100), "8 wrong answers may happen"
    (text,) = said([*range(12)], [20] * 12, 100)
    assert "on 0 of 12 images" in text


def test_a_weak_model_is_not_taken_for_a_guess() -> None:
    for total in (*LOOKS, 10_000):
        assert not is_near_chance(round(0.3 * total), total, 1000)
        assert not is_near_chance(round(0.7 * total), total, 2)
    assert is_near_chance(10, 10_000, 1000)
