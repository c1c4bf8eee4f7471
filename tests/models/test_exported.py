"""Exported programs, which are code: loaded only where they are trusted."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path

import pytest
import torch
from small_files import Payload, export, same, some_images, tiny_net
from torch import Tensor, nn

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, ModelError
from deformrs.models import check_fixed, load_model
from deformrs.runs.files import file_digest


def test_any_batch_size(tmp_path: Path) -> None:
    net = tiny_net()
    path = export(tmp_path / "a.pt2", net)
    loaded = load_model(str(path), mean=(0.5,), std=(0.25,), trust_code=True)
    for number in (1, 2, 7):
        images = some_images(number)
        same(loaded, net, images, (images - 0.5) / 0.25)
    assert loaded.preparation == Preparation(crop=(16, 16), channels=3)
    assert loaded.about["files"] == {"a.pt2": file_digest(path)}
    assert not any(part.training for part in loaded.module.modules())
    check_fixed(loaded.module, some_images())


def test_a_fixed_batch_size_is_padded(tmp_path: Path) -> None:
    net = tiny_net()
    loaded = load_model(str(export(tmp_path / "a.pt2", net, batch=3)), trust_code=True)
    for number in (1, 3, 7):
        same(loaded, net, some_images(number), some_images(number))


class Restless(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) + torch.rand(3)


class Weighted(nn.Module):
    """Normalises its weights by their own statistics, as some networks do in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1, 5, 3, generator=torch.Generator().manual_seed(0)))

    def forward(self, images: Tensor) -> Tensor:
        weight = nn.functional.batch_norm(self.weight, None, None, training=True)
        return images.mean((2, 3)) @ weight[0].T


def test_statistics_of_weights_are_allowed(tmp_path: Path) -> None:
    net = Weighted()
    loaded = load_model(str(export(tmp_path / "a.pt2", net)), trust_code=True)
    same(loaded, net, some_images(), some_images())


@pytest.mark.parametrize(
    "net",
    [
        tiny_net().train(),
        nn.Sequential(tiny_net(), nn.Dropout(0.5).train()),
        Restless(),
    ],
    ids=["batch statistics", "dropout", "random numbers"],
)
def test_programs_that_are_not_fixed_functions_are_refused(tmp_path: Path, net: nn.Module) -> None:
    path = export(tmp_path / "a.pt2", net)
    with pytest.raises(ModelError, match="must be exported in evaluation mode"):
        load_model(str(path), trust_code=True)


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    class Flat(nn.Module):
        def forward(self, vectors: Tensor) -> Tensor:
            return vectors * 2

    path = tmp_path / "a.pt2"
    torch.export.save(torch.export.export(Flat(), (torch.rand(2, 3),)), path)
    with pytest.raises(InputError, match=r"must have one, N x C x H x W"):
        load_model(str(path), trust_code=True)


@pytest.mark.filterwarnings("ignore")
def test_guarantee_load_exported_opens_no_file_without_trust(tmp_path: Path) -> None:
    """torch.export.load unpickles what an archive holds, so the refusal must come first."""
    target, payload = tmp_path / "ran", io.BytesIO()
    torch.save(Payload(target), payload)
    path = export(tmp_path / "a.pt2", tiny_net())
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            hostile = name.endswith("data/sample_inputs/model.pt")
            archive.writestr(name, payload.getvalue() if hostile else content)
    with pytest.raises(InputError, match=r"--trust-code .*ONNX.*\.safetensors") as caught:
        load_model(str(path))
    assert "\n" not in str(caught.value)
    assert not target.exists()
    with contextlib.suppress(InputError):
        load_model(str(path), trust_code=True)
    assert target.exists(), "the file is harmful, or nothing was tested"


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + b"\0" * 18])
def test_broken_programs_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt2").write_bytes(content)
    with pytest.raises(InputError, match=r"the exported program .*a.pt2 is unreadable") as caught:
        load_model(str(tmp_path / "a.pt2"), trust_code=True)
    assert "\n" not in str(caught.value)
