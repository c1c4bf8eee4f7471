"""Packages that are missing, downloads without a network, and the global random state."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
import torch
from small_files import cache_on_hub, normalised, same, some_images, tiny_net

import torchvision_ops
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, initial_network, load_model, save_model
from deformrs.models.optional_dependencies import seeded

torchvision_ops.declare()

EXTRAS = {
    "timm": "timm",
    "torchvision": "torchvision",
    "onnxruntime": "onnx",
    "transformers": "huggingface",
}


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder whose network needs one is not called damaged; own networks need none."""
    for package in EXTRAS:
        monkeypatch.setitem(sys.modules, package, None)  # imports of it fail
    save_model(tmp_path / "own", SmallCNN(width=2), Preparation(channels=1))
    load_model(str(tmp_path / "own"))
    initial_network("resnet50:width=4", 4, 3)
    (tmp_path / "a.onnx").touch()
    arguments: Config = {"num_classes": 4, "channels": 3}
    described = ("timm:test_resnet", arguments)
    save_model(tmp_path / "timm", tiny_net(), Preparation(), described=described)
    for source, package in {
        "timm:resnet18": "timm",
        str(tmp_path / "timm"): "timm",
        "torchvision:resnet18": "torchvision",
        str(tmp_path / "a.onnx"): "onnxruntime",
        "hf:a/b": "transformers",
    }.items():
        with pytest.raises(InputError) as caught:
            load_model(source)
        assert str(caught.value) == (
            f"the package {package} is not installed; it is needed for this model: "
            f"pip install 'deformrs[{EXTRAS[package]}]'"
        )
    with pytest.raises(InputError, match="the package timm is not installed"):
        initial_network("timm:resnet18", 4, 3)
    with pytest.raises(InputError, match=r"without weights \(the package torchvision .*--weights"):
        initial_network("resnet50", 4, 3, pretrained=True)


def test_weights_in_the_caches_need_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not in the caches is refused at once with a remedy."""
    timm = pytest.importorskip("timm")
    models = pytest.importorskip("torchvision").models
    pytest.importorskip("transformers")
    hub = pytest.importorskip("huggingface_hub")

    def no_network(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    small = "shufflenet_v2_x0_5"
    networks = {
        f"torchvision:{small}": models.get_model(small).eval(),
        "timm:test_resnet": timm.create_model("test_resnet").eval(),
    }
    checkpoints = tmp_path / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    url = models.get_model_weights(small).DEFAULT.url
    file = checkpoints / url.rpartition("/")[2]
    torch.save(networks[f"torchvision:{small}"].state_dict(), file)
    cache_on_hub(tmp_path / "hub", "timm/test_resnet.r160_in1k", networks["timm:test_resnet"])
    images = some_images(2, side=64)
    for source, network in networks.items():
        loaded = load_model(source)
        same(loaded, network, images, normalised(loaded, images))
    for offline in (False, True):  # as HF_HUB_OFFLINE=1 requests
        monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", offline)
        for source in ("timm:resnet18", "torchvision:resnet18"):
            with pytest.raises(InputError) as caught:
                load_model(source)
            assert str(caught.value).startswith(f"the model {source} is without weights (")
            assert str(caught.value).endswith(
                "; it needs some: pass a file of them with --weights (in Python, weights=)"
            )
        with pytest.raises(InputError, match="hf:someone/something is not in the cache, and"):
            load_model("hf:someone/something")


def test_seeded_restores_the_random_state_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeded(3):
        torch.rand(3 // 0)
    assert torch.equal(torch.get_rng_state(), before)
    drawn = []
    for seed in (3, 3, 4):
        with seeded(seed):
            drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
