"""The precision that suits a device and a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_files import export, scores, some_images, tiny_net
from torch import Tensor, nn

from deformrs.data.preparation import Preparation
from deformrs.models import NetworkSpec, ResNet18, SmallCNN, load_model, save_model
from deformrs.models.inference import automatic_precision, natural_precision
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
