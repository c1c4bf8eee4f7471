"""State dicts: read without running anything, fitted into a network with errors that say why."""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from deformrs.errors import InputError
from deformrs.models.optional_dependencies import first_line

State = dict[str, Tensor]

_HOLDERS = ("state_dict", "model", "model_state_dict")
_WRAPPERS = ("module.", "_orig_mod.")  # of DataParallel and of torch.compile


def read_state(path: Path) -> State:
    """The tensors in a .safetensors or .pth file, by name.

    Guarantee: nothing in the file is executed, and a pickle that holds more than tensors and
    plain values is refused.
    """
    require_file("the weights file", path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            # Of an unusual pickle protocol; what cannot be read is an error anyway.
            warnings.simplefilter("ignore", UserWarning)
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"the weights file {path}",
            f"no plain state dict ({_reason(error)})",
            "must hold tensors and plain values alone: other content could run code",
            "save a plain state dict as .safetensors",
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # broken content fails in any way, and is always reported
        raise InputError(
            f"the weights file {path}",
            f"unreadable ({first_line(error)})",
            "must be a state dict saved as .safetensors, or by torch.save",
            "save it again",
        ) from None
    return _tensors(path, found)


def fit_state(network: nn.Module, state: State, origin: str) -> None:
    """Load the weights, all of them, or raise naming the first key that does not fit."""
    own = network.state_dict()
    state = unwrapped(state, own)
    misshapen = [k for k in own if k in state and shape_of(own[k]) != shape_of(state[k])]
    missing, unexpected = [k for k in own if k not in state], [k for k in state if k not in own]
    if not misshapen:
        try:
            missing, unexpected = network.load_state_dict(state, strict=False)
        except (RuntimeError, ValueError, TypeError) as error:
            raise InputError(
                f"the weights file {origin}",
                f"from another network ({first_line(error)})",
                "must fit the network key by key",
                "build the network that they were saved from",
            ) from error
    # Old checkpoints lack these counters, which evaluation does not read.
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if missing or unexpected or misshapen:
        raise InputError(
            f"the weights file {origin}",
            _misfit(own, state, missing, unexpected, misshapen),
            "must fit the network key by key",
            "build the network that they were saved from",
        )


def unwrapped(state: State, own: State) -> State:
    """A copy with the names that the network itself has, and the versions of its layers.

    Some layers rename what older files hold. A file that says no version is a new one.
    """
    versions = getattr(state, "_metadata", None) or getattr(own, "_metadata", None)
    for prefix in _WRAPPERS:
        if _all_begin(state, prefix) and not _all_begin(own, prefix):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
            versions = getattr(own, "_metadata", None)
    copy = OrderedDict(state)
    copy._metadata = versions  # type: ignore[attr-defined]
    return copy


def state_digest(network: nn.Module) -> str:
    """A digest of all weights and buffers, whatever file they came in."""
    return digest_of(network.state_dict())


def digest_of(state: Mapping[str, object]) -> str:
    """The same of a state dict."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if not isinstance(tensor, Tensor):  # what some layers keep besides
            digest.update(f"{name} {tensor!r}\n".encode())
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def shape_of(value: object) -> tuple[int, ...] | None:
    """None for what some layers keep besides tensors, and for lazy ones that have no shape yet."""
    return tuple(value.shape) if isinstance(value, Tensor) and not is_lazy(value) else None


def require_file(name: str, path: Path) -> None:
    """Raise unless there is a file at that path."""
    if not path.is_file():
        state = "a folder" if path.is_dir() else "missing"
        raise InputError(f"{name} {path}", state, "must be a file", "check the path")


def _tensors(path: Path, found: object) -> State:
    """The state dict in what a checkpoint holds, which may be nested under a usual key."""
    inner = found
    while isinstance(inner, Mapping) and not all(isinstance(v, Tensor) for v in inner.values()):
        key = next((k for k in _HOLDERS if isinstance(inner.get(k), Mapping)), None)
        if key is None:
            break
        inner = inner[key]
    whole = isinstance(inner, Mapping) and all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in inner.items()
    )
    if not isinstance(inner, Mapping) or not whole or not inner:
        held = ", ".join(map(repr, list(inner)[:4])) if isinstance(inner, Mapping) else ""
        raise InputError(
            f"the weights file {path}",
            f"a {type(found).__name__}" + (f" with {held}" if held else ""),
            "must hold a state dict, bare or under " + ", ".join(_HOLDERS),
            "save network.state_dict()",
        )
    return inner if isinstance(inner, dict) else dict(inner)


def _misfit(
    own: State, state: State, missing: list[str], unexpected: list[str], misshapen: list[str]
) -> str:
    parts = []
    if misshapen:
        key = misshapen[0]
        there, here = shape_of(state[key]), shape_of(own[key])
        parts.append(f"{key!r} has shape {there}, not {here} ({len(misshapen)} such in all)")
    if missing:
        parts.append(f"{missing[0]!r} is missing ({len(missing)} in all)")
    if unexpected:
        parts.append(f"{unexpected[0]!r} is unexpected ({len(unexpected)} in all)")
    return "from another network: " + ", ".join(parts)


def _all_begin(state: Mapping[str, Tensor], prefix: str) -> bool:
    return bool(state) and all(key.startswith(prefix) for key in state)


def _reason(error: pickle.UnpicklingError) -> str:
    """What a pickle asked for, out of torch's long advice."""
    asked = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f"it asks for {asked[1]}" if asked else "its pickle is not understood"


def sized_to(state: State, build: Callable[[int | None], nn.Module]) -> nn.Module:
    """The network with as many classes as the weights have; `build(None)` has its usual number.

    A network's last tensor is the bias or the weight of its head, one row a class.
    """
    network = build(None)
    name, usual = list(network.state_dict().items())[-1]
    here = state.get(name, usual)
    if here.dim() == 0 or here.shape[:1] == usual.shape[:1]:
        return network
    return build(len(here))


def fit_resized(
    network: nn.Module,
    state: State,
    origin: str,
    num_classes: int,
    build: Callable[[int], nn.Module],
) -> bool:
    """Load the weights; a head for other classes, or none, leaves the network's own as it is.

    `build(k)` is the same network for k classes: what depends on k is the head. Everything else
    must fit, as in `fit_state`. True if the head was loaded too.
    """
    own = network.state_dict()
    found = unwrapped(state, own)
    odd = {key for key in own if key not in found or shape_of(found[key]) != shape_of(own[key])}
    if odd:
        other = build(num_classes + 1).state_dict()
        head = {key: own[key] for key in own if shape_of(other.get(key)) != shape_of(own[key])}
        if odd & head.keys():
            found.update(head)
            fit_state(network, found, origin)
            return False
    fit_state(network, state, origin)
    return True
