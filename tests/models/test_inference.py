"""Faster execution: the precision that suits a network, and folded batch norms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
from small_files import digest_of, draw, export, scores, some_images, tiny_net
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrizations

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.models import NetworkSpec, ResNet18, ResNet50, SmallCNN, load_model, save_model
from deformrs.models.inference import (
    _TRUSTED_PACKAGES,
    automatic_precision,
    fold_batch_norm,
    natural_precision,
)
from deformrs.models.types import Classifier

CPU = torch.device("cpu")


def flags() -> set[str]:
    """Return the flags of the processor on Linux, none elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return {word for line in lines if line.startswith("flags") for word in line.split()}


@pytest.mark.skipif(not flags(), reason="the flags of the processor are not known")
def test_a_processor_with_bfloat16_instructions() -> None:
    has = bool(flags() & {"avx512_bf16", "amx_bf16"})
    assert natural_precision(CPU) == ("bfloat16" if has else "float32")


def test_without_onednn_bfloat16_is_not_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert natural_precision(CPU) == "float32"


class OwnConstant(nn.Module):
    """Its tensor is not a buffer, so it stays in float32 and turns the features to float32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)
        self.shift = torch.full((1, 3, 1, 1), 0.5)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.conv(images - self.shift)
        return features.mean((2, 3))


class Huge(nn.Module):
    """Infinite in bfloat16, which rounds the largest numbers up."""

    def forward(self, images: Tensor) -> Tensor:
        largest = torch.tensor(torch.finfo(torch.float32).max).to(images)
        return images.flatten(1)[:, :2] * 0 + largest


class Lifted(nn.Module):
    """Logits far larger than their differences: all equal in bfloat16."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :5] + 1e4


class Mixing(nn.Module):
    """A logit depends on the other images of its batch."""

    def forward(self, images: Tensor) -> Tensor:
        few = images.flatten(1)[:, :5]
        return few + 0.01 * few.mean(0)


@pytest.mark.parametrize(
    "network",
    [OwnConstant(), Huge(), Lifted(), Mixing()],
    ids=["fails", "infinite", "rounded away", "depends on the batch"],
)
def test_a_network_that_fails_in_bfloat16_stays_in_float32(network: nn.Module) -> None:
    assert automatic_precision(NetworkSpec(network.eval()), CPU) == "float32"
    assert all(value.dtype == torch.float32 for value in network.parameters())


def test_automatic_is_the_precision_of_the_device(tmp_path: Path) -> None:
    save_model(tmp_path / "net", SmallCNN(width=4), Preparation(channels=1))
    source = str(tmp_path / "net")
    loaded, natural = load_model(source, precision="auto"), natural_precision(CPU)
    assert loaded.about == load_model(source, precision=natural).about
    assert {part.dtype for part in loaded.module.parameters()} == {getattr(torch, natural)}
    assert load_model(source).about["precision"] == "float32"


def test_automatic_leaves_a_fixed_computation(tmp_path: Path) -> None:
    path = str(export(tmp_path / "net.pt2", tiny_net()))
    automatic = load_model(path, precision="auto", trust_code=True)
    assert automatic.about == load_model(path, trust_code=True).about


@pytest.mark.parametrize(
    ("network", "mean"), [(ResNet18(num_classes=4, width=4), None), (tiny_net(), (0.5, 0.4, 0.3))]
)
def test_the_module_is_one_graph(network: nn.Module, mean: tuple[float, ...] | None) -> None:
    """Compiled as a part of something larger, it must not interrupt it."""
    spec = NetworkSpec(network, mean=mean, std=mean, channels_last=mean is None)
    classifier = Classifier(spec, torch.float32).eval().requires_grad_(False)
    compiled = torch.compile(classifier, backend="eager", fullgraph=True)
    images = some_images()
    with torch.inference_mode():
        got = compiled(images)
    torch.testing.assert_close(got, scores(classifier, images))


COLOUR = Preparation(channels=3)
TRUSTED = "deformrs.models.inference._TRUSTED_PACKAGES"


@pytest.fixture(autouse=True)
def trust_the_layers_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRUSTED, (*_TRUSTED_PACKAGES, __name__, "torchvision_ops"))


def norms(network: nn.Module) -> int:
    return sum(isinstance(part, _BatchNorm) for part in network.modules())


def drawn(network: nn.Module) -> nn.Module:
    """Statistics that are not the usual 0 and 1, and differ from channel to channel."""
    draw(network)
    return network.eval()


def folded(network: nn.Module, side: int = 16) -> tuple[str | None, int]:
    """The outcome and the number of batch norms that are left; its logits must be the same."""
    spec, outcome = fold_batch_norm(NetworkSpec(network, COLOUR))
    images = some_images(side=side)
    want = scores(network, images)
    assert want.std() > 0
    torch.testing.assert_close(scores(spec.module, images), want, rtol=1e-4, atol=1e-5)
    assert (spec.module is network) == (outcome in (None, "kept"))
    return outcome, norms(spec.module)


class Parts(nn.Module):
    """Layers for the networks below, which do not call them one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.end = nn.Flatten()


class Untraceable(Parts):
    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.conv(x))
        scores: Tensor = self.end(inner if x.mean() > 0 else -inner)
        return scores


def chain(first: nn.Module, second: nn.Module) -> nn.Module:
    return drawn(nn.Sequential(first, second, nn.Flatten()))


@pytest.mark.parametrize("kind", [SmallCNN, functools.partial(ResNet18, width=8)])
def test_networks_of_this_package(kind: type[SmallCNN]) -> None:
    network = kind(channels=3, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, _BatchNorm):
                cast("Tensor", part.running_mean).uniform_(-0.5, 0.5, generator=generator)
                cast("Tensor", part.running_var).uniform_(0.5, 2, generator=generator)
                part.weight.uniform_(0.5, 1.5, generator=generator)
    assert folded(network) == ("folded", 0)


def test_guarantee_fold_batch_norm_leaves_the_network() -> None:
    network = drawn(ResNet50(num_classes=5, width=4)).bfloat16().train()
    before, layers = digest_of(network), [*network.named_modules()]
    spec, outcome = fold_batch_norm(NetworkSpec(network))
    assert outcome == "folded"
    assert digest_of(network) == before
    assert [*network.named_modules()] == layers
    assert all(part.training for part in network.modules())
    own = {value.data_ptr() for value in network.state_dict().values()}
    assert own.isdisjoint(value.data_ptr() for value in spec.module.state_dict().values())


def test_a_network_without_batch_norms() -> None:
    assert folded(drawn(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))) == (None, 0)


@pytest.mark.parametrize(
    "network",
    [
        chain(nn.Conv2d(3, 6, 3, groups=3, bias=False), nn.BatchNorm2d(6, affine=False)),
        chain(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4, eps=0.1)),
        chain(nn.Sequential(nn.Flatten(), nn.Linear(768, 9)), nn.BatchNorm1d(9)),
    ],
    ids=["groups without scales", "padded by reflection", "linear"],
)
def test_layers_of_all_kinds(network: nn.Module) -> None:
    assert folded(network) == ("folded", 0)


def test_some_may_be_folded_and_others_kept() -> None:
    inner = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    inner = nn.Sequential(nn.BatchNorm2d(3), *inner.children())
    assert folded(drawn(inner)) == ("partly folded", 1)


def test_a_layer_that_has_two_names() -> None:
    class Named(Parts):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(self.conv, self.norm, self.end)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.layers(x)
            return scores

    assert folded(drawn(Named())) == ("folded", 0)


def test_weights_that_two_convolutions_share() -> None:
    tied = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3), nn.Flatten())
    tied[2].weight = tied[0].weight
    assert folded(drawn(tied)) == ("folded", 0)


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet"])
def test_networks_of_timm(name: str) -> None:
    """Some have the activation inside their batch norms."""
    torchvision_ops.declare()
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = timm.create_model(name, pretrained=False, num_classes=5).eval()
    assert norms(network) > 2
    assert folded(network, side=64) == ("folded", 0)


def test_a_loaded_model_records_the_outcome(tmp_path: Path) -> None:
    network = SmallCNN(width=4, seed=1)
    save_model(tmp_path / "net", network, Preparation(channels=1))
    loaded = load_model(str(tmp_path / "net"))
    assert loaded.about["batch_norm"] == "folded"
    assert norms(loaded.module) == 0
    assert loaded.about["state_sha256"] == digest_of(network)  # the weights that are stored
    (tmp_path / "own.py").write_text("from test_inference import Untraceable as build")
    kept = load_model(f"{tmp_path / 'own.py'}:build")
    assert kept.about["batch_norm"] == "kept"
    assert norms(kept.module) == 1


class ConvolvedTwice(Parts):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.end(self.conv(self.norm(self.conv(x))))
        return scores


class NormedTwice(Parts):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.end(self.norm(self.norm(self.conv(x))))
        return scores


class ReadElsewhere(Parts):
    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv(x)
        scores: Tensor = self.end(self.norm(inner) + inner)
        return scores


class WeightsRead(Parts):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.end(self.norm(self.conv(x)) * self.norm.weight.sum())
        return scores


class OtherPathForSymbols(Parts):
    """Takes another path if the image is a symbol, which only trying it shows."""

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv(x)
        if isinstance(x, Tensor):
            inner = inner + 1
        scores: Tensor = self.end(self.norm(inner))
        return scores


class Doubled(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) ** 2


def hooked(place: int) -> nn.Module:
    network = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    cast("nn.Sequential", network)[place].register_forward_hook(lambda _, __, output: output**2)
    return network


def patched() -> nn.Module:
    network = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    layer = cast("nn.Conv2d", cast("nn.Sequential", network)[0])
    layer.forward = lambda x: nn.Conv2d.forward(layer, x) ** 2  # type: ignore[method-assign,assignment]
    return network


def normed_weights() -> nn.Module:
    return chain(parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4))


def batch_statistics() -> nn.Module:
    return chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))


def rows_of_pixels() -> nn.Module:
    """BatchNorm1d is then over rows, though there are as many columns."""
    return drawn(
        nn.Sequential(nn.Flatten(1, 2), nn.Linear(16, 48), nn.BatchNorm1d(48), nn.Flatten())
    )


KEPT: dict[str, Callable[[], nn.Module]] = {
    "a convolution called twice": lambda: drawn(ConvolvedTwice()),
    "a norm called twice": lambda: drawn(NormedTwice()),
    "features read elsewhere": lambda: drawn(ReadElsewhere()),
    "weights read elsewhere": lambda: drawn(WeightsRead()),
    "not traceable": lambda: drawn(Untraceable()),
    "another path for symbols": lambda: drawn(OtherPathForSymbols()),
    "a subclass": lambda: chain(Doubled(3, 4, 3), nn.BatchNorm2d(4)),
    "a hook on the convolution": lambda: hooked(0),
    "a hook on the norm": lambda: hooked(1),
    "a patched convolution": patched,
    "parametrized": normed_weights,
    "statistics of the batch": batch_statistics,
    "the norm of another axis": rows_of_pixels,
    "the norm before": lambda: chain(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)),
    "a transposed convolution": lambda: chain(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)),
}


@pytest.mark.parametrize("build", KEPT.values(), ids=KEPT.keys())
def test_networks_that_cannot_be_folded_are_kept(build: Callable[[], nn.Module]) -> None:
    assert folded(build()) == ("kept", 1)


class Hidden(nn.Module):
    """Takes another path for bright images, which torch.fx does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(images)
        scores: Tensor = self.norm(features)
        if isinstance(images, Tensor):
            scores = torch.where(images.mean() > 0.7, features, scores)
        return scores.mean((2, 3))


def test_networks_of_the_users_own_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRUSTED, _TRUSTED_PACKAGES)
    spec = NetworkSpec(drawn(Hidden()), COLOUR)
    assert fold_batch_norm(spec) == (spec, "kept")
    plain = drawn(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))
    assert fold_batch_norm(NetworkSpec(plain))[1] is None
    known = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    assert fold_batch_norm(NetworkSpec(known, COLOUR))[1] == "folded"


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated")
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_scripted_and_lazy_networks_are_kept() -> None:
    assert fold_batch_norm(NetworkSpec(torch.jit.script(tiny_net()), COLOUR))[1] == "kept"
    lazy = nn.Sequential(nn.LazyConv2d(4, 3), nn.BatchNorm2d(4), nn.Flatten())
    assert fold_batch_norm(NetworkSpec(lazy, COLOUR))[1] == "kept"
    assert isinstance(lazy[0], nn.LazyConv2d)
