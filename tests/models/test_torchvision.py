"""Classifiers of torchvision, with random weights in real files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_files import normalised, photo, same, some_images

import torchvision_ops
from deformrs.errors import InputError
from deformrs.models import load_model
from deformrs.models.torchvision import describe, read_weights
from deformrs.runs.files import file_digest

torchvision_ops.declare()
torchvision = pytest.importorskip("torchvision")

SMALL = "shufflenet_v2_x0_5"


def test_torchvision_with_local_weights(tmp_path: Path) -> None:
    net = torchvision.models.get_model(SMALL).eval()
    weights = tmp_path / "w.safetensors"
    save_file(net.state_dict(), weights)
    loaded = load_model(f"torchvision:{SMALL}", weights=weights)
    images = some_images(side=64)
    same(loaded, net, images, normalised(loaded, images))
    assert loaded.about["files"] == {"w.safetensors": file_digest(weights)}
    assert loaded.class_names is not None
    assert loaded.class_names[:2] == ("tench", "goldfish")
    want = torchvision.models.get_model_weights(SMALL).DEFAULT.transforms()(photo(300, 270))
    got = normalised(loaded, torch.from_numpy(loaded.preparation.prepare(photo(300, 270))))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def test_published_weights_bring_their_own_preparation() -> None:
    """The two published files of MobileNet-V2 differ in their resizing."""
    net = torchvision.models.mobilenet_v2()
    sizes = {}
    for entry in torchvision.models.get_model_weights("mobilenet_v2"):
        file = Path(entry.url.rpartition("/")[2])
        sizes[entry.name] = describe("mobilenet_v2", net, file).preparation.resize
    assert sizes == {"IMAGENET1K_V1": 256, "IMAGENET1K_V2": 232}


def test_the_dotted_names_of_published_densenets_are_changed(tmp_path: Path) -> None:
    with torch.device("meta"):
        names = list(torchvision.models.densenet121().state_dict())
    dotted = [
        name.replace("norm1", "norm.1").replace("conv2", "conv.2") if "denselayer" in name else name
        for name in names
    ]
    assert dotted != names
    save_file({name: torch.ones(1) for name in dotted}, tmp_path / "w.safetensors")
    assert set(read_weights("densenet121", tmp_path / "w.safetensors")[0]) == set(names)


def test_googlenet_normalises_inside_and_drops_its_other_heads(tmp_path: Path) -> None:
    net = torchvision.models.googlenet(transform_input=True, init_weights=False).eval()
    torch.save(net.state_dict(), tmp_path / "w.pth")
    loaded = load_model("torchvision:googlenet", weights=tmp_path / "w.pth")
    images = some_images(2, side=64)
    same(loaded, net, images, normalised(loaded, images))


def test_the_number_of_classes_is_that_of_the_weights(tmp_path: Path) -> None:
    net = torchvision.models.get_model(SMALL, num_classes=7).eval()
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model(f"torchvision:{SMALL}", weights=tmp_path / "w.safetensors")
    images = some_images(2, side=64)
    same(loaded, net, images, normalised(loaded, images))
    assert loaded.class_names is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("torchvision:resnet81", "did you mean torchvision:resnet18"),
        ("torchvision:fcn_resnet50", "must be a classifier that torchvision knows"),
    ],
)
def test_unknown_names_suggest_the_nearest(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(source)
