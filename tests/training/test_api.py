"""Training under noise, the small network and the shipped digits."""

from __future__ import annotations

import pytest
import torch

from deformrs import Affine, Deformation, Gaussian, NoiseLaw, Rotation, Uniform
from deformrs.data import load_digits
from deformrs.data.mnist import IMAGE
from deformrs.errors import InputError, ModelError
from deformrs.models import SmallCNN
from deformrs.training import Augmentation, Moment, train


def test_digits_are_what_they_should_be() -> None:
    images, labels = load_digits("train")
    assert images.shape == (4000, 1, 28, 28)
    assert images.dtype == torch.float32
    assert images.min() == 0
    assert images.max() == 1
    # The first labels of MNIST's training and test sets.
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    tests, test_labels = load_digits("test")
    assert tests.shape == (1000, 1, 28, 28)
    assert test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert len(IMAGE.read_bytes()) < 1.5e6
    with pytest.raises(InputError, match="'valid'"):
        load_digits("valid")  # type: ignore[arg-type]


def test_equal_seeds_give_equal_networks() -> None:
    images, labels = (part[:256] for part in load_digits("train"))
    models = [SmallCNN(width=8, seed=seed) for seed in (0, 0, 1)]
    for model in models:
        train(model, images, labels, Rotation(), Uniform(1.0), epochs=1)
    first, same, other = (torch.cat([p.flatten() for p in m.parameters()]) for m in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("deformation", "noise"), [(Rotation(), Uniform(0.5)), (Affine(), Gaussian(0.1))]
)
def test_training_learns_under_noise(deformation: Deformation, noise: NoiseLaw) -> None:
    images, labels = (part[:1500] for part in load_digits("train"))
    model = SmallCNN(width=12)
    seen: list[Moment] = []
    trained = train(model, images, labels, deformation, noise, epochs=5, report=seen.append)
    assert seen[-1].step == seen[-1].steps == 5 * (1500 // 128)
    ends = [moment for moment in seen if moment.record is not None]
    assert [moment.record for moment in ends] == trained.history
    assert [moment.epoch for moment in ends] == [1, 2, 3, 4, 5]
    assert ends[-1].accuracy > 0.6 > 0.5 > ends[0].accuracy
    assert ends[-1].loss < ends[0].loss
    assert not model.training


@pytest.mark.parametrize(("tilt", "consistency"), [(0.0, 0.0), (0.0, 5.0), (2.0, 0.0)])
def test_objectives_and_augmentation_change_what_is_learnt(tilt: float, consistency: float) -> None:
    images, labels = (part[:256] for part in load_digits("train"))
    weights = []
    for copies, crop in ((1, 0), (2, 0), (2, 2)):
        model = SmallCNN(width=4)
        train(
            model,
            images,
            labels,
            Rotation(),
            Uniform(1.0),
            epochs=1,
            copies=copies,
            tilt=tilt if copies > 1 else 0.0,
            consistency=consistency if copies > 1 else 0.0,
            augmentation=Augmentation(crop=crop),
        )
        weights.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


def test_padding_reaches_the_training_images() -> None:
    images, labels = torch.ones(8, 1, 12, 12), torch.arange(8) % 2
    weights = []
    for padding in ("zeros", "border"):
        model = SmallCNN(width=4)
        train(model, images, labels, Rotation(), Uniform(1.0), epochs=1, padding=padding)
        weights.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert not torch.equal(weights[0], weights[1])


def test_bad_training_input() -> None:
    images, labels = (part[:10] for part in load_digits("train"))
    model = SmallCNN(width=4)
    with pytest.raises(InputError, match=r"of shape \(9,\).*each of 10 images"):
        train(model, images, labels[:9], Rotation(), Uniform(1.0), epochs=1)
    with pytest.raises(InputError, match=r"of shape \(0, 1, 28, 28\)"):
        train(model, images[:0], labels[:0], Rotation(), Uniform(1.0), epochs=1)
    with pytest.raises(InputError, match=r"90 \(5,157°\).*write Uniform"):
        train(model, images, labels, Rotation(), Uniform(90), epochs=1)
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]"):
        train(model, 255 * images, labels, Rotation(), Uniform(1.0), epochs=1)
    with pytest.raises(InputError, match="epochs is 0"):
        train(model, images, labels, Rotation(), Uniform(1.0), epochs=0)
    with pytest.raises(InputError, match="float32"):
        train(model, images, labels.float(), Rotation(), Uniform(1.0), epochs=1)
    with pytest.raises(InputError, match="of one class"):
        train(model, images, torch.zeros_like(labels), Rotation(), Uniform(1.0), epochs=1)
    with pytest.raises(ModelError, match="the loss in epoch .* lower learning rate"):
        train(model, images, labels, Rotation(), Uniform(1.0), epochs=50, learning_rate=1e30)
