"""Recipes, the learning rate that follows from them, and the objective by its formulas."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from deformrs.errors import InputError
from deformrs.training.loop import INITIAL_SHARE, learning_rate
from deformrs.training.recipes import RECIPES, Objective, Recipe, read_recipe


def test_the_paper_recipe_is_what_the_paper_says() -> None:
    recipe = read_recipe("paper")
    assert (recipe.epochs, recipe.learning_rate, recipe.momentum) == (90, 0.1, 0.9)
    assert (recipe.weight_decay, recipe.steps, recipe.decay) == (1e-4, (30, 60), 0.1)
    assert not recipe.nesterov
    pretrained = read_recipe("paper", pretrained=True)
    assert (pretrained.epochs, pretrained.learning_rate, pretrained.steps) == (30, 1e-3, (10, 20))
    assert pretrained.weight_decay == 1e-4  # what the table does not name stays


def test_the_fast_recipe_is_one_cycle_with_nesterov_in_bfloat16() -> None:
    recipe = read_recipe("fast")
    assert (recipe.schedule, recipe.nesterov) == ("one_cycle", True)
    assert (recipe.precision, recipe.compile) == ("bfloat16", True)
    assert read_recipe("fast", pretrained=True).learning_rate < recipe.learning_rate


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("pretrained", [False, True])
def test_recipes_round_trip_through_their_configuration(name: str, pretrained: bool) -> None:
    recipe = read_recipe(name, pretrained=pretrained)
    assert Recipe(**recipe.to_config()) == recipe  # type: ignore[arg-type]


def test_steps_keep_their_share_when_epochs_change() -> None:
    assert read_recipe("paper").changed(epochs=9).steps == (3, 6)
    assert read_recipe("paper").changed(epochs=1).steps == (1,)
    assert read_recipe("paper").changed(batch_size=7).batch_size == 7
    assert read_recipe("paper").changed() == read_recipe("paper")


def test_copies_are_two_where_they_are_compared() -> None:
    paper = read_recipe("paper")
    assert (paper.copies, paper.tilt, paper.consistency) == (1, 0, 0)  # as the paper trained
    assert paper.changed(consistency=10).copies == 2
    assert paper.changed(tilt=1, copies=3).copies == 3
    with pytest.raises(InputError, match="at least 2 for consistency and tilt"):
        paper.changed(tilt=1, copies=1)
    alone = read_recipe("fast").changed(copies=1)
    assert (alone.copies, alone.tilt) == (1, 0)


def test_small_data_sets_get_small_batches() -> None:
    fast = read_recipe("fast")
    assert fast.fitted(50_000) == fast
    for images, size in ((8192, 512), (8191, 256), (4000, 128), (600, 32), (2, 32)):
        fitted = fast.fitted(images)
        assert fitted.batch_size == size
        assert fitted.learning_rate == pytest.approx(fast.learning_rate * (size / 512) ** 0.5)


def test_steps_lower_the_rate_after_their_epochs() -> None:
    recipe = read_recipe("paper")
    rates = [learning_rate(recipe, step, 10) for step in range(900)]
    assert rates[:300] == [0.1] * 300
    assert rates[300:600] == pytest.approx([0.01] * 300)
    assert rates[600:] == pytest.approx([0.001] * 300)


def test_one_cycle_rises_to_the_peak_and_falls_to_zero() -> None:
    recipe = Recipe(epochs=10, batch_size=1, learning_rate=0.5, warmup=0.3)
    rates = [learning_rate(recipe, step, 10) for step in range(100)]
    assert rates[0] == pytest.approx(0.5 * INITIAL_SHARE)
    assert max(rates) == rates[30] == 0.5
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert 0 < rates[-1] < 1e-3
    flat = Recipe(epochs=10, batch_size=1, learning_rate=0.5, warmup=0)
    assert learning_rate(flat, 0, 10) == 0.5


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("epochs = 3\nbatch_size = 8\nlearning_rate = 0.2\n[pretrained]\nepochs = 1\n")
    assert read_recipe(str(path)) == Recipe(3, 8, 0.2)
    assert read_recipe(str(path), pretrained=True).epochs == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 3\nbatch_size = 8", "learning_rate in the recipe .* is missing"),
        ("epochs = 0\nbatch_size = 8\nlearning_rate = 1", "epochs in the recipe .* at least 1"),
        ("epochs = 1\nbatch_size = 8\nlearning_rate = 'x'", "learning_rate in .* above 0"),
        ("epochs = 1\nbatch_size = 8\nlearning_rate = nan", "learning_rate in .* above 0"),
        ("epochz = 1", "'epochz' of the recipe .* did you mean 'epochs'"),
        ("pretrained = 1", "'pretrained' of the recipe"),
        ("[pretrained]\nepoch = 1", "'epoch' of the recipe .* did you mean 'epochs'"),
        ("epochs", "no TOML"),
        ("epochs=1\nbatch_size=1\nlearning_rate=1\nschedule='step'", "did you mean 'steps'"),
        ("epochs=1\nbatch_size=1\nlearning_rate=1\nsteps=[3,1]", r"\[3, 1\]; it must rise"),
        ("epochs=1\nbatch_size=1\nlearning_rate=1\nsteps=3", "must be a list of epochs"),
        ("epochs=1\nbatch_size=1\nlearning_rate=1\ncompile='no'", "must be true or false"),
        ("epochs=1\nbatch_size=1\nlearning_rate=1\nmomentum=0\nnesterov=true", "needs a momentum"),
        ("epochs=1\nbatch_size=1\nlearning_rate=1\nprecision='float16'", "precision in"),
        ("epochs=1\nbatch_size=1\nlearning_rate=1\ntilt=2", "copies in the recipe .* at least 2"),
    ],
)
def test_a_bad_recipe_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_recipe(str(path), pretrained="pretrained" in text)


def test_a_misspelt_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'paper'"):
        read_recipe("papper")
    with pytest.raises(InputError, match=r"or a \.toml file of your own"):
        read_recipe("nowhere/mine.toml")


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
