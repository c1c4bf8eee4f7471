"""Training that begins with the user's own Python file, and folders that name one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_files import TinyNet, digest_of, same, some_images, tiny_net
from torch import nn

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import initial_network, load_model, save_model
from deformrs.models.optional_dependencies import seeded
from deformrs.runs.files import file_digest

torchvision_ops.declare()

NETWORK = """
import torch
from torch import nn
from small_files import TinyNet
from deformrs.models import NetworkSpec
from deformrs.data.preparation import Preparation

def build():
    return TinyNet()

def described():
    preparation = Preparation(20, (16, 16), channels=3)
    return NetworkSpec(TinyNet().double(), preparation, (0.5,), (0.25,))

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5))

def tied():
    net = nn.Sequential(nn.Flatten(), nn.Linear(3, 3), nn.Linear(3, 3))
    net[2].weight = net[1].weight
    return net
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mymodel.py"
    path.write_text(NETWORK)
    return path


def test_a_network_of_ones_own(file: Path) -> None:
    before = torch.get_rng_state()
    start = initial_network(f"{file}:build", 5, 3, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert start.network == f"{file}:build"
    assert not start.pretrained
    assert start.normalises
    assert start.spec.mean is None
    assert start.about["files"] == {"mymodel.py": file_digest(file)}
    digest = digest_of(start.spec.module)
    again, other = (initial_network(f"{file}:build", 5, 3, seed=seed) for seed in (3, 4))
    assert digest == digest_of(again.spec.module) != digest_of(other.spec.module)


def test_its_weights_and_what_it_says(tmp_path: Path, file: Path) -> None:
    net = tiny_net(seed=5)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    start = initial_network(f"{file}:described", 5, 3, weights=tmp_path / "w.safetensors")
    assert digest_of(start.spec.module) == digest_of(net)
    assert start.pretrained
    assert start.spec.mean == (0.5,)
    assert start.spec.preparation == Preparation(20, (16, 16), channels=3)
    assert {part.dtype for part in start.spec.module.parameters()} == {torch.float32}
    assert start.about["files"].keys() == {"mymodel.py", "w.safetensors"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("function", "classes", "channels", "message"),
    [
        ("described", 7, 3, "logits of the network is 5; it must be 7"),
        ("described", 5, 1, "must be 3 for .* pass --channels 3"),
        ("lazy", 5, 3, "'1.weight' of .*:lazy is in a lazy layer"),
        ("biuld", 5, 3, "did you mean 'build'"),
    ],
)
def test_what_does_not_fit_is_one_line(
    file: Path, function: str, classes: int, channels: int, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        initial_network(f"{file}:{function}", classes, channels)
    assert "\n" not in str(caught.value)


def test_weights_it_cannot_have(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InputError, match="which brings its own"):
        initial_network(f"{file}:build", 5, 3, pretrained=True)
    save_file(TinyNet(classes=9).state_dict(), tmp_path / "w.safetensors")
    for function in ("build", "lazy"):
        with pytest.raises(InputError, match="from another network"):
            initial_network(f"{file}:{function}", 5, 3, weights=tmp_path / "w.safetensors")


def test_a_folder_never_makes_a_file_run(tmp_path: Path, file: Path) -> None:
    """The remedy is the way to load it: the same function, with the file named by the user."""
    start = initial_network(f"{file}:build", 5, 3, seed=1)
    net = start.spec.module.eval()
    said = Preparation(20, (16, 16), "bicubic", 3)
    folder = tmp_path / "run"
    described = (start.network, start.arguments)
    save_model(folder, net, said, mean=(0.5,), std=(0.25,), described=described)
    ran = tmp_path / "ran"
    file.write_text(NETWORK + f"import os; os.mkdir({str(ran)!r})\n")
    options = f"--model {file}:build --weights {folder / 'model.safetensors'}"
    for ask in (load_model, lambda source: initial_network(source, 5, 3)):
        with pytest.raises(InputError) as caught:
            ask(str(folder))
        assert str(caught.value).endswith("name the file yourself: " + options)
    assert not ran.exists()
    weights = folder / "model.safetensors"
    loaded = load_model(f"{file}:build", weights=weights)
    same(loaded, net, some_images(), (some_images() - 0.5) / 0.25)
    assert loaded.preparation == said
    assert ran.exists()


def saved(folder: Path, file: Path) -> Path:
    """The weights of a run of `described`, trained with settings that are not the function's."""
    start = initial_network(f"{file}:described", 5, 3, seed=1)
    named = tuple("vwxyz")
    described = (start.network, start.arguments)
    said = Preparation(18, (12, 12), "bicubic", 3)
    save_model(folder, start.spec.module, said, named, mean=(0.1,), std=(0.2,), described=described)
    return folder / "model.safetensors"


def test_the_folder_of_the_weights_says_what_they_want(tmp_path: Path, file: Path) -> None:
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
    start = initial_network(f"{file}:described", 5, 3, weights=weights)
    assert (start.spec.mean, start.spec.preparation) == ((0.1,), loaded.preparation)


def test_other_weights_speak_for_themselves(tmp_path: Path, file: Path) -> None:
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


def test_tensors_that_share_memory_are_saved(tmp_path: Path, file: Path) -> None:
    start = initial_network(f"{file}:tied", 3, 3)
    said = start.spec.preparation
    save_model(tmp_path / "run", start.spec.module, said, described=(start.network, {}))
    weights = tmp_path / "run" / "model.safetensors"
    again = initial_network(f"{file}:tied", 3, 3, weights=weights, seed=8)
    assert digest_of(again.spec.module) == digest_of(start.spec.module)


class Chatty(nn.Linear):
    def get_extra_state(self) -> object:
        return {"words": 3}


def test_what_cannot_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    said = Preparation()
    with pytest.raises(InputError, match="'_extra_state' of the network is a dict"):
        save_model(tmp_path / "a", Chatty(2, 2), said, described=("a.py:build", {}))
    with pytest.raises(InputError, match="'ResNet81'; it must be one of .*'ResNet18'"):
        save_model(tmp_path / "a", tiny_net(), said, described=("ResNet81", {}))
    assert not (tmp_path / "a").exists()


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
        ("timm:test_resnet", {"num_classes": 10**15, "channels": 3}, "must be built by timm"),
        ("timm:hf-hub:someone/thing", {"num_classes": 4, "channels": 3}, "that timm knows"),
        ("torchvision:get_model", {"num_classes": 4, "channels": 3}, "that torchvision knows"),
        ("torchvision:resnet18", {"num_classes": 4, "channels": 1}, "must be 3"),
        ("torchvision:resnet18", {"num_classes": 4, "channels": 3}, "from another network"),
        ("ResNet18", {"width": 0}, "width is 0"),
    ],
)
def test_damaged_words_about_a_library_are_named(
    tmp_path: Path, network: str, arguments: dict[str, object], message: str
) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("torchvision")
    start = initial_network("timm:test_resnet", 4, 3)
    described = (start.network, start.arguments)
    save_model(tmp_path, start.spec.module, start.spec.preparation, described=described)
    path = tmp_path / "model.json"
    changed = {"network": network, "arguments": arguments}
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError, match=message) as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_library_that_is_absent_is_named(tmp_path: Path) -> None:
    """Own networks need none; a folder that needs one says which, and is not called damaged."""
    for name in ("timm:test_resnet", "torchvision:resnet18"):
        arguments = {"num_classes": 4, "channels": 3}
        said = Preparation()
        folder = tmp_path / name.partition(":")[0]
        save_model(folder, tiny_net(), said, described=(name, dict(arguments)))
    code = f"""
import sys
sys.modules["timm"] = sys.modules["torchvision"] = None
from deformrs.models import load_model, initial_network
initial_network("resnet50:width=8", 4, 3)
for ask in (
    lambda: load_model({str(tmp_path / "timm")!r}),
    lambda: load_model({str(tmp_path / "torchvision")!r}),
    lambda: initial_network("timm:resnet18", 4, 3),
    lambda: initial_network("resnet50", 4, 3, pretrained=True),
):
    try:
        ask()
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    timm, torchvision, again, published = done.stdout.splitlines()
    wanted = "the package {} is not installed; it is needed for this model: pip install"
    assert timm.startswith(wanted.format("timm"))
    assert torchvision.startswith(wanted.format("torchvision"))
    assert again == timm
    assert published.startswith("the model resnet50 is without weights (the package torchvision")
    assert "--weights" in published


def test_seeded_gives_the_state_back_when_something_fails() -> None:
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
