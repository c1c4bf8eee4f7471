"""The networks that training begins with: names, seeds, and what is said about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_files import digest_of, same, scores, some_images

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import (
    check_num_classes,
    initial_network,
    load_model,
    save_model,
)
from deformrs.models.initial import FORMS
from deformrs.models.registry import build_network

torchvision_ops.declare()
timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

SMALL = "torchvision:shufflenet_v2_x0_5"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCRATCH = ["small_cnn:width=4", "resnet18:width=8", "resnet50:width=8", "timm:test_resnet", SMALL]


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
    start = initial_network(source, num_classes=7, channels=1, seed=3)
    assert start.network == network == type(start.spec.module).__name__
    assert start.arguments == {"num_classes": 7, "channels": 1, "width": width, "seed": 3}
    assert not start.pretrained
    assert start.normalises == (network == "SmallCNN")
    assert start.spec.mean is None
    large = Preparation(256, (224, 224), channels=1)
    said = start.spec.preparation
    assert said == (large if network == "ResNet50" else Preparation(channels=1))
    assert start.about["files"] == {}
    assert scores(start.spec.module.eval(), some_images(2, 1, 32)).shape == (2, 7)


@pytest.mark.parametrize("source", SCRATCH)
def test_guarantee_start_model_depends_on_its_arguments_alone(source: str) -> None:
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


@pytest.mark.parametrize("source", SCRATCH)
def test_what_is_saved_is_found_again_and_gone_on_from(tmp_path: Path, source: str) -> None:
    start = initial_network(source, 4, 3, seed=1)
    net, said = start.spec.module, start.spec.preparation
    described = (start.network, start.arguments)
    save_model(tmp_path, net, said, mean=MEAN, std=STD, described=described)
    images = some_images(2, side=64)
    normalised = (images - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    loaded = load_model(str(tmp_path))
    same(loaded, net.eval(), images, normalised)
    assert loaded.preparation == said
    again = initial_network(str(tmp_path), 4, 3, seed=2)
    assert (again.network, again.arguments) == described
    assert again.pretrained
    assert again.normalises
    assert (again.spec.mean, again.spec.preparation) == (MEAN, said)
    assert digest_of(again.spec.module) == digest_of(net)
    assert again.about["files"] == loaded.about["files"]
    assert next(iter(again.spec.module.parameters())).requires_grad
    library = source.partition(":")[0]
    assert again.about.get(library) == loaded.about.get(library) == start.about.get(library)


@pytest.mark.parametrize("channels", [1, 4])
def test_timm_takes_other_channels(channels: int) -> None:
    start = initial_network("timm:test_vit", 3, channels)
    assert start.spec.preparation.channels == (1 if channels == 1 else None)
    assert scores(start.spec.module.eval(), some_images(2, channels, 160)).shape == (2, 3)


def test_scores_are_counted_and_the_network_stays_as_it_is() -> None:
    start = initial_network("resnet18:width=8", 4, 3)
    start.spec.module.train()
    digest = digest_of(start.spec.module)
    check_num_classes(start.spec, 4, some_images())
    with pytest.raises(InputError, match="logits of the network is 4; it must be 5"):
        check_num_classes(start.spec, 5, some_images())
    with pytest.raises(RuntimeError, match="must be logits for .* images of shape"):
        check_num_classes(start.spec, 4, some_images(channels=1))
    assert all(part.training for part in start.spec.module.modules())
    assert digest_of(start.spec.module) == digest


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
        ("timm:resnet81", {}, "did you mean timm:resnet"),
        ("torchvision:resnet81", {}, "did you mean torchvision:resnet18"),
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
def test_what_cannot_be_begun_with_is_one_line(
    source: str, options: dict[str, Any], message: str
) -> None:
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
