"""Initial networks for training: names, seeds, weights and what is recorded of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_files import (
    FACTORIES,
    TinyNet,
    cache_on_hub,
    digest_of,
    draw,
    same,
    scores,
    some_images,
    tiny_net,
)

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import (
    ResNet18,
    ResNet50,
    SmallCNN,
    initial_network,
    load_model,
    save_model,
)
from deformrs.models.initial import FORMS
from deformrs.models.networks import build_network
from deformrs.runs.files import file_digest

torchvision_ops.declare()
timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

SMALL = "torchvision:shufflenet_v2_x0_5"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SOURCES = ["small_cnn:width=4", "resnet18:width=8", "resnet50:width=8", "timm:test_resnet", SMALL]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mymodel.py"
    path.write_text(FACTORIES)
    return path


@pytest.mark.parametrize(
    ("source", "network", "width"),
    [
        ("small_cnn", "SmallCNN", 24),
        ("Small-CNN:48", "SmallCNN", 48),
        ("resnet18:width=8", "ResNet18", 8),
        (" RESNET_18: width = 8 ", "ResNet18", 8),
        ("ResNet-50:width=8", "ResNet50", 8),
    ],
)
def test_own_networks_by_name(source: str, network: str, width: int) -> None:
    initial = initial_network(source, num_classes=7, channels=1, seed=3)
    assert initial.network == network == type(initial.spec.module).__name__
    assert initial.arguments == {"num_classes": 7, "channels": 1, "width": width, "seed": 3}
    assert not initial.pretrained
    assert initial.normalises == (network == "SmallCNN")
    assert initial.spec.mean is None
    large = Preparation(256, (224, 224), channels=1)
    preparation = initial.spec.preparation
    assert preparation == (large if network == "ResNet50" else Preparation(channels=1))
    assert initial.about["files"] == {}
    assert scores(initial.spec.module.eval(), some_images(2, 1, 32)).shape == (2, 7)


@pytest.mark.parametrize("source", SOURCES)
def test_guarantee_initial_network_depends_on_its_arguments_alone(source: str) -> None:
    torch.rand(1)
    before = torch.get_rng_state()
    first = initial_network(source, 4, 3, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    again, other = initial_network(source, 4, 3, seed=5), initial_network(source, 4, 3, seed=6)
    digest = digest_of(first.spec.module)
    assert digest == digest_of(again.spec.module) != digest_of(other.spec.module)
    assert first.about == again.about
    assert json.loads(json.dumps(first.about)) == first.about
    assert {v.device.type for v in first.spec.module.state_dict().values()} == {"cpu"}
    assert {v.dtype for v in first.spec.module.parameters()} == {torch.float32}
    rebuilt = build_network(first.network, first.arguments).state_dict()
    shapes = {key: value.shape for key, value in first.spec.module.state_dict().items()}
    assert {key: value.shape for key, value in rebuilt.items()} == shapes


@pytest.mark.parametrize("source", SOURCES)
def test_a_saved_network_is_loaded_and_trained_further(tmp_path: Path, source: str) -> None:
    initial = initial_network(source, 4, 3, seed=1)
    net, preparation = initial.spec.module, initial.spec.preparation
    described = (initial.network, initial.arguments)
    save_model(tmp_path, net, preparation, mean=MEAN, std=STD, described=described)
    images = some_images(2, side=64)
    normalised = (images - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    loaded = load_model(str(tmp_path))
    same(loaded, net.eval(), images, normalised)
    assert loaded.preparation == preparation
    again = initial_network(str(tmp_path), 4, 3, seed=2)
    assert (again.network, again.arguments) == described
    assert again.pretrained
    assert again.normalises
    assert (again.spec.mean, again.spec.preparation) == (MEAN, preparation)
    assert digest_of(again.spec.module) == digest_of(net)
    assert again.about["files"] == loaded.about["files"]
    assert next(iter(again.spec.module.parameters())).requires_grad
    library = source.partition(":")[0]
    assert again.about.get(library) == loaded.about.get(library) == initial.about.get(library)


@pytest.mark.parametrize("channels", [1, 4])
def test_timm_takes_other_channels(channels: int) -> None:
    initial = initial_network("timm:test_vit", 3, channels)
    assert initial.spec.preparation.channels == (1 if channels == 1 else None)
    assert scores(initial.spec.module.eval(), some_images(2, channels, 160)).shape == (2, 3)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("resnet18:width=a", {}, "the width of resnet18 is 'a'; it must be an integer"),
        ("resnet18:width=0", {}, "the width of resnet18 is '0'"),
        ("resnet18:width=" + "9" * 5000, {}, "the width of resnet18"),
        ("resnet18:depth=3", {}, "a field of resnet18 is 'depth=3'; it must be width"),
        ("resnet18:8,9", {}, "the width of resnet18 is '8,9'"),
        ("resnet18:8,width=9", {}, "a field of resnet18 is"),
        ("resnet18:width=99999999", {}, "fits into memory .* choose a smaller width"),
        ("resnet81:width=8", {}, "did you mean resnet18:width=8"),
        ("smal-cnn", {}, "did you mean small_cnn"),
        ("resnet34", {}, "A network of timm would be timm:resnet34"),
        ("tim:resnet18", {}, "did you mean timm:resnet18"),
        ("runs/nothing", {}, "there is no such folder"),
        ("", {}, "there is no such folder"),
        ("net.py", {}, "name the function that builds it"),
        ("net.onnx", {}, "cannot be trained here"),
        ("hf:a/b", {}, "cannot be trained here"),
        (__file__, {}, "name the function"),
        ("resnet18", {"pretrained": True}, "there are none for this network"),
        ("resnet50", {"pretrained": True, "channels": 1}, "must be 3 .* --channels 3"),
        ("timm:resnet18", {"pretrained": True, "channels": 1}, "must be 3 .* --channels 3"),
        (SMALL, {"channels": 1}, "must be 3 for torchvision.* --channels 3"),
        ("resnet18", {"weights": Path("w.pth")}, "the weights file w.pth is missing"),
        ("resnet18", {"weights": Path(__file__), "pretrained": True}, "leave one out"),
        ("resnet18", {"num_classes": 0}, "num_classes is 0"),
        ("resnet18", {"channels": 0}, "channels is 0"),
        ("resnet18", {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_arguments_are_one_line(source: str, options: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {"num_classes": 4, "channels": 3}
    with pytest.raises(InputError, match=message) as caught:
        initial_network(source, **(usual | options))
    assert "\n" not in str(caught.value)
    if ":" not in source and "model is" in str(caught.value):
        assert FORMS in str(caught.value)


def test_a_folder_has_its_own_weights_and_channels(tmp_path: Path, network: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.touch()
    for options in ({"weights": weights}, {"pretrained": True}):
        with pytest.raises(InputError, match="which brings its own"):
            initial_network(str(network), 10, 1, **options)
    with pytest.raises(InputError, match="must be 1 for .* pass --channels 1"):
        initial_network(str(network), 10, 3)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "training.json").write_text("{}")
    for ask in (load_model, lambda folder: initial_network(folder, 10, 1)):
        with pytest.raises(InputError, match="a training that is not finished"):
            ask(str(tmp_path / "begun"))


def weights_of(net: torch.nn.Module, path: Path) -> Path:
    draw(net, seed=9)
    save_file(net.state_dict(), path)
    return path


@pytest.mark.parametrize("source", SOURCES)
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
    for initial in (
        initial_network(str(tmp_path), 9, 3, seed=2),
        initial_network(source, 9, 3, weights=file, seed=2),
    ):
        state = initial.spec.module.state_dict()
        for key, value in state.items():
            assert torch.equal(value, (fresh if key in head else before)[key]), key
        assert initial.pretrained
        assert initial.spec.class_names is None
        assert initial.arguments["num_classes"] == 9
        assert initial.about["files"]["model.safetensors"] == file_digest(file)  # type: ignore[index,call-overload]
    assert initial_network(str(tmp_path), 4, 3).spec.class_names == ("a", "b", "c", "d")


def test_weights_may_lack_a_head(tmp_path: Path) -> None:
    """As of networks that were trained without labels."""
    state = ResNet18(4, width=8, seed=1).state_dict()
    save_file({k: v for k, v in state.items() if "fc" not in k}, tmp_path / "w.safetensors")
    initial = initial_network("resnet18:width=8", 4, 3, weights=tmp_path / "w.safetensors", seed=2)
    got = initial.spec.module.state_dict()
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
    initial = initial_network("resnet50:width=8", 10, 3, weights=weights)
    assert (initial.spec.mean, initial.spec.std) == (MEAN, STD)
    assert initial.about["files"] == {"w.safetensors": file_digest(weights)}
    grey = weights_of(ResNet50(10, 1, width=8), tmp_path / "grey.safetensors")
    assert initial_network("resnet50:width=8", 10, 1, weights=grey).spec.mean is None


def test_library_weights_bring_their_preprocessing(tmp_path: Path) -> None:
    net = timm.create_model("test_resnet")
    weights = weights_of(net, tmp_path / "w.safetensors")
    initial = initial_network("timm:test_resnet", 1000, 3, weights=weights)
    assert (initial.spec.mean, initial.spec.std) == ((0.5,) * 3, (0.5,) * 3)
    assert initial.spec.preparation == Preparation(168, (160, 160), channels=3)
    assert initial.spec.class_names is not None
    assert not initial.normalises
    fresh = initial_network("timm:test_resnet", 1000, 3)
    assert fresh.spec.preparation == initial.spec.preparation
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
    initial = initial_network(SMALL, 7, 3, pretrained=True)
    assert initial.pretrained
    assert initial.spec.class_names is None
    assert initial.spec.mean == MEAN
    assert initial.about == kept.about | {"arguments": {"num_classes": 7, "channels": 3}}
    assert torch.equal(initial.spec.module.state_dict()["conv1.0.weight"], net.conv1[0].weight)


def test_published_weights_of_resnet50(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    net = ResNet50(seed=4)
    url = torchvision.models.ResNet50_Weights.DEFAULT.url
    torch.save(net.state_dict(), cache / url.rpartition("/")[2])
    initial = initial_network("resnet50", 7, 3, pretrained=True)
    assert (initial.network, initial.spec.mean) == ("ResNet50", MEAN)
    assert initial.spec.preparation == Preparation(232, (224, 224), channels=3)
    assert torch.equal(initial.spec.module.state_dict()["conv1.weight"], net.conv1.weight)
    with pytest.raises(InputError, match="from another network"):
        initial_network("resnet50:width=8", 7, 3, pretrained=True)


def test_timm_weights_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    net = timm.create_model("test_resnet")
    cache_on_hub(tmp_path, "timm/test_resnet.r160_in1k", net)
    before = torch.get_rng_state()
    initial = initial_network("timm:test_resnet", 7, 3, pretrained=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert initial.about["state_sha256"] == digest_of(net)
    key = "layer1.0.conv1.weight"
    assert torch.equal(initial.spec.module.state_dict()[key], net.state_dict()[key])
    assert initial.spec.mean == (0.5, 0.5, 0.5)


def test_a_network_of_the_users_own(file: Path) -> None:
    before = torch.get_rng_state()
    initial = initial_network(f"{file}:build", 5, 3, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert initial.network == f"{file}:build"
    assert not initial.pretrained
    assert initial.normalises
    assert initial.spec.mean is None
    assert initial.about["files"] == {"mymodel.py": file_digest(file)}
    digest = digest_of(initial.spec.module)
    again, other = (initial_network(f"{file}:build", 5, 3, seed=seed) for seed in (3, 4))
    assert digest == digest_of(again.spec.module) != digest_of(other.spec.module)


def test_weights_and_preprocessing_of_the_users_own(tmp_path: Path, file: Path) -> None:
    net = tiny_net(seed=5)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    initial = initial_network(f"{file}:described", 5, 3, weights=tmp_path / "w.safetensors")
    assert digest_of(initial.spec.module) == digest_of(net)
    assert initial.pretrained
    assert initial.spec.mean == (0.5,)
    assert initial.spec.preparation == Preparation(20, (16, 16), channels=3)
    assert {part.dtype for part in initial.spec.module.parameters()} == {torch.float32}
    assert initial.about["files"].keys() == {"mymodel.py", "w.safetensors"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("function", "classes", "channels", "message"),
    [
        ("described", 7, 3, "logits of the network is 5; it must be 7"),
        ("described", 5, 1, "must be 3 for .* pass --channels 3"),
        ("lazy", 5, 3, "'1.weight' of .*:lazy is in a lazy layer"),
        ("biuld", 5, 3, "did you mean 'build'"),
    ],
)
def test_a_factory_that_does_not_fit_is_one_line(
    file: Path, function: str, classes: int, channels: int, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        initial_network(f"{file}:{function}", classes, channels)
    assert "\n" not in str(caught.value)


def test_weights_that_a_factory_cannot_have(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InputError, match="which brings its own"):
        initial_network(f"{file}:build", 5, 3, pretrained=True)
    save_file(TinyNet(classes=9).state_dict(), tmp_path / "w.safetensors")
    for function in ("build", "lazy"):
        with pytest.raises(InputError, match="from another network"):
            initial_network(f"{file}:{function}", 5, 3, weights=tmp_path / "w.safetensors")
