"""Recipes, and the learning rate that follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deformrs.errors import InputError
from deformrs.training.loop import INITIAL_SHARE, learning_rate
from deformrs.training.recipes import RECIPES, Recipe, read_recipe


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
