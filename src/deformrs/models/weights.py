"""Weights: state dicts read without executing anything, and fitted into a network."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from deformrs.errors import InputError, first_line, quoted
from deformrs.limits import HEADER_BYTES, name_of, open_file

State = dict[str, Tensor]

_KEYS = ("state_dict", "model", "model_state_dict", "last")  # where checkpoints keep a state dict
_PREFIXES = ("module.", "_orig_mod.")  # of DataParallel and of torch.compile


def read_state(path: Path, *, links: bool = True) -> State:
    """Return the tensors in a .safetensors or .pth file by name.

    Guarantee: nothing in the file is executed, and a pickle that holds more than tensors and
    plain values is refused.
    """
    require_file("the weights file", path)
    check_not_torchscript(path)
    if _members(path) & {"archive_format", "serialized_exported_program.json"}:
        raise InputError(
            f"the file {path}",
            "a program of torch.export",
            "must be the model itself, and end in .pt2",
            f"rename it, and pass --model {quoted(path.stem + '.pt2')} without weights",
        )
    try:
        with open_file(path, links=links) as file, warnings.catch_warnings():
            if path.suffix == ".safetensors":
                check_header(file.read(8))
                return load_file(name_of(file, path))
            _check_packing(file)
            # About an unusual pickle protocol; what cannot be read is an error anyway.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except pickle.UnpicklingError as error:
        requested = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it imports {requested[1]}" if requested else "its pickle is not understood"
        raise InputError(
            f"the weights file {path}",
            f"no plain state dict ({reason})",
            "must hold only tensors and plain values: anything else could run code",
            "of a whole network save torch.save(network.state_dict(), 'net.pth') and pass "
            "--model net.py:build --weights net.pth, or save a plain state dict as .safetensors",
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise InputError(
            f"the weights file {path}",
            f"unreadable ({first_line(error)})",
            "must be a state dict saved as .safetensors, or by torch.save",
            "save it again",
        ) from None
    return _state_in(path, content)


def check_not_torchscript(path: Path) -> None:
    """Raise, saying what to save instead, if a file is a TorchScript program."""
    members = _members(path)
    if "constants.pkl" in members and "archive_format" not in members:
        raise InputError(
            f"the file {path}",
            "a TorchScript program",
            "must be a state dict, or a program of torch.export",
            f"save torch.save(torch.jit.load({path.name!r}).state_dict(), 'net.pth') and pass "
            "--model net.py:build --weights net.pth; or save torch.export.save(torch.export.export("
            "network.eval(), (images,)), 'net.pt2') and pass --model net.pt2",
        )


def _members(path: Path) -> set[str]:
    """Return the names of the files in an archive, without folders; none if it is no archive."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            return {name.rpartition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError):
        return set()  # reading it says why


def check_header(start: bytes) -> None:
    """Raise ValueError unless the first eight bytes of a .safetensors file state a fair length."""
    length = int.from_bytes(start[:8], "little")
    if length > HEADER_BYTES:
        raise ValueError(f"a header of {length:,} bytes, more than {HEADER_BYTES:,}")


def _check_packing(file: BinaryIO) -> None:
    """Raise ValueError if an archive unpacks to more than its size; torch.save never packs."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > file.seek(0, os.SEEK_END):
            raise ValueError(f"compressed, {unpacked:,} bytes unpacked")
    file.seek(0)


def fit_state(network: nn.Module, state: State, origin: str) -> None:
    """Load all weights into a network; raise naming the first key that does not fit."""
    own = network.state_dict()
    state = unwrapped(state, own)
    misshapen = [k for k in own if k in state and shape_of(own[k]) != shape_of(state[k])]
    missing, unexpected = [k for k in own if k not in state], [k for k in state if k not in own]
    mismatch = ""
    if not misshapen:
        try:
            missing, unexpected = network.load_state_dict(state, strict=False)
        except (RuntimeError, ValueError, TypeError) as error:
            mismatch = first_line(error)
    # Old checkpoints lack these counters, which evaluation does not read.
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if misshapen:
        key = misshapen[0]
        there, here = shape_of(state[key]), shape_of(own[key])
        mismatch = f"{key!r} has shape {there}, not {here} ({len(misshapen)} such in all)"
    for keys, problem in ((missing, "missing"), (unexpected, "unexpected")):
        if keys:
            mismatch += ", " if mismatch else ""
            mismatch += f"{keys[0]!r} is {problem} ({len(keys)} in all)"
    if mismatch:
        raise InputError(
            f"the weights file {origin}",
            f"from another network: {mismatch}",
            "must fit the network key by key",
            "build the network that they were saved from",
        )


def fit_resized(
    network: nn.Module,
    state: State,
    origin: str,
    num_classes: int,
    build: Callable[[int], nn.Module],
) -> bool:
    """Load weights, but keep the network's own head if theirs is for other classes or missing.

    `build(k)` returns the same network for k classes: the tensors that depend on k are the head.
    All others must fit, as in `fit_state`. Returns whether the head was loaded too.
    """
    own = network.state_dict()
    merged = unwrapped(state, own)
    unfit = {key for key in own if key not in merged or shape_of(merged[key]) != shape_of(own[key])}
    if unfit:
        other = build(num_classes + 1).state_dict()
        head = {key: own[key] for key in own if shape_of(other.get(key)) != shape_of(own[key])}
        if unfit & head.keys():
            merged.update(head)
            fit_state(network, merged, origin)
            return False
    fit_state(network, state, origin)
    return True


def sized_to(state: State, build: Callable[[int | None], nn.Module]) -> nn.Module:
    """Return a network with as many classes as the weights; `build(None)` has its default number.

    The last tensor of a network is the bias or the weight of its head, with one row per class.
    """
    network = build(None)
    name, default = list(network.state_dict().items())[-1]
    given = state.get(name, default)
    if given.dim() == 0 or given.shape[:1] == default.shape[:1]:
        return network
    return build(len(given))


def unwrapped(state: State, own: State) -> State:
    """Return a copy without the prefixes of wrappers, with the versions of the network's layers.

    Some layers rename the keys of older files. A file without versions counts as a new one.
    """
    versions = getattr(state, "_metadata", None) or getattr(own, "_metadata", None)
    for prefix in _PREFIXES:
        if _all_start_with(state, prefix) and not _all_start_with(own, prefix):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
            versions = getattr(own, "_metadata", None)
    copy = OrderedDict(state)
    copy._metadata = versions  # type: ignore[attr-defined]
    return copy


def state_digest(state: Mapping[str, object]) -> str:
    """Return the SHA-256 of all weights and buffers, whatever file they came in."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if not isinstance(tensor, Tensor):  # extra state that some layers keep
            digest.update(f"{name} {tensor!r}\n".encode())
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def shape_of(value: object) -> tuple[int, ...] | None:
    """Return a tensor's shape; None for lazy tensors and for extra state that is no tensor."""
    return tuple(value.shape) if isinstance(value, Tensor) and not is_lazy(value) else None


def require_file(name: str, path: Path) -> None:
    """Raise unless there is a file at that path."""
    if not path.is_file():
        state = "a folder" if path.is_dir() else "missing"
        raise InputError(f"{name} {path}", state, "must be a file", "check the path")


def _state_in(path: Path, content: object) -> State:
    """Return the state dict in a checkpoint, which may be nested under a usual key."""
    inner = content
    while isinstance(inner, Mapping) and not all(isinstance(v, Tensor) for v in inner.values()):
        key = next((k for k in _KEYS if isinstance(inner.get(k), Mapping)), None)
        if key is None:
            break
        inner = inner[key]
    valid = isinstance(inner, Mapping) and all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in inner.items()
    )
    if not isinstance(inner, Mapping) or not valid or not inner:
        keys = ", ".join(map(repr, list(inner)[:4])) if isinstance(inner, Mapping) else ""
        raise InputError(
            f"the weights file {path}",
            f"a {type(content).__name__}" + (f" with {keys}" if keys else ""),
            "must hold a state dict, bare or under " + ", ".join(_KEYS),
            "save network.state_dict()",
        )
    return inner if isinstance(inner, dict) else dict(inner)


def _all_start_with(state: Mapping[str, Tensor], prefix: str) -> bool:
    return bool(state) and all(key.startswith(prefix) for key in state)
