"""Run folders, and networks from the user's own Python file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_files import (
    FACTORIES,
    TinyNet,
    digest_of,
    draw,
    same,
    scores,
    some_images,
    tiny_net,
)
from torch import nn

import torchvision_ops
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, initial_network, load_model, save_model
from deformrs.runs.files import file_digest
from deformrs.runs.records import sealed, unsealed

torchvision_ops.declare()

DIGITS = Preparation(channels=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mymodel.py"
    path.write_text(FACTORIES)
    return path


def trained(seed: int = 0) -> SmallCNN:
    net = SmallCNN(num_classes=4, channels=1, width=4, seed=seed)
    draw(net, seed)
    return net.eval()


def test_a_saved_network_is_loaded_again(tmp_path: Path) -> None:
    net = trained()
    folder = tmp_path / "runs" / "a"
    save_model(folder, net, DIGITS, ("a", "b", "c", "d"))
    loaded = load_model(str(folder))
    images = some_images(channels=1)
    same(loaded, net, images, images)
    assert loaded.preparation == DIGITS
    assert loaded.class_names == ("a", "b", "c", "d")
    names = ("model.json", "model.safetensors")
    assert loaded.about["files"] == {name: file_digest(folder / name) for name in names}
    assert sorted(path.name for path in folder.iterdir()) == list(names)


def test_a_normalisation_is_kept(tmp_path: Path) -> None:
    net = trained()
    save_model(tmp_path, net, DIGITS, mean=(0.25,), std=(0.5,))
    loaded = load_model(str(tmp_path))
    images = some_images(channels=1)
    same(loaded, net, images, (images - 0.25) / 0.5)
    assert loaded.class_names is None


def test_saving_again_replaces(tmp_path: Path) -> None:
    save_model(tmp_path, trained(0), DIGITS)
    save_model(tmp_path, trained(1), DIGITS)
    images = some_images(channels=1)
    same(load_model(str(tmp_path)), trained(1), images, images)


def test_guarantee_save_model_is_never_mixed(tmp_path: Path) -> None:
    """As a power cut leaves it: the weights of the second network, the description of the first."""
    save_model(tmp_path, trained(0), DIGITS)
    words = (tmp_path / "model.json").read_text()
    save_model(tmp_path, trained(1), DIGITS)
    (tmp_path / "model.json").write_text(words)
    with pytest.raises(InputError, match="not the weights that model.json describes"):
        load_model(str(tmp_path))


def test_only_networks_of_the_package_are_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a TinyNet; it must be one of SmallCNN"):
        save_model(tmp_path / "a", tiny_net(), DIGITS)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "SmalCNN"}, "did you mean 'SmallCNN'"),
        ({"network": 3}, "must be one of SmallCNN"),
        ({"arguments": {"depth": 3}}, "the arguments of SmallCNN"),
        ({"arguments": None}, "the arguments of SmallCNN"),
        ({"arguments": {"width": 5}}, "'features.0.0.weight' has shape"),
        ({"preparation": {"resize": -1}}, "resize is -1"),
        ({"preparation": {"size": 3}}, "a field of preparation"),
        ({"preparation": None}, "must be a mapping"),
        ({"mean": [0.5]}, "needs both"),
        ({"sha256": "0"}, "not the weights"),
    ],
)
def test_damaged_values_are_named(tmp_path: Path, changes: Config, message: str) -> None:
    save_model(tmp_path, trained(), DIGITS)
    path = tmp_path / "model.json"
    path.write_text(sealed(unsealed(path.read_text()) | changes))
    with pytest.raises(InputError, match=message) as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_damaged_description_is_named(tmp_path: Path, text: str) -> None:
    save_model(tmp_path, trained(), DIGITS)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InputError, match="model.json is damaged"):
        load_model(str(tmp_path))


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without a model.json.*hf:"):
        load_model(str(tmp_path))
    save_model(tmp_path, trained(), DIGITS)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="model.safetensors is missing"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("network", "arguments", "message"),
    [
        ("timm:test_resnet", {"num_classes": 4}, "must be num_classes and channels"),
        ("timm:test_resnet", {"num_classes": 4, "channels": 3, "pretrained": 1}, "must be num_cl"),
        (
            "timm:test_resnet",
            {"num_classes": "4", "channels": 3},
            "num_classes of timm",
        ),
        ("timm:test_resnet", {"num_classes": 10**15, "channels": 3}, "must be at most 100,000"),
        ("timm:hf-hub:someone/thing", {"num_classes": 4, "channels": 3}, "that timm knows"),
        ("torchvision:get_model", {"num_classes": 4, "channels": 3}, "that torchvision knows"),
        ("torchvision:resnet18", {"num_classes": 4, "channels": 1}, "must be 3"),
        ("torchvision:resnet18", {"num_classes": 4, "channels": 3}, "from another network"),
        ("ResNet18", {"width": 0}, "width is 0"),
    ],
)
def test_damaged_descriptions_of_library_networks_are_named(
    tmp_path: Path, network: str, arguments: dict[str, object], message: str
) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("torchvision")
    initial = initial_network("timm:test_resnet", 4, 3)
    described = (initial.network, initial.arguments)
    save_model(tmp_path, initial.spec.module, initial.spec.preparation, described=described)
    path = tmp_path / "model.json"
    changed: Any = {"network": network, "arguments": arguments}
    path.write_text(sealed(unsealed(path.read_text()) | changed))
    with pytest.raises(InputError, match=message) as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


class Chatty(nn.Linear):
    def get_extra_state(self) -> object:
        return {"words": 3}


def test_a_network_that_cannot_be_saved_leaves_no_files(tmp_path: Path) -> None:
    preparation = Preparation()
    with pytest.raises(InputError, match="'_extra_state' of the network is a dict"):
        save_model(tmp_path / "a", Chatty(2, 2), preparation, described=("a.py:build", {}))
    with pytest.raises(InputError, match="'ResNet81'; it must be one of .*'ResNet18'"):
        save_model(tmp_path / "a", tiny_net(), preparation, described=("ResNet81", {}))
    assert not (tmp_path / "a").exists()


def test_tensors_that_share_memory_are_saved(tmp_path: Path, file: Path) -> None:
    initial = initial_network(f"{file}:tied", 3, 3)
    preparation = initial.spec.preparation
    save_model(tmp_path / "run", initial.spec.module, preparation, described=(initial.network, {}))
    weights = tmp_path / "run" / "model.safetensors"
    again = initial_network(f"{file}:tied", 3, 3, weights=weights, seed=8)
    assert digest_of(again.spec.module) == digest_of(initial.spec.module)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_factory_with_weights(tmp_path: Path, file: Path, name: str) -> None:
    net = tiny_net(seed=5)
    weights = tmp_path / name
    if weights.suffix == ".pth":
        torch.save(net.state_dict(), weights)
    else:
        save_file(net.state_dict(), weights)
    loaded = load_model(f"{file}:build", weights=weights)
    same(loaded, net, some_images(), some_images())
    assert loaded.preparation == Preparation()
    assert loaded.class_names is None
    digests = {"mymodel.py": file_digest(file), name: file_digest(weights)}
    assert loaded.about["files"] == digests
    assert loaded.about["source"] == f"{file}:build"


def test_a_factory_may_describe_its_network(tmp_path: Path, file: Path) -> None:
    net = tiny_net(seed=5)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model(f"{file}:described", weights=tmp_path / "w.safetensors")
    same(loaded, net, some_images(), (some_images() - 0.5) / 0.25)
    assert loaded.preparation == Preparation(20, (16, 16), channels=3)
    assert loaded.class_names == ("a", "b", "c", "d", "e")
    assert loaded.about["mean"] == [0.5]


def test_the_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "a_neighbour.py").write_text("CLASSES = 9\n")
    (tmp_path / "mymodel.py").write_text(
        "import a_neighbour\nfrom small_files import TinyNet\n"
        "def build():\n    return TinyNet(a_neighbour.CLASSES)\n"
    )
    before = list(sys.path)
    loaded = load_model(f"{tmp_path / 'mymodel.py'}:build")
    assert sys.path == before
    assert scores(loaded.module, some_images()).shape == (4, 9)


def test_weights_for_another_network_name_the_key(tmp_path: Path, file: Path) -> None:
    save_file(TinyNet(classes=9).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"'head.weight' has shape \(9, 8\), not \(5, 8\)"):
        load_model(f"{file}:build", weights=tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("biuld", "did you mean 'build'"),
        ("number", "number is a int; it must be a function"),
        ("", "'' in .* is missing"),
        ("needs", "TypeError: needs.. missing 1 required positional argument"),
        ("wrong", "the return value of .* is a int; it must be a torch.nn.Module"),
        ("fails", "KeyError: 'of the user'"),
        ("leaves", "SystemExit: 3"),
    ],
)
def test_mistakes_in_a_factory_are_one_line(file: Path, function: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_model(f"{file}:{function}")
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def build(:\n")
    with pytest.raises(InputError, match="SyntaxError"):
        load_model(f"{tmp_path / 'a.py'}:build")
    with pytest.raises(InputError, match="b.py is missing; it must be a file"):
        load_model(f"{tmp_path / 'b.py'}:build")


def test_guarantee_load_saved_runs_no_code_without_trust(tmp_path: Path, file: Path) -> None:
    """The error names the way to load it: the same file, named by the user."""
    net, preparation = tiny_net(seed=1), Preparation(20, (16, 16), "bicubic", 3)
    folder = tmp_path / "run"
    arguments: Config = {"num_classes": 5, "channels": 3}
    described = (f"{file}:build", arguments)
    save_model(folder, net, preparation, mean=(0.5,), std=(0.25,), described=described)
    ran, weights = tmp_path / "ran", folder / "model.safetensors"
    file.write_text(FACTORIES + f"import os; os.makedirs({str(ran)!r}, exist_ok=True)\n")
    for load, remedy in (
        (load_model, "--trust-code"),
        (lambda source: initial_network(source, 5, 3), "must be named by its file"),
    ):
        with pytest.raises(InputError, match=remedy) as caught:
            load(str(folder))
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(f"--model {file}:build --weights {weights}")
    assert not ran.exists()
    images = some_images()
    for loaded in (
        load_model(str(folder), trust_code=True),
        load_model(f"{file}:build", weights=weights),
    ):
        same(loaded, net, images, (images - 0.5) / 0.25)
        assert loaded.preparation == preparation
    assert ran.exists()


def saved(folder: Path, file: Path) -> Path:
    """Return the weights of a run of `described`, trained with another preprocessing."""
    initial = initial_network(f"{file}:described", 5, 3, seed=1)
    named = tuple("vwxyz")
    described = (initial.network, initial.arguments)
    preparation = Preparation(18, (12, 12), "bicubic", 3)
    save_model(
        folder,
        initial.spec.module,
        preparation,
        named,
        mean=(0.1,),
        std=(0.2,),
        described=described,
    )
    return folder / "model.safetensors"


def test_the_folder_of_weights_describes_their_preprocessing(tmp_path: Path, file: Path) -> None:
    weights = saved(tmp_path / "run", file)
    loaded = load_model(f"{file}:described", weights=weights)
    assert loaded.preparation == Preparation(18, (12, 12), "bicubic", 3)
    assert loaded.class_names == tuple("vwxyz")
    assert (loaded.about["mean"], loaded.about["std"]) == ([0.1], [0.2])
    names = {"mymodel.py", "model.safetensors", "model.json"}
    assert loaded.about["files"].keys() == names  # type: ignore[union-attr]
    given = Preparation(crop=(10, 10))
    other = load_model(
        f"{file}:described", weights=weights, preparation=given, mean=(0.3,), std=(0.4,)
    )
    assert other.preparation == Preparation(18, (10, 10), "bicubic", 3)
    assert (other.about["mean"], other.about["std"]) == ([0.3], [0.4])
    initial = initial_network(f"{file}:described", 5, 3, weights=weights)
    assert (initial.spec.mean, initial.spec.preparation) == ((0.1,), loaded.preparation)


def test_other_weights_leave_the_preprocessing_to_the_function(tmp_path: Path, file: Path) -> None:
    weights = saved(tmp_path / "run", file)
    copied = weights.rename(tmp_path / "run" / "copy.safetensors")
    own = Preparation(20, (16, 16), channels=3)
    assert load_model(f"{file}:described", weights=copied).preparation == own
    copied.rename(weights)
    about = weights.with_name("model.json")
    about.write_text(json.dumps({"format": "of something else"}))
    assert load_model(f"{file}:described", weights=weights).preparation == own
    about.write_text("{")
    with pytest.raises(InputError, match=r"model\.json is damaged"):
        load_model(f"{file}:described", weights=weights)


def test_weights_that_were_replaced_are_refused(tmp_path: Path, file: Path) -> None:
    weights = saved(tmp_path / "run", file)
    save_file(tiny_net(seed=5).state_dict(), weights)
    with pytest.raises(InputError, match=r"not the weights that model\.json describes"):
        load_model(f"{file}:described", weights=weights)
