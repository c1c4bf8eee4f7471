"""Networks of timm, with random weights in real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_files import normalised, photo, same, some_images

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, UnsupportedError
from deformrs.models import check_fixed, load_model
from deformrs.models.timm import _preparation, describe
from deformrs.runs.files import file_digest

torchvision_ops.declare()
timm = pytest.importorskip("timm")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_timm_with_local_weights(tmp_path: Path, suffix: str) -> None:
    net = timm.create_model("test_resnet").eval()
    weights = tmp_path / f"w{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": net.state_dict()}, weights)
    else:
        save_file(net.state_dict(), weights)
    loaded = load_model("timm:test_resnet", weights=weights)
    images = some_images(side=32)
    same(loaded, net, images, normalised(loaded, images))
    check_fixed(loaded.module, images)
    assert loaded.about["files"] == {weights.name: file_digest(weights)}
    assert loaded.about["timm"] == timm.__version__
    assert loaded.class_names is not None
    assert len(loaded.class_names) == 1000
    assert "goldfish" in loaded.class_names[1]


def test_images_are_prepared_as_by_timm(tmp_path: Path) -> None:
    net = timm.create_model("test_resnet")
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model("timm:test_resnet", weights=tmp_path / "w.safetensors")
    config = timm.data.resolve_model_data_config(net)
    want = timm.data.create_transform(**config)(photo())
    got = normalised(loaded, torch.from_numpy(loaded.preparation.prepare(photo())))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def test_the_size_of_every_timm_network_is_understood() -> None:
    """Every way of resizing and cropping in timm, compared with its own transform."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name in timm.list_models():
        config = timm.data.resolve_data_config(
            pretrained_cfg=timm.get_pretrained_cfg(name).to_dict()
        )
        keys = ("input_size", "crop_pct", "crop_mode", "interpolation")
        seen.setdefault(tuple(config[key] for key in keys), config)
    modes = {config["crop_mode"] for config in seen.values()}
    assert modes >= {"center", "squash"}
    small = [c for c in seen.values() if c["input_size"][1] <= 256 and c["crop_mode"] != "border"]
    assert len(small) >= 8
    for config in small:
        want = timm.data.create_transform(**config)(photo())
        pixels = torch.from_numpy(_preparation("any", config).prepare(photo()))
        mean, std = (torch.tensor(config[key])[:, None, None] for key in ("mean", "std"))
        torch.testing.assert_close((pixels - mean) / std, want, rtol=0, atol=1e-5)
    with pytest.raises(UnsupportedError, match="'border' to 224 x 224"):
        _preparation("any", small[0] | {"crop_mode": "border", "input_size": (3, 224, 224)})


def test_the_default_preparation_of_resnet18() -> None:
    """As the model card says: 224 x 224, 95 % of the image, bicubic."""
    config = timm.data.resolve_data_config(
        pretrained_cfg=timm.get_pretrained_cfg("resnet18").to_dict()
    )
    assert _preparation("resnet18", config) == Preparation(235, (224, 224), "bicubic", 3)


def test_the_number_of_classes_is_that_of_the_weights(tmp_path: Path) -> None:
    net = timm.create_model("test_vit", num_classes=7).eval()
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model("timm:test_vit", weights=tmp_path / "w.safetensors")
    images = some_images(2, side=160)
    same(loaded, net, images, normalised(loaded, images))
    assert loaded.class_names is None


def test_weights_of_another_network_name_the_key(tmp_path: Path) -> None:
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(InputError, match="'conv1.*.weight' is missing") as caught:
        load_model("timm:test_resnet", weights=tmp_path / "w.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("timm:resnet81", "did you mean timm:resnet"),
        ("timm:", "must be a network that timm knows"),
        ("timm:resnet18.a1_in2k", "did you mean timm:resnet18.a1_in1k"),
    ],
)
def test_unknown_names_suggest_the_nearest(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(source)


def test_a_network_without_classes_is_refused() -> None:
    with pytest.raises(InputError, match="timm:test_vit is without classes"):
        describe("test_vit", timm.create_model("test_vit", num_classes=0), None)
