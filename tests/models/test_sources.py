"""load_model for every source: errors, options, the module that is certified."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from small_files import digest_of, export, scores, some_images, tiny_net

from deformrs.data.preparation import Preparation
from deformrs.determinism import check_evaluating
from deformrs.errors import InputError
from deformrs.models import NetworkSpec, SmallCNN, load_model
from deformrs.models.sources import FORMS

FACTORY = """
from small_files import tiny_net
from deformrs.models import NetworkSpec
from deformrs.data.preparation import Preparation

def build():
    preparation = Preparation(resize=20, crop=(16, 16), interpolation="bicubic", channels=3)
    return NetworkSpec(tiny_net().train(), preparation, (0.5,), (0.25,), channels_last=True)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "mymodel.py").write_text(FACTORY)
    return f"{tmp_path / 'mymodel.py'}:build"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("tim:resnet18", "did you mean timm:resnet18?"),
        ("TorchVision:resnet18", "did you mean torchvision:resnet18?"),
        ("HF:a/b", "did you mean hf:a/b?"),
        ("RobustBench:a", "did you mean robustbench:a?"),
        ("resnet18", "there is no such file or folder; for a network of a library write timm:resn"),
        ("runs/nothing", "there is no such file or folder; for Hugging Face write hf:runs/nothing"),
        ("mymodel.py", "name the function that builds it, e.g. mymodel.py:build"),
        ("r18.pth", "weights need a network: --model net.py:build --weights r18.pth, or --model"),
        ("", "for a network of a library"),
    ],
)
def test_an_unknown_source_lists_the_forms_and_the_nearest(name: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        load_model(name)
    message = str(caught.value)
    assert message.startswith(f"the model is {name!r}; it must be one of {FORMS}: ")
    assert remedy in message


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what people save: TorchScript, a whole module, an exported program, weights."""
    folder, net = tmp_path_factory.mktemp("programs"), tiny_net().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.trace(net, some_images(1))  # type: ignore[no-untyped-call]
        for name in ("script.pt", "script.ts", "script.pt2"):
            script.save(folder / name)
    torch.save(net, folder / "module.pth")
    export(folder / "program.pt2", net).rename(folder / "program.pt")
    torch.save(net.state_dict(), folder / "state.pth")
    return folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("script.pt", r"is a TorchScript program; .*torch.jit.load\('script.pt'\).*torch.export"),
        ("script.ts", "is a TorchScript program"),
        ("module.pth", r"it imports small_files.TinyNet.*torch.save\(network.state_dict\(\)"),
        ("program.pt", "is a program of torch.export; .*pass --model program.pt2"),
    ],
)
def test_programs_that_are_no_weights_say_how_to_be_used(
    programs: Path, source: str, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_model(source, weights=programs / name)
    with pytest.raises(InputError, match=message):
        load_model(str(programs / name), trust_code=True)


def test_files_that_are_no_model(programs: Path) -> None:
    with pytest.raises(InputError, match=r"weights need a network: .* --weights .*/state.pth, or"):
        load_model(str(programs / "state.pth"))
    with pytest.raises(InputError, match="is a TorchScript program"):
        load_model(str(programs / "script.pt2"), trust_code=True)


@pytest.mark.parametrize("name", ["a.onnx", "a.pt2", "a.py:build"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name.partition(':')[0]} is missing; it must be a file"):
        load_model(str(tmp_path / name))


@pytest.mark.parametrize("name", ["a.onnx", "a.pt2", "hf:a/b", "."])
def test_weights_are_refused_where_the_source_has_its_own(tmp_path: Path, name: str) -> None:
    (tmp_path / "w.pth").touch()
    with pytest.raises(InputError, match=f"cannot be given for {name}, which has its own"):
        load_model(name, weights=tmp_path / "w.pth")


def test_weights_may_be_given_as_text(tmp_path: Path, source: str) -> None:
    torch.save(tiny_net(seed=1).state_dict(), tmp_path / "w.pth")
    loaded = load_model(source, weights=cast("Path", str(tmp_path / "w.pth")))
    assert loaded.about["files"].keys() == {"mymodel.py", "w.pth"}  # type: ignore[union-attr]


def test_missing_weights_are_named_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the weights file .*w.pth is missing"):
        load_model("timm:resnet18", weights=tmp_path / "w.pth")


def test_options_are_checked_first() -> None:
    with pytest.raises(InputError, match="did you mean 'bfloat16'"):
        load_model("timm:resnet18", precision=cast("Any", "bfloat"))
    with pytest.raises(InputError, match="the device is 'gpu'; it cannot be used here"):
        load_model("timm:resnet18", device="gpu")
    with pytest.raises(InputError, match=r"mean \(0.5,\), std not given; it needs both"):
        load_model("timm:resnet18", mean=(0.5,))
    with pytest.raises(InputError, match="needs both"):
        load_model("timm:resnet18", mean=(0.5,), std=(0.5, 0.5))
    for std in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="with std above 0"):
            load_model("timm:resnet18", mean=(0.5,), std=(std,))


@pytest.mark.parametrize(
    ("mean", "std", "remedy"),
    [
        ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375), "0.485,0.456,0.406 --std 0.229,0.224"),
        ((123.7,), (1.0,), "--mean 0.4851 --std 0.003922"),
        ((123.7,), (0.229,), "--mean 0.4851 --std 0.229"),
        ((123.7,), None, "--mean 0.4851 --std ..."),
        (None, (58.4,), "--mean ... --std 0.229"),
        ((0.0,), (255.0,), "--mean 0 --std 1"),
    ],
)
def test_a_normalisation_of_bytes_is_refused_with_that_of_images(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None, remedy: str
) -> None:
    with pytest.raises(InputError, match=remedy):
        load_model("timm:resnet18", mean=mean, std=std)
    with pytest.raises(InputError, match="for pixels from 0 to 255"):
        NetworkSpec(SmallCNN(), mean=mean, std=std)


def test_every_usual_normalisation_is_accepted() -> None:
    for mean, std in [(0.5, 0.5), (0.0, 1.0), (0.485, 1 / 255), (-1.0, 2.0)]:
        NetworkSpec(SmallCNN(), mean=(mean,), std=(std,))


def test_arguments_override_the_source_field_by_field(source: str) -> None:
    stated = Preparation(resize=20, crop=(16, 16), interpolation="bicubic", channels=3)
    assert load_model(source).preparation == stated
    for given, merged in [
        (Preparation(), stated),
        (Preparation(resize=24), Preparation(24, (16, 16), "bilinear", 3)),
        (Preparation(crop=(8, 8)), Preparation(20, (8, 8), "bicubic", 3)),
        (Preparation(interpolation="lanczos"), Preparation(20, (16, 16), "lanczos", 3)),
        (Preparation(channels=1), Preparation(20, (16, 16), "bicubic", 1)),
    ]:
        assert load_model(source, preparation=given).preparation == merged
    loaded = load_model(source, mean=(0.1,), std=(0.2,))
    assert (loaded.about["mean"], loaded.about["std"]) == ([0.1], [0.2])
    images = some_images()
    torch.testing.assert_close(
        scores(loaded.module, images), scores(tiny_net(), (images - 0.1) / 0.2)
    )


def test_a_loaded_model_is_fixed_and_takes_no_gradients(source: str) -> None:
    loaded = load_model(source)
    check_evaluating(loaded.module)
    assert not any(part.training for part in loaded.module.modules())
    assert not any(part.requires_grad for part in loaded.module.parameters())


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_precision_is_that_of_the_network_and_logits_are_float32(
    source: str, precision: Any
) -> None:
    loaded = load_model(source, precision=precision)
    kinds = {part.dtype for part in loaded.module.parameters()}
    assert kinds == {getattr(torch, precision)}
    assert loaded.about["precision"] == precision
    got = scores(loaded.module, some_images())
    want = scores(load_model(source).module, some_images())
    assert got.dtype == torch.float32
    assert bool((got != want).any()) == (precision != "float32")
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.02)


def test_equal_models_have_equal_records(source: str) -> None:
    assert load_model(source).about == load_model(source).about
    half = load_model(source, precision="bfloat16").about
    assert half["state_sha256"] == load_model(source).about["state_sha256"]


def test_a_network_in_memory_is_copied() -> None:
    net = tiny_net().train()
    loaded = load_model(NetworkSpec(net, mean=(0.5,), std=(0.25,)), precision="bfloat16")
    assert net.training
    assert net.conv.weight.dtype == torch.float32
    assert loaded.about["source"] == "a TinyNet"
    assert loaded.about["state_sha256"] == digest_of(net)
    images = some_images()
    want = scores(tiny_net(), (images - 0.5) / 0.25)
    torch.testing.assert_close(scores(loaded.module, images), want, rtol=0.05, atol=0.02)
    with pytest.raises(InputError, match="cannot be given for a TinyNet"):
        load_model(NetworkSpec(net), weights=Path(__file__))
