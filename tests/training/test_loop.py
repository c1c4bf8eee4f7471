"""The loop: it repeats, resumes, keeps the best, and stops before it spoils anything."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from lessons import CPU, digits, flat, small_network, small_plan, with_recipe
from torch import Tensor, nn

from deformrs.errors import InputError, ModelError
from deformrs.models import SmallCNN
from deformrs.training import Moment, loop
from deformrs.training.batches import NoisyBatches
from deformrs.training.checkpoints import STATE, Checkpoints
from deformrs.training.distributed import Processes
from deformrs.training.loop import fit


class StoppedError(Exception):
    """Stands for a kill."""


def test_guarantee_fit_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stopped after every second step, also in the middle of epochs: each call resumes the last.
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_REPORTS", -1.0)
    plan = with_recipe(small_plan(), copies=2, consistency=3, tilt=1)
    whole = small_network()
    expected = fit(whole, digits(0, 128), plan, held_out=digits(200, 260))
    reached = []
    for _ in range(40):
        reports = 0

        def stop(moment: Moment) -> None:
            nonlocal reports
            reports += 1
            if reports == 3:
                reached.append(moment.step)
                raise StoppedError

        model = small_network()
        try:
            trained = fit(
                model,
                digits(0, 128),
                plan,
                held_out=digits(200, 260),
                checkpoints=Checkpoints(tmp_path),
                checkpoint_seconds=-1.0,
                watch=stop,
            )
            break
        except StoppedError:
            continue
    assert reached == [3, 5, 7, 9, 11]  # of 12 steps, four an epoch
    assert torch.equal(flat(model), flat(whole))
    assert trained.best.epoch == expected.best.epoch
    for name, value in expected.best.weights.items():
        assert torch.equal(trained.best.weights[name], value)
    for one, other in zip(trained.history, expected.history, strict=True):
        for key in ("epoch", "loss", "accuracy", "held_out_accuracy", "learning_rate"):
            assert one[key] == other[key]


def test_what_a_step_sees_follows_from_seed_and_number() -> None:
    source, plan = digits(0, 100), small_plan()
    batches = NoisyBatches(source, plan, Processes(CPU))
    first, again = list(batches.epoch(1)), list(batches.epoch(1))
    for (images, labels), (same, same_labels) in zip(first, again, strict=True):
        assert torch.equal(images, same)
        assert torch.equal(labels, same_labels)
    later = list(batches.epoch(1, skip=2))
    assert len(first) == 3
    assert len(later) == 1
    assert torch.equal(later[0][0], first[2][0])
    assert not torch.equal(next(batches.epoch(2))[0], first[0][0])
    other = NoisyBatches(source, small_plan(seed=1), Processes(CPU))
    assert not torch.equal(next(other.epoch(1))[0], first[0][0])


def test_processes_share_a_batch_between_them() -> None:
    source = digits(0, 100)
    plan = with_recipe(small_plan(), copies=2)
    whole = list(NoisyBatches(source, plan, Processes(CPU)).epoch(0))
    parts = [list(NoisyBatches(source, plan, Processes(CPU, r, 2)).epoch(0)) for r in range(2)]
    for (images, labels), (one, one_labels), (two, two_labels) in zip(whole, *parts, strict=True):
        copies = [torch.cat(halves) for halves in zip(one.chunk(2), two.chunk(2), strict=True)]
        assert torch.equal(torch.cat(copies), images)
        assert torch.equal(torch.cat([one_labels, two_labels]), labels)
    with pytest.raises(InputError, match="divisible by the number of processes, 3"):
        NoisyBatches(source, plan, Processes(CPU, 0, 3))


def test_an_epoch_sees_every_image_at_most_once() -> None:
    source = digits(0, 100)

    class Counting:
        size, channels, description = source.size, source.channels, ""

        def __len__(self) -> int:
            return 100

        def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
            self.rows = rows
            return iter([])

    counting = Counting()
    assert list(NoisyBatches(counting, small_plan(), Processes(CPU)).epoch(0)) == []
    places = torch.cat(list(counting.rows)).tolist()
    assert len(places) == len(set(places)) == 96
    assert set(places) <= set(range(100))


def test_a_batch_larger_than_the_data_is_all_of_it() -> None:
    batches = NoisyBatches(digits(0, 10), small_plan(batch_size=4096), Processes(CPU))
    assert (batches.batch_size, batches.steps_per_epoch) == (10, 1)


def test_held_out_images_choose_the_best_epoch_and_leave_the_weights_alone() -> None:
    model, other = small_network(), small_network()
    trained = fit(model, digits(0, 200), small_plan(4), held_out=digits(200, 300))
    accuracies = [record["held_out_accuracy"] for record in trained.history]
    best = max(accuracies)  # type: ignore[type-var]
    assert trained.best.accuracy == best
    assert trained.best.epoch == 4 - accuracies[::-1].index(best)
    without = fit(other, digits(0, 200), small_plan(4))
    assert torch.equal(flat(model), flat(other))
    own = [record["accuracy"] for record in without.history]
    assert without.best.epoch == 4 - own[::-1].index(max(own))  # type: ignore[type-var]


class Poisoned(nn.Module):
    """Turns to NaN at its tenth batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network = small_network()
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        scores: Tensor = self.network(images)
        return scores * float("nan") if self.calls == 10 else scores


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(ModelError, match=r"epoch 2 is nan.*nothing bad was written"):
        fit(
            Poisoned(),
            digits(0, 200),
            small_plan(),
            checkpoints=checkpoints,
            checkpoint_seconds=-1.0,
        )
    kept = checkpoints.read()
    assert kept is not None
    assert kept.step == 6  # the end of the first epoch
    assert all(value.isfinite().all() for value in kept.weights.values())
    # From there it goes on, and ends.
    model = Poisoned()
    model.calls = 100
    trained = fit(model, digits(0, 200), small_plan(), checkpoints=checkpoints)
    assert len(trained.history) == 3


def test_weights_that_are_no_numbers_are_never_written(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = small_network()
            self.unused = nn.Parameter(torch.tensor([float("inf")]))

        def forward(self, images: Tensor) -> Tensor:
            scores: Tensor = self.network(images)
            return scores

    with pytest.raises(ModelError, match="the weight unused after step 6 is not finite"):
        fit(
            Broken(),
            digits(0, 200),
            small_plan(),
            checkpoints=Checkpoints(tmp_path),
            checkpoint_seconds=-1.0,
        )
    assert not (tmp_path / STATE).exists()


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    fit(small_network(), digits(0, 200), small_plan(1), checkpoints=checkpoints)
    with pytest.raises(InputError, match="from another network"):
        fit(SmallCNN(width=6), digits(0, 200), small_plan(1), checkpoints=checkpoints)
    with pytest.raises(InputError, match="of step 6; it must be of at most 3"):
        fit(small_network(), digits(0, 100), small_plan(1), checkpoints=checkpoints)


class Forgetful(nn.Module):
    """A network with randomness of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.network = small_network()
        self.dropout = nn.Dropout(0.3)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.network(self.dropout(images))
        return scores


def test_dropout_follows_the_seed_and_leaves_global_random_state_alone(tmp_path: Path) -> None:
    weights: list[Tensor] = []
    for seed in (0, 0, 1):
        before = torch.get_rng_state()
        model = Forgetful()
        model.load_state_dict(
            {f"network.{name}": value for name, value in small_network().state_dict().items()}
        )
        plan = dataclasses.replace(small_plan(2), seed=seed)
        fit(model, digits(0, 100), plan, checkpoints=Checkpoints(tmp_path / str(len(weights))))
        assert torch.equal(torch.get_rng_state(), before)
        weights.append(flat(model))
        torch.rand(3)  # what others draw does not matter
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_every_epoch_has_an_order_and_noise_of_its_own() -> None:
    batches = NoisyBatches(digits(0, 96), small_plan(), Processes(CPU))
    orders = [torch.cat([labels for _, labels in batches.epoch(number)]) for number in range(3)]
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[1], orders[2])
    assert torch.equal(orders[0].sort().values, orders[1].sort().values)


def test_held_out_images_are_seen_under_the_same_noise_every_time() -> None:
    batches = NoisyBatches(digits(0, 96), small_plan(), Processes(CPU))
    held_out = digits(100, 140)
    first, again = (torch.cat([part for part, _ in batches.evaluation(held_out)]) for _ in range(2))
    plain = torch.cat([part for part, _ in held_out.batches([torch.arange(40)])])
    assert torch.equal(first, again)
    assert (first - plain).abs().amax(dim=(1, 2, 3)).min() > 0.01  # each of them is deformed


def test_steps_are_those_of_sgd_by_the_recipe() -> None:
    """Against torch's own optimizer, driven by hand over the same batches."""
    recipe = dataclasses.replace(small_plan(2).recipe, weight_decay=0.05, warmup=0.5)
    plan = dataclasses.replace(small_plan(2), recipe=recipe)
    model, by_hand = small_network(), small_network()
    fit(model, digits(0, 96), plan)
    batches = NoisyBatches(digits(0, 96), plan, Processes(CPU))
    sgd = torch.optim.SGD(
        by_hand.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=0.05
    )
    by_hand.train()
    rates = [0.1 * (0.04 + 0.96 * k / 3) for k in range(3)]
    rates += [0.1 * (1 + math.cos(math.pi * k / 3)) / 2 for k in range(3)]
    places = [batch for epoch in range(2) for batch in batches.epoch(epoch)]
    for rate, (images, labels) in zip(rates, places, strict=True):
        sgd.param_groups[0]["lr"] = rate
        sgd.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(by_hand(images), labels))
        sgd.step()
    by_hand.eval()
    assert torch.allclose(flat(model), flat(by_hand), rtol=1e-5, atol=1e-7)


def test_a_stop_between_steps_writes_a_checkpoint_first(tmp_path: Path) -> None:
    answers = iter([False, False, False, True])
    with pytest.raises(KeyboardInterrupt):
        fit(
            small_network(),
            digits(0, 200),
            small_plan(),
            checkpoints=Checkpoints(tmp_path),
            stop=lambda: next(answers),
        )
    assert Checkpoints(tmp_path).step() == 4


def test_of_equally_good_epochs_the_last_is_the_best() -> None:
    trained = fit(small_network(), digits(0, 64), small_plan(3, learning_rate=1e-12))
    accuracies = [record["accuracy"] for record in trained.history]
    best = max(accuracies)  # type: ignore[type-var]
    assert trained.best.epoch == 3 - accuracies[::-1].index(best)


def test_what_a_network_cannot_take_is_one_line() -> None:
    plan = small_plan(batch_size=1)
    with pytest.raises(ModelError, match="Expected more than 1 value per channel"):
        fit(
            nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10)), digits(0, 4), plan
        )
