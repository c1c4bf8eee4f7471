"""Networks from the user's own Python file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_files import TinyNet, same, scores, some_images, tiny_net

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import load_model
from deformrs.runs.files import file_digest

NETWORK = """
from small_files import TinyNet
from deformrs.models import NetworkSpec
from deformrs.data.preparation import Preparation

def build():
    return TinyNet()

def described():
    preparation = Preparation(crop=(16, 16), channels=3)
    return NetworkSpec(TinyNet(), preparation, (0.5,), (0.25,), ("a", "b", "c", "d", "e"))

def needs(size):
    return TinyNet(size)

def wrong():
    return 3

def fails():
    raise KeyError("of the user")

def leaves():
    raise SystemExit(3)

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mymodel.py"
    path.write_text(NETWORK)
    return path


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


def test_a_factory_may_say_what_its_network_wants(tmp_path: Path, file: Path) -> None:
    net = tiny_net(seed=5)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model(f"{file}:described", weights=tmp_path / "w.safetensors")
    same(loaded, net, some_images(), (some_images() - 0.5) / 0.25)
    assert loaded.preparation == Preparation(crop=(16, 16), channels=3)
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
def test_what_a_factory_gets_wrong_is_one_line(file: Path, function: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_model(f"{file}:{function}")
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def build(:\n")
    with pytest.raises(InputError, match="SyntaxError"):
        load_model(f"{tmp_path / 'a.py'}:build")
    with pytest.raises(InputError, match="b.py is missing; it must be a file"):
        load_model(f"{tmp_path / 'b.py'}:build")
