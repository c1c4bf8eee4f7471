"""Training that begins with weights: of a file, of a run, published ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_files import digest_of, draw

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import (
    ResNet18,
    ResNet50,
    SmallCNN,
    initial_network,
    save_model,
)
from deformrs.runs.files import file_digest

torchvision_ops.declare()
timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

SMALL = "torchvision:shufflenet_v2_x0_5"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCRATCH = ["small_cnn:width=4", "resnet18:width=8", "resnet50:width=8", "timm:test_resnet", SMALL]


def weights_of(net: torch.nn.Module, path: Path) -> Path:
    draw(net, seed=9)
    save_file(net.state_dict(), path)
    return path


@pytest.mark.parametrize("source", SCRATCH)
def test_only_the_head_is_drawn_anew_for_other_classes(tmp_path: Path, source: str) -> None:
    old = initial_network(source, 4, 3, seed=1)
    draw(old.spec.module)
    save_model(
        tmp_path,
        old.spec.module,
        old.spec.preparation,
        tuple("abcd"),
        described=(old.network, old.arguments),
    )
    fresh = initial_network(source, 9, 3, seed=2).spec.module.state_dict()
    before = old.spec.module.state_dict()
    head = {key for key in fresh if fresh[key].shape != before[key].shape}
    assert len(head) == 2
    file = tmp_path / "model.safetensors"
    for start in (
        initial_network(str(tmp_path), 9, 3, seed=2),
        initial_network(source, 9, 3, weights=file, seed=2),
    ):
        state = start.spec.module.state_dict()
        for key, value in state.items():
            assert torch.equal(value, (fresh if key in head else before)[key]), key
        assert start.pretrained
        assert start.spec.class_names is None
        assert start.arguments["num_classes"] == 9
        assert start.about["files"]["model.safetensors"] == file_digest(file)  # type: ignore[index,call-overload]
    assert initial_network(str(tmp_path), 4, 3).spec.class_names == ("a", "b", "c", "d")


def test_weights_without_a_head_may_start(tmp_path: Path) -> None:
    """As of networks that were trained without labels."""
    state = ResNet18(4, width=8, seed=1).state_dict()
    save_file({k: v for k, v in state.items() if "fc" not in k}, tmp_path / "w.safetensors")
    start = initial_network("resnet18:width=8", 4, 3, weights=tmp_path / "w.safetensors", seed=2)
    got = start.spec.module.state_dict()
    assert torch.equal(got["conv1.weight"], state["conv1.weight"])
    assert torch.equal(got["fc.weight"], ResNet18(4, width=8, seed=2).fc.weight)


@pytest.mark.parametrize(
    ("source", "saved", "message"),
    [
        ("resnet18:width=8", ResNet18(9, width=4), r"'conv1.weight' has shape \(4, 3, 3, 3\)"),
        ("resnet18:width=8", ResNet50(4, width=8), r"'conv1.weight' has shape \(8, 3, 7, 7\)"),
        ("resnet18:width=8", ResNet18(4, 1, width=8), r"\(8, 1, 3, 3\), not \(8, 3, 3, 3\)"),
        ("timm:test_resnet", ResNet18(4, width=8), "is missing"),
        (SMALL, SmallCNN(4), "is missing"),
    ],
)
def test_weights_of_another_network_are_refused(
    tmp_path: Path, source: str, saved: torch.nn.Module, message: str
) -> None:
    weights = weights_of(saved, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match="is from another network: .*" + message) as caught:
        initial_network(source, 4, 3, weights=weights)
    assert "\n" not in str(caught.value)


def test_resnet50_with_weights_is_normalised_as_published(tmp_path: Path) -> None:
    weights = weights_of(ResNet50(1000, width=8), tmp_path / "w.safetensors")
    start = initial_network("resnet50:width=8", 10, 3, weights=weights)
    assert (start.spec.mean, start.spec.std) == (MEAN, STD)
    assert start.about["files"] == {"w.safetensors": file_digest(weights)}
    grey = weights_of(ResNet50(10, 1, width=8), tmp_path / "grey.safetensors")
    assert initial_network("resnet50:width=8", 10, 1, weights=grey).spec.mean is None


def test_libraries_say_how_their_weights_want_images(tmp_path: Path) -> None:
    net = timm.create_model("test_resnet")
    weights = weights_of(net, tmp_path / "w.safetensors")
    start = initial_network("timm:test_resnet", 1000, 3, weights=weights)
    assert (start.spec.mean, start.spec.std) == ((0.5,) * 3, (0.5,) * 3)
    assert start.spec.preparation == Preparation(168, (160, 160), channels=3)
    assert start.spec.class_names is not None
    assert not start.normalises
    fresh = initial_network("timm:test_resnet", 1000, 3)
    assert fresh.spec.preparation == start.spec.preparation
    assert fresh.spec.mean is None
    assert fresh.spec.class_names is None


def test_published_weights_come_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    net = torchvision.models.get_model(SMALL.partition(":")[2])
    url = torchvision.models.get_model_weights(SMALL.partition(":")[2]).DEFAULT.url
    torch.save(net.state_dict(), cache / url.rpartition("/")[2])
    kept = initial_network(SMALL, 1000, 3, pretrained=True)
    assert digest_of(kept.spec.module) == digest_of(net) == kept.about["state_sha256"]
    assert kept.spec.class_names is not None
    start = initial_network(SMALL, 7, 3, pretrained=True)
    assert start.pretrained
    assert start.spec.class_names is None
    assert start.spec.mean == MEAN
    assert start.about == kept.about | {"arguments": {"num_classes": 7, "channels": 3}}
    assert torch.equal(start.spec.module.state_dict()["conv1.0.weight"], net.conv1[0].weight)


def test_published_weights_of_resnet50(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    net = ResNet50(seed=4)
    url = torchvision.models.ResNet50_Weights.DEFAULT.url
    torch.save(net.state_dict(), cache / url.rpartition("/")[2])
    start = initial_network("resnet50", 7, 3, pretrained=True)
    assert (start.network, start.spec.mean) == ("ResNet50", MEAN)
    assert start.spec.preparation == Preparation(232, (224, 224), channels=3)
    assert torch.equal(start.spec.module.state_dict()["conv1.weight"], net.conv1.weight)
    with pytest.raises(InputError, match="from another network"):
        initial_network("resnet50:width=8", 7, 3, pretrained=True)


def test_timm_weights_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    net = timm.create_model("test_resnet")
    repository = tmp_path / "models--timm--test_resnet.r160_in1k"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    save_file(net.state_dict(), snapshot / "model.safetensors")
    before = torch.get_rng_state()
    start = initial_network("timm:test_resnet", 7, 3, pretrained=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert start.about["state_sha256"] == digest_of(net)
    key = "layer1.0.conv1.weight"
    assert torch.equal(start.spec.module.state_dict()[key], net.state_dict()[key])
    assert start.spec.mean == (0.5, 0.5, 0.5)
