"""The classifier: its input, and the logits it reads from the output of a network."""

from __future__ import annotations

import pytest
import torch
from small_files import scores, some_images, tiny_net
from torch import Tensor, nn

from deformrs.errors import ModelError
from deformrs.execution import read_logits
from deformrs.models import NetworkSpec
from deformrs.models.types import Classifier


def test_the_input_is_left_as_it_is() -> None:
    in_place = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten())
    for spec in (NetworkSpec(in_place), NetworkSpec(in_place, mean=(0.5,), std=(0.5,))):
        before = some_images() - 0.5
        given = before.clone()
        scores(Classifier(spec, torch.float32), given)
        assert torch.equal(given, before)


def test_images_are_normalised_before_they_are_cast() -> None:
    """The difference of two close numbers would be lost in bfloat16."""
    spec = NetworkSpec(nn.Flatten(), mean=(0.5,), std=(0.001,))
    images = torch.full((1, 1, 1, 1), 0.5004)
    got = scores(Classifier(spec, torch.bfloat16), images)
    assert float(got) == pytest.approx(0.4, rel=0.01)


def test_the_number_of_channels_is_checked() -> None:
    for mean in ((0.5, 0.5, 0.5), (0.5, 0.5)):
        classifier = Classifier(NetworkSpec(tiny_net(), mean=mean, std=mean), torch.float32)
        with pytest.raises(ModelError, match=f"of 1 channels; it must have {len(mean)}, as many"):
            scores(classifier, some_images(channels=1))


class Answer:
    def __init__(self, logits: object) -> None:
        self.logits = logits


GOOD = torch.rand(2, 3)


@pytest.mark.parametrize(
    "output",
    [
        GOOD,
        (GOOD,),
        [GOOD],
        {"logits": GOOD, "loss": 0},
        {"out": GOOD},
        Answer(GOOD),
        GOOD[..., None],
    ],
    ids=["tensor", "tuple", "list", "logits", "mapping", "attribute", "trailing"],
)
def test_logits_are_read_where_they_are_unambiguous(output: object) -> None:
    assert torch.equal(read_logits(output), GOOD)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ((GOOD, GOOD), "a tuple of 2"),
        ({"a": GOOD, "b": GOOD}, "a dict of 2"),
        (Answer(3), "an? Answer"),
        (None, "a NoneType"),
        ((), "a tuple of 0"),
        (GOOD[0], r"shape \(3,\)"),
        (torch.rand(2, 3, 4, 4), r"shape \(2, 3, 4, 4\)"),
        (GOOD.long(), "torch.int64"),
    ],
)
def test_logits_are_not_guessed(output: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_logits(output)


class Viewing(nn.Module):
    """A common form; `view` fails on features in another memory format."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.conv(images)
        return features.view(len(images), -1)


def test_a_bare_network_keeps_its_memory_format() -> None:
    assert scores(Classifier(NetworkSpec(Viewing()), torch.float32), some_images()).shape[0] == 4
