"""Packages that are missing, downloads without a network, and the global random state."""

from __future__ import annotations

import socket
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from small_files import cache_on_hub, normalised, same, some_images, tiny_net

import torchvision_ops
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, install_command
from deformrs.models import SmallCNN, initial_network, load_model, save_model
from deformrs.models.optional_dependencies import seeded

torchvision_ops.declare()

TORCH = metadata.version("torch")
TORCHS_OWN_INDEX = (
    f" --extra-index-url https://download.pytorch.org/whl/{TORCH.partition('+')[2]}"
    if "+" in TORCH
    else ""
)
COMMANDS = {
    "timm": f'pip install "timm>=1.0" torchvision torch=={TORCH}{TORCHS_OWN_INDEX}',
    "torchvision": f'pip install "torchvision>=0.19" torch=={TORCH}{TORCHS_OWN_INDEX}',
    "onnxruntime": 'pip install "onnxruntime>=1.24"',
    "transformers": 'pip install "transformers>=4.40"',
}


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder whose network needs one is not called damaged; own networks need none."""
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    for package in COMMANDS:
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
            f"{COMMANDS[package]}"
        )
    monkeypatch.setitem(sys.modules, "robustbench", None)
    with pytest.raises(InputError, match="the package robustbench is not installed.*pip install"):
        load_model("robustbench:Standard")
    with pytest.raises(InputError, match="the package timm is not installed"):
        initial_network("timm:resnet18", 4, 3)
    with pytest.raises(InputError, match=r"without weights \(the package torchvision .*--weights"):
        initial_network("resnet50", 4, 3, pretrained=True)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An activated environment, and metadata as of a wheel."""
    requirements = ["torch>=2.6", "onnx; extra == 'dev'", "onnxruntime>=1.24; extra == 'onnx'"]
    requirements += ["torchvision>=0.19; extra == 'torchvision'", "robustbench>=1.1; extra == 'r'"]
    monkeypatch.setattr(metadata, "requires", lambda _: requirements)
    monkeypatch.setattr(metadata, "version", lambda _: "2.13.0")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)


@pytest.mark.usefixtures("installed")
def test_an_optional_package_is_installed_in_the_versions_of_its_extra() -> None:
    assert install_command("onnxruntime") == 'pip install "onnxruntime>=1.24"'
    assert install_command("onnxruntime", upgrade=True) == (
        'pip install --upgrade "onnxruntime>=1.24"'
    )
    assert install_command("huggingface_hub") == "pip install huggingface_hub", "of no extra"


@pytest.mark.usefixtures("installed")
def test_torchvision_is_chosen_for_the_installed_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    command = 'pip install "torchvision>=0.19" torch==2.13.0'
    assert install_command("torchvision") == command
    monkeypatch.setattr(metadata, "version", lambda _: "2.13.0+cu130")
    assert install_command("torchvision") == (
        f"{command}+cu130 --extra-index-url https://download.pytorch.org/whl/cu130"
    )


@pytest.mark.usefixtures("installed")
def test_robustbench_comes_with_what_it_imports_but_does_not_require() -> None:
    assert install_command("robustbench") == (
        'pip install "robustbench>=1.1" "setuptools<81" '
        "git+https://github.com/fra31/auto-attack torchvision torch==2.13.0"
    )


@pytest.mark.usefixtures("installed")
def test_the_command_is_for_the_python_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", "/home/me/my env")
    monkeypatch.setattr(sys, "executable", "/home/me/my env/bin/python")
    python = '"/home/me/my env/bin/python" -m '
    assert install_command("onnxruntime") == f'{python}pip install "onnxruntime>=1.24"'
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert install_command("onnxruntime") == 'pip install "onnxruntime>=1.24"'


def test_without_metadata_the_package_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", missing)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert install_command("pandas") == "pip install pandas"


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
