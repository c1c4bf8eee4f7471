"""The plain loop and certification count the same classifier."""

from __future__ import annotations

import math

import pytest
import torch

from deformrs.benchmarks.naive import NaiveLoop
from deformrs.benchmarks.networks import CLASSES, new_network, some_images
from deformrs.benchmarks.plan import FAMILIES
from deformrs.randomness import Stage
from deformrs.smoothing import SmoothedClassifier

N = 1000


@pytest.mark.parametrize("family", list(FAMILIES))
def test_counts_agree_within_sampling_error(family: str) -> None:
    """False alarms: the bound below is exceeded with probability at most 1e-6 for each class."""
    network = new_network("small_cnn:width=4", 1, 16)
    image = some_images(1, 1, 16, seed=5)[0]
    deformation, noise = FAMILIES[family]
    device = torch.device("cpu")
    naive = NaiveLoop(network.built, deformation, noise, CLASSES, device)
    module = network.loaded("float32", device).module
    ours = SmoothedClassifier(module, deformation, noise, CLASSES)
    slow = naive.count(image, N)
    fast = ours.count(image, N, Stage.ESTIMATE)
    assert sum(slow) == sum(fast) == N
    assert max(fast) < N, "a class that never changes would tell nothing"
    # Hoeffding, for the difference of two means of N samples each.
    allowed = math.sqrt(math.log(2 / 1e-6) / N) * N
    assert all(abs(a - b) <= allowed for a, b in zip(slow, fast, strict=True))


def test_the_network_that_is_given_stays_as_it_is() -> None:
    network = new_network("small_cnn:width=4", 1, 16)
    network.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = {key: value.clone() for key, value in network.module.state_dict().items()}
    naive = NaiveLoop(network.built, *FAMILIES["rotation"], CLASSES, torch.device("cpu"))
    convolution = next(p for p in naive.module.parameters() if p.ndim == 4 and p.shape[1] > 1)
    assert convolution.is_contiguous()
    naive.count(some_images(1, 1, 16)[0], 10)
    after = network.module.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_no_layer_of_a_new_network_is_without_weight() -> None:
    """Else it would cost a GPU less than a trained one does."""
    network = new_network("resnet18:width=4", 3, 16)
    assert all(weight.any() for weight in network.module.parameters() if weight.ndim == 4)
    norms = [m for m in network.module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert all(norm.weight.any() and norm.running_mean.any() for norm in norms)  # type: ignore[union-attr]
    assert not any(part.training for part in network.module.modules())
    again = new_network("resnet18:width=4", 3, 16).module.state_dict()
    assert all(torch.equal(v, again[k]) for k, v in network.module.state_dict().items())
