"""Networks of RobustBench: of a package made here, and of the real one where it is installed."""

from __future__ import annotations

import io
import pickle
import sys
from contextlib import suppress
from enum import Enum
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from small_files import TinyNet, same, some_images, tiny_net
from torch import Tensor, nn

import torchvision_ops
from deformrs.data.cifar10 import CLASS_NAMES
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, UnsupportedError
from deformrs.models import initial_network, load_model, optional_dependencies, robustbench
from deformrs.runs.files import file_digest

torchvision_ops.declare()


class Datasets(Enum):
    cifar_10 = "cifar10"
    cifar_100 = "cifar100"
    imagenet = "imagenet"


class Threats(Enum):
    Linf = "Linf"
    L2 = "L2"


class Normalised(TinyNet):
    """With its normalisation as buffers, which the published checkpoints lack."""

    mu: Tensor

    def __init__(self) -> None:
        super().__init__(10)
        self.register_buffer("mu", torch.full((1, 3, 1, 1), 0.5))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images - self.mu)


def fails() -> nn.Module:
    raise TypeError("of an old timm")


ZOO: dict[Datasets, dict[Threats, dict[str, dict[str, Any]]]] = {
    Datasets.cifar_10: {
        Threats.Linf: {
            "Standard": {"model": lambda: TinyNet(10), "gdrive_id": "the id"},
            "Normalised2020": {"model": Normalised, "gdrive_id": "another"},
            "Ensemble2021": {"model": TinyNet, "gdrive_id": ["a", "b"]},
            "XCiT": {"model": TinyNet, "gdrive_id": None},
            "Old2019": {"model": fails, "gdrive_id": "old"},
        },
        Threats.L2: {"Standard": {"model": lambda: TinyNet(10), "gdrive_id": "third"}},
    },
    Datasets.cifar_100: {
        Threats.Linf: {"Wide2020": {"model": lambda: TinyNet(100), "gdrive_id": "wide"}}
    },
    Datasets.imagenet: {Threats.Linf: {"Large": {"model": TinyNet, "gdrive_id": "large"}}},
}


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A robustbench with these networks, and an empty cache."""
    package = ModuleType("robustbench")
    package.model_zoo = SimpleNamespace(model_dicts=ZOO)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "robustbench", package)
    version = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "1.1.1" if name == "robustbench" else version(name)
    )
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


def drive(monkeypatch: pytest.MonkeyPatch, content: bytes | Exception) -> list[str]:
    """Let gdown download that; return the list to which it adds the ids of the requests."""
    requests: list[str] = []

    def download(*, id: str, output: str, quiet: bool, use_cookies: bool) -> None:
        requests.append(id)
        assert not use_cookies
        if isinstance(content, Exception):
            raise content
        Path(output).write_bytes(content)

    monkeypatch.setitem(sys.modules, "gdown", SimpleNamespace(download=download))
    monkeypatch.setattr(robustbench, "reachable", lambda _: True)
    return requests


def saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("name", ["Standard", "Linf/Standard", "cifar10/Linf/Standard"])
@pytest.mark.parametrize("prefix", ["", "module.", "module.model."])
@pytest.mark.parametrize("key", [None, "state_dict", "last"])
def test_a_network_with_local_weights(
    name: str, prefix: str, key: str | None, tmp_path: Path
) -> None:
    """In each of the forms that RobustBench's own loader reads."""
    network = tiny_net(classes=10).eval()
    state = {prefix + name: value for name, value in network.state_dict().items()}
    torch.save({key: state, "epoch": 3} if key else state, tmp_path / "w.pt")
    loaded = load_model(f"robustbench:{name}", weights=tmp_path / "w.pt")
    same(loaded, network, some_images(side=32), some_images(side=32))
    assert loaded.class_names == CLASS_NAMES
    assert loaded.preparation == Preparation(32, (32, 32), channels=3)
    assert loaded.about["name"] == "robustbench:cifar10/Linf/Standard"
    assert loaded.about["robustbench"] == "1.1.1"
    assert loaded.about["files"] == {"w.pt": file_digest(tmp_path / "w.pt")}
    assert loaded.about["mean"] is None


@pytest.mark.usefixtures("zoo")
def test_weights_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_net(classes=100).eval()
    requests = drive(monkeypatch, saved(network.state_dict()))
    with pytest.raises(InputError, match="not in the cache"):
        load_model("robustbench:cifar100/Linf/Wide2020", download=False)
    for download in (True, False):
        loaded = load_model("robustbench:cifar100/Linf/Wide2020", download=download)
        same(loaded, network, some_images(side=32), some_images(side=32))
        assert loaded.class_names is None
    assert requests == ["wide"]
    cache = tmp_path / "torch/hub/robustbench"
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["Wide2020.pt"]


class Attack:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("environment", ["0", "1"])
def test_guarantee_load_robustbench_executes_nothing_in_a_checkpoint(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where torch is told to load any pickle, as by RobustBench's own loader."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", environment)
    harm = tmp_path / "executed"
    for content in (saved({"w": Attack(harm)}), pickle.dumps(Attack(harm))):
        drive(monkeypatch, content)
        (tmp_path / "w.pt").write_bytes(content)
        with pytest.raises(InputError):
            load_model("robustbench:Standard")
        with pytest.raises(InputError):
            load_model("robustbench:Standard", weights=tmp_path / "w.pt")
    assert not harm.exists()
    with suppress(RuntimeError):  # after that pickle, torch expects others
        torch.load(tmp_path / "w.pt", weights_only=False)
    assert harm.exists(), "the file is harmful"


@pytest.mark.usefixtures("zoo")
def test_a_failed_download_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(monkeypatch, b"<html>Too many users</html>")
    with pytest.raises(InputError, match="must be a state dict|must hold only tensors"):
        load_model("robustbench:Standard")
    drive(monkeypatch, ValueError("Cannot retrieve the public link"))
    with pytest.raises(InputError, match=r"without weights \(Cannot retrieve.*--weights"):
        load_model("robustbench:Standard")
    monkeypatch.setattr(robustbench, "reachable", lambda _: False)
    with pytest.raises(InputError, match=r"drive.google.com cannot be reached\).*--weights"):
        load_model("robustbench:Standard")
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.usefixtures("zoo")
def test_only_the_keys_that_published_checkpoints_lack_or_have_too_many_may_differ(
    tmp_path: Path,
) -> None:
    network = Normalised().eval()
    state = dict(network.state_dict())
    del state["mu"]
    weights = tmp_path / "w.pt"
    torch.save(state | {"conv.scores": torch.ones(3)}, weights)
    loaded = load_model("robustbench:Normalised2020", weights=weights)
    same(loaded, network, some_images(side=32), some_images(side=32))
    torch.save(state | {"block9.conv": torch.ones(3)}, weights)
    with pytest.raises(InputError, match="'block9.conv' is unexpected"):
        load_model("robustbench:Normalised2020", weights=weights)
    del state["conv.weight"]
    torch.save(state, weights)
    with pytest.raises(InputError, match="'conv.weight' is missing"):
        load_model("robustbench:Normalised2020", weights=weights)


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Standrad", "did you mean robustbench:cifar10/Linf/Standard"),
        ("cifar10/linf/Standard", "did you mean robustbench:cifar10/Linf/Standard"),
        ("cifar100/Wide2020", "did you mean robustbench:cifar100/Linf/Wide2020"),
        ("", "must be DATASET/THREAT/NAME as RobustBench knows it"),
        ("../../../Standard", "must be DATASET/THREAT/NAME as RobustBench knows it"),
        ("Old2019", r"of an old timm; it must be built by RobustBench"),
    ],
)
def test_unknown_names_suggest_the_nearest(name: str, message: str, tmp_path: Path) -> None:
    torch.save(tiny_net().state_dict(), tmp_path / "w.pt")
    with pytest.raises(InputError, match=message):
        load_model(f"robustbench:{name}", weights=tmp_path / "w.pt")


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("name", ["Ensemble2021", "XCiT", "imagenet/Linf/Large"])
def test_networks_that_are_not_one_checkpoint_of_cifar_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="must be of CIFAR-10 or CIFAR-100, with one"):
        load_model(f"robustbench:{name}")


def test_it_is_not_trained() -> None:
    with pytest.raises(InputError, match="build the network in a Python file"):
        initial_network("robustbench:Standard", 10, 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Standard", "Addepalli2021Towards_RN18", "Wong2020Fast"])
def test_the_real_networks_are_those_of_their_own_loader(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With random weights in RobustBench's own folder; checked against version 1.1.1."""
    utils = pytest.importorskip("robustbench.utils", exc_type=ImportError)
    entry = optional_dependencies.import_extra("robustbench").model_zoo.model_dicts
    threats = next(iter(entry.values()))
    network = next(iter(threats.values()))[name]["model"]()
    folder = tmp_path / "cifar10/Linf"
    folder.mkdir(parents=True)
    state = {f"module.{key}": value for key, value in network.state_dict().items() if key != "mu"}
    state.pop("module.sigma", None)
    torch.save({"state_dict": state}, folder / f"{name}.pt")
    theirs = utils.load_model(name, model_dir=tmp_path)
    loaded = load_model(f"robustbench:{name}", weights=folder / f"{name}.pt")
    same(loaded, theirs, some_images(side=32), some_images(side=32))
