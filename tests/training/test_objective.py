"""What training minimises, against the formulas written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from deformrs.errors import InputError
from deformrs.training.recipes import Objective


def scores_and_labels(copies: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(copies * 5, 4, generator=generator, dtype=torch.float64) * 3
    return scores.requires_grad_(), torch.tensor([0, 3, 1, 2, 2])


def test_one_copy_is_plain_cross_entropy() -> None:
    scores, labels = scores_and_labels(1)
    assert torch.allclose(Objective()(scores, labels), cross_entropy(scores, labels))


def test_copies_are_averaged() -> None:
    scores, labels = scores_and_labels(3)
    parts = [cross_entropy(part, labels) for part in scores.chunk(3)]
    assert Objective(copies=3)(scores, labels).item() == pytest.approx(
        sum(part.item() for part in parts) / 3
    )


@pytest.mark.parametrize("copies", [2, 4])
def test_consistency_is_the_formula_of_jeong_and_shin(copies: int) -> None:
    scores, labels = scores_and_labels(copies)
    total = 0.0
    chances = scores.detach().softmax(dim=1).view(copies, 5, 4)
    for image, label in enumerate(labels.tolist()):
        answers = chances[:, image]
        mean = answers.mean(dim=0)
        for answer in answers:
            total -= float(answer[label].log()) / copies
            total += 10 * float((mean * (mean / answer).log()).sum()) / copies
        total += 0.5 * -float((mean * mean.log()).sum())
    found = Objective(copies, consistency=10, entropy=0.5)(scores, labels)
    assert found.item() == pytest.approx(total / 5)


def test_tilt_is_its_formula_between_mean_and_worst() -> None:
    scores, labels = scores_and_labels(3)
    losses = cross_entropy(scores, labels.repeat(3), reduction="none").view(3, 5).detach()
    expected = ((2 * losses).exp().mean(dim=0).log() / 2).mean()
    assert Objective(3, tilt=2)(scores, labels).item() == pytest.approx(expected.item())
    least = Objective(3, tilt=1e-6)(scores, labels).item()
    assert least == pytest.approx(losses.mean().item(), rel=1e-4)
    most = Objective(3, tilt=1e3)(scores, labels).item()
    assert most == pytest.approx(losses.max(dim=0).values.mean().item(), rel=1e-3)


def test_tilt_and_consistency_add_up() -> None:
    scores, labels = scores_and_labels(2)
    plain, tilted = Objective(2)(scores, labels), Objective(2, tilt=2)(scores, labels)
    both = Objective(2, consistency=10, tilt=2)(scores, labels)
    alone = Objective(2, consistency=10)(scores, labels)
    assert (both - tilted).item() == pytest.approx((alone - plain).item())


def test_equal_copies_have_no_spread() -> None:
    scores, labels = scores_and_labels(1)
    twice = scores.repeat(2, 1)
    plain = cross_entropy(scores, labels)
    assert Objective(2, consistency=10, entropy=0)(twice, labels).item() == pytest.approx(
        plain.item()
    )


def test_answers_of_probability_zero_have_a_finite_gradient() -> None:
    scores = torch.tensor([[0.0, 500.0], [500.0, 0.0]], requires_grad=True)
    torch.autograd.backward(Objective(2, consistency=10)(scores, torch.tensor([0])))
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_label_smoothing_is_passed_on() -> None:
    scores, labels = scores_and_labels(1)
    found = Objective(label_smoothing=0.1)(scores, labels)
    assert torch.allclose(found, cross_entropy(scores, labels, label_smoothing=0.1))


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda: Objective(consistency=10), "at least 2 for consistency"),
        (lambda: Objective(tilt=1), "at least 2 for consistency and tilt"),
        (lambda: Objective(copies=0), "copies"),
        (lambda: Objective(copies=2, consistency=-1), "consistency"),
        (lambda: Objective(entropy=float("nan")), "entropy"),
    ],
)
def test_bad_weights_are_refused(objective: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        objective()  # type: ignore[operator]
