"""Weights: read without executing anything, and fitted or refused by key."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_files import Payload, TinyNet, digest_of, draw, is_harmful, tiny_net
from torch import nn

from deformrs.errors import InputError
from deformrs.models.weights import fit_state, read_state
from deformrs.runs.files import file_digest


def test_guarantee_read_state_never_runs_a_pickle(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    state = tiny_net().state_dict() | {"extra": Payload(target)}
    torch.save(state, tmp_path / "zip.pth")
    torch.save(state, tmp_path / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": state}, tmp_path / "nested.pt")
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Payload(target)))
    with tarfile.open(tmp_path / "tar.pth", "w") as archive:
        for name in ("pickle", "storages", "tensors"):
            content = pickle.dumps(Payload(target))
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    assert is_harmful(pickle.dumps(Payload(target)), target)
    for name in ("zip.pth", "legacy.pth", "nested.pt", "bare.pth", "tar.pth"):
        with pytest.raises(InputError) as caught:
            read_state(tmp_path / name)
        assert not target.exists(), name
        assert "\n" not in str(caught.value), name
        assert ".safetensors" in str(caught.value), name


def test_a_hidden_payload_is_named_in_one_line(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1), "x": Payload(tmp_path / "ran")}, tmp_path / "w.pth")
    with pytest.raises(InputError) as caught:
        read_state(tmp_path / "w.pth")
    message = str(caught.value)
    assert message.startswith(f"the weights file {tmp_path / 'w.pth'} is no plain state dict (")
    assert "it imports" in message
    assert "mkdir" in message
    assert message.endswith("save a plain state dict as .safetensors")


def test_every_common_nesting_and_prefix_is_read(tmp_path: Path) -> None:
    net = tiny_net(seed=3)
    state = net.state_dict()
    parallel = {f"module.{key}": value for key, value in state.items()}
    compiled = OrderedDict((f"_orig_mod.{key}", value) for key, value in state.items())
    wrapped = {
        "bare.pth": state,
        "lightning.ckpt": {"epoch": 3, "state_dict": state, "loss": 0.5},
        "model.pt": {"model": state, "step": torch.tensor(3)},
        "deep.pth": {"model": {"model_state_dict": parallel, "n": 1}},
        "parallel.pth": parallel,
        "compiled.bin": compiled,
        "both.pth": {f"module._orig_mod.{key}": value for key, value in state.items()},
    }
    for name, content in wrapped.items():
        torch.save(content, tmp_path / name)
    save_file(state, tmp_path / "w.safetensors")
    for name in (*wrapped, "w.safetensors"):
        other = TinyNet()
        fit_state(other, read_state(tmp_path / name), name)
        assert digest_of(other) == digest_of(net), name


def test_a_network_whose_part_is_called_module_keeps_its_names() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = TinyNet()

    net = Holder()
    fit_state(net, Holder().state_dict(), "w.pth")


def test_counters_of_old_checkpoints_may_be_missing() -> None:
    state = {k: v for k, v in tiny_net().state_dict().items() if "num_batches" not in k}
    assert len(state) == len(tiny_net().state_dict()) - 1
    fit_state(TinyNet(), state, "old.pth")


def test_mismatched_keys_are_named_and_counted() -> None:
    state = tiny_net(classes=7).state_dict()
    state["head.scale"] = torch.ones(1)
    state["head.offset"] = torch.ones(1)
    del state["conv.bias"]
    with pytest.raises(InputError) as caught:
        fit_state(TinyNet(), state, "w.pth")
    message = str(caught.value)
    assert message.startswith("the weights file w.pth is from another network: ")
    assert "'head.weight' has shape (7, 8), not (5, 8) (2 such in all)" in message
    assert "'conv.bias' is missing (1 in all)" in message
    assert "'head.scale' is unexpected (2 in all)" in message
    assert "\n" not in message


class Renaming(nn.Module):
    """As torchvision's vision transformers: older files have another key and a version."""

    _version = 2

    def __init__(self, name: str = "new") -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.zeros(2)))

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *rest: Any) -> None:
        if metadata["version"] == 1:
            state[f"{prefix}new"] = state.pop(f"{prefix}old")
        super()._load_from_state_dict(state, prefix, metadata, *rest)


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_an_older_version_are_renamed_by_their_network(
    tmp_path: Path, version: int
) -> None:
    older = Renaming("old" if version == 1 else "new")
    older._version = version
    draw(older)
    torch.save(older.state_dict(), tmp_path / "w.pth")
    net = Renaming()
    fit_state(net, read_state(tmp_path / "w.pth"), "w.pth")
    assert torch.equal(net.state_dict()["new"], next(older.parameters()))


def test_a_file_without_versions_is_a_new_one(tmp_path: Path) -> None:
    net = Renaming()
    draw(net)
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    fit_state(Renaming(), read_state(tmp_path / "w.safetensors"), "w.safetensors")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("content", [b"", b"\x80", b"PK\x03\x04broken", b"hello " * 100])
def test_broken_files_are_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="the weights file .* is (unreadable|no plain)") as caught:
        read_state(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_file_that_was_cut_off_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "w.pth":
        torch.save(tiny_net().state_dict(), path)
    else:
        save_file(tiny_net().state_dict(), path)
    whole = path.read_bytes()
    for length in (10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError) as caught:
            read_state(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        torch.ones(3),
        [torch.ones(3)],
        {},
        {"epoch": 3},
        {"a": {"w": torch.ones(1)}},
        {3: torch.ones(1)},
    ],
    ids=["tensor", "list", "empty", "numbers", "other key", "number as key"],
)
def test_other_content_than_a_state_dict_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(InputError, match="must hold a state dict, bare or under state_dict"):
        read_state(tmp_path / "w.pth")


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing.pth is missing; it must be a file"):
        read_state(tmp_path / "nothing.pth")
    with pytest.raises(InputError, match="is a folder; it must be a file"):
        read_state(tmp_path)


def test_digests_tell_networks_apart(tmp_path: Path) -> None:
    assert digest_of(tiny_net(0)) == digest_of(tiny_net(0)) != digest_of(tiny_net(1))
    halved = tiny_net(0).to(torch.bfloat16)
    assert digest_of(halved) != digest_of(tiny_net(0))
    (tmp_path / "abc").write_bytes(b"abc")  # the test vector of FIPS 180-2
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(tmp_path / "abc") == known
