"""Models that are not functions of one image: each is refused, or caught while it is sampled."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deformrs import Rotation, SmoothedClassifier, Stopping, Uniform
from deformrs.dataset import certify_dataset
from deformrs.determinism import Replay, check_evaluating
from deformrs.errors import InputError, ModelError
from deformrs.models import SmallCNN
from deformrs.runs import load_run, read_run
from examples import IMAGE, network

DATA = [(IMAGE.roll(k, -1), k % 5) for k in range(12)]
Model = Callable[[Tensor], Tensor]


def honest(images: Tensor) -> Tensor:
    """Which of five rows is the brightest?"""
    return images[:, 0, :10].reshape(-1, 5, 24).amax(dim=2)


def voting(images: Tensor) -> Tensor:
    """Every image gets what most of its batch get."""
    return honest(images).mean(dim=0).expand(len(images), -1)


def mutating(images: Tensor) -> Tensor:
    return honest(images.mul_(0.999))


def guessing() -> Model:
    dice = random.Random(1)

    def model(images: Tensor) -> Tensor:
        scores = honest(images).clone()
        scores[:, 0] += 0.1 * dice.random()
        return scores

    return model


def remembering() -> Model:
    calls = 0

    def model(images: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return honest(images) + torch.tensor([0.01 * calls, 0, 0, 0, 0])

    return model


def classifier(model: Model, *, check_model: bool = True) -> SmoothedClassifier:
    return SmoothedClassifier(
        model, Rotation(), Uniform(2.0), 5, batch_size=64, check_model=check_model
    )


REFUSED: dict[str, tuple[Callable[[], Model], str]] = {
    "votes over its batch": (lambda: voting, "one by one|another order"),
    "draws at random": (guessing, "on a repeated call"),
    "counts its calls": (remembering, "on a repeated call"),
    "changes its input": (lambda: mutating, "the model's input is changed by the model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_no_function_is_refused_before_it_is_sampled(
    name: str, tmp_path: Path
) -> None:
    make, message = REFUSED[name]
    attempts: list[Callable[[], object]] = [
        lambda: classifier(make()).certify(IMAGE, n=300),
        lambda: classifier(make()).predict(IMAGE, n=300),
        lambda: classifier(make()).certify_batch([IMAGE]),
        lambda: list(certify_dataset(classifier(make()), DATA, n=300, out=tmp_path / "run")),
    ]
    for attempt in attempts:
        with pytest.raises(ModelError, match=message):
            attempt()
    assert not (tmp_path / "run/certificates.jsonl").exists()
    if name != "changes its input":
        classifier(make(), check_model=False).certify(IMAGE, n=300)  # a promise of the caller


def test_the_callers_image_is_never_changed() -> None:
    image = IMAGE.clone()
    for model in (mutating, lambda images: honest(images.zero_())):
        with pytest.raises(ModelError):
            SmoothedClassifier(model, Rotation(), Uniform(2.0)).certify(image, n=300)
    assert torch.equal(image, IMAGE)


@pytest.mark.parametrize("batches", [1, 2])
def test_the_check_is_made_once_for_each_shape(batches: int) -> None:
    calls = 0

    def counting(images: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return honest(images)

    g = classifier(counting)
    g.certify(IMAGE, n=64 * batches - 10, n0=10)
    once = calls
    for index in range(5):
        g.certify(IMAGE, n=64 * batches - 10, n0=10, index=index)
    assert calls == once + 5 * batches


def module() -> nn.Module:
    return SmallCNN(num_classes=5, width=4).train()


GLOBAL = module()


class Holder:
    def __init__(self) -> None:
        self.net = module()

    def __call__(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return logits

    def method(self, images: Tensor) -> Tensor:
        return self(images)


def apply(net: nn.Module, images: Tensor) -> Tensor:
    logits: Tensor = net(images)
    return logits


def closed() -> Model:
    net = module()
    return lambda images: net(images)


TRAINING: dict[str, Callable[[], Model]] = {
    "module": module,
    "method": lambda: module().forward,
    "partial of a module": lambda: functools.partial(module()),
    "argument of a partial": lambda: functools.partial(apply, module()),
    "partial of a partial": lambda: functools.partial(functools.partial(apply, module())),
    "closure": closed,
    "global": lambda: lambda images: GLOBAL(images),
    "attribute": Holder,
    "method of an object": lambda: Holder().method,
}


@pytest.mark.parametrize("name", TRAINING)
def test_training_mode_does_not_hide(name: str) -> None:
    with pytest.raises(ModelError, match=r"in training mode.*model\.eval\(\)"):
        classifier(TRAINING[name](), check_model=False).certify(IMAGE, n=300)


def test_names_that_are_not_run_do_not_count() -> None:
    """An attribute of the name of a global module in training mode is another thing."""

    class Images:
        GLOBAL = 1

    check_evaluating(lambda images: images * Images.GLOBAL)


class Switching(nn.Module):
    """Gives other answers after so many calls, as one that knows when it is no longer checked."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.inner = network()
        self.calls, self.last = 0, last

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.inner(images)
        return logits if self.calls <= self.last else logits.roll(1, dims=1)


@pytest.mark.parametrize("stopping", [None, Stopping(radii=("10deg",))], ids=["fixed", "decided"])
@pytest.mark.parametrize("together", [1, 3])
def test_a_model_that_switches_after_a_while_is_caught_and_its_run_refused(
    tmp_path: Path, stopping: Stopping | None, together: int
) -> None:
    g = classifier(Switching(40).eval())
    options = {"n": 500, "stopping": stopping, "together": together, "out": tmp_path}
    with pytest.raises(ModelError, match="the prediction for image 0 is not repeated"):
        list(certify_dataset(g, DATA, **options))  # type: ignore[arg-type]
    assert "not repeated" in (tmp_path / "unsound.txt").read_text()
    for read in (load_run, read_run):
        with pytest.raises(InputError, match=r"unsound.*must not be used"):
            read(tmp_path)
    with pytest.raises(InputError, match="unsound"):
        list(certify_dataset(classifier(Switching(10**9).eval()), DATA, **options))  # type: ignore[arg-type]


def test_a_run_that_is_unsound_without_a_result_is_not_resumed(tmp_path: Path) -> None:
    options = {"n": 5000, "out": tmp_path}  # enough batches for a replay before the first line
    with pytest.raises(ModelError, match="not repeated"):
        list(certify_dataset(classifier(Switching(40).eval()), DATA[:1], **options))  # type: ignore[arg-type]
    assert not (tmp_path / "certificates.jsonl").read_bytes()
    with pytest.raises(InputError, match="unsound"):
        list(certify_dataset(classifier(Switching(10**9).eval()), DATA[:1], **options))  # type: ignore[arg-type]


def test_a_model_that_is_random_for_some_images_is_caught() -> None:
    """Dark corners, as rotations leave them, are classified by chance: not seen by the check.

    Half of the 64 samples of a batch have them, so a replay misses it with probability 5**-30.
    """
    dice = torch.Generator().manual_seed(1)

    def model(images: Tensor) -> Tensor:
        dark = images[:, 0, 0, 0] == 0
        chance = torch.rand(len(images), 5, generator=dice)
        return torch.where(dark[:, None], chance, honest(images))

    with pytest.raises(ModelError, match="is not repeated"):
        list(certify_dataset(classifier(model), [(0.1 + 0.9 * IMAGE, 0)], n=500))


@pytest.mark.parametrize("compiled", ["no", "default"])
@pytest.mark.parametrize("stopping", [None, Stopping(radii=("10deg",))], ids=["fixed", "decided"])
def test_an_honest_model_repeats_every_batch(
    compiled: str, stopping: Stopping | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are filled up, to the one size that was compiled."""
    monkeypatch.setattr(torch, "compile", lambda program, **_: program)
    monkeypatch.setattr(Replay, "KEPT", 10**6)
    monkeypatch.setattr(Replay, "FIRST_LOOK", 2)
    g = SmoothedClassifier(
        network(),
        Rotation(),
        Uniform(2.0),
        batch_size=64,
        compiled=compiled,  # type: ignore[arg-type]
    )
    results = list(certify_dataset(g, DATA[:7], n=300, n0=30, stopping=stopping, together=3))
    assert len(results) == 7


def test_an_honest_model_is_replayed_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = 0
    difference = Replay.difference

    def counted(replay: Replay, *, end: bool = False) -> object:
        nonlocal replayed
        before = watched.calls
        found = difference(replay, end=end)
        replayed += watched.calls - before
        return found

    monkeypatch.setattr(Replay, "difference", counted)
    watched = Switching(10**9).eval()
    g = classifier(watched)
    results = list(certify_dataset(g, DATA, n=1500))
    alone = classifier(network(), check_model=False)
    assert [r.certificate for r in results] == [
        r.certificate for r in certify_dataset(alone, DATA, n=1500)
    ]
    # 12 images of 25 batches: at 64, 128 and 256 batches four are shown again, and at the end.
    assert 9 <= replayed <= 16
