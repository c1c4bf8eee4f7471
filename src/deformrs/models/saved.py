"""A trained network in a folder: model.json says what it is, model.safetensors holds it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import save
from torch import Tensor, nn

from deformrs.config import Config, ConfigValue
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models.registry import (
    build_network,
    check_name,
    library_version,
    name_and_arguments,
    of_library,
)
from deformrs.models.types import NetworkSpec, ResolvedSource, check_normalisation, require_trust
from deformrs.models.weights import fit_state, read_state
from deformrs.runs.files import file_digest, sync_folder, write_atomically
from deformrs.specs import load_object, users_code


def of_file(source: str) -> bool:
    """Does this name a function in a Python file?

    >>> of_file("mymodel.py:build"), of_file("mymodel.py")
    (True, False)
    """
    return source.rpartition(":")[0].endswith(".py")


def load_factory(source: str, weights: Path | None) -> ResolvedSource:
    """`mymodel.py:build`: call build(), which returns a network or a NetworkSpec; load weights."""
    file, _, name = source.rpartition(":")
    path = Path(file)
    spec = _build(path, name, source)
    files: Config = {path.name: file_digest(path)}
    if weights is not None:
        fit_state(spec.module, read_state(weights), str(weights))
        files[weights.name] = file_digest(weights)
    return ResolvedSource(spec, {"files": files})


def _build(path: Path, name: str, source: str) -> NetworkSpec:
    function = load_object(path, name)
    if not callable(function):
        raise InputError(
            source, f"a {type(function).__name__}", "must be a function", "name one that builds"
        )
    with users_code(path, f"the model {source}"):
        spec = function()
    if isinstance(spec, nn.Module):
        return NetworkSpec(spec)
    if isinstance(spec, NetworkSpec):
        return spec
    raise InputError(
        f"what {source} returns",
        f"a {type(spec).__name__}",
        "must be a torch.nn.Module, or a deformrs.models.NetworkSpec",
        "return the network",
    )


MODEL, WEIGHTS = "model.json", "model.safetensors"

T = TypeVar("T")


@dataclass(frozen=True)
class Saved:
    """What a folder holds, and how `build_network` makes such a network."""

    found: ResolvedSource
    network: str
    arguments: Config


@dataclass(frozen=True)
class Described:
    """What a folder says of its network, not checked yet; `built` lacks the network itself."""

    network: str
    arguments: Config
    spec: NetworkSpec
    digest: str

    def check_weights(self, folder: Path) -> str:
        """The digest of the weights in the folder; raise if they are not those it speaks of."""
        found = file_digest(folder / WEIGHTS)
        if found != self.digest:
            raise _damaged(folder / WEIGHTS, f"not the weights that {MODEL} speaks of")
        return found


def save_model(
    folder: Path,
    module: nn.Module,
    preparation: Preparation,
    class_names: tuple[str, ...] | None = None,
    *,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    described: tuple[str, Config] | None = None,
) -> None:
    """Write a network so that `load_model(folder)` finds it again.

    `mean` and `std` are for a network that does not normalise its images itself. `described` is
    the name and the arguments that `build_network` takes, for a network that is not of this
    package. One from FILE.py:FUNCTION is written too, but no folder makes that file run: it is
    loaded with its weights from the folder.

    Guarantee: a folder that was left half written is refused when it is loaded, never mixed.
    """
    check_normalisation(mean, std)
    name, arguments = name_and_arguments(module) if described is None else described
    if not of_file(name):
        check_name(name)
    content = save({key: _alone(key, value) for key, value in module.state_dict().items()})
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / (WEIGHTS + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / WEIGHTS)
    sync_folder(folder)
    about: Config = {
        "network": name,
        "arguments": arguments,
        "preparation": preparation.to_config(),
        "mean": _plain(mean),
        "std": _plain(std),
        "class_names": _plain(class_names),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    # Last, with the digest of the weights: between the two replacements the folder does not fit.
    write_atomically(folder / MODEL, json.dumps(about, indent=2) + "\n")


def load_saved(folder: Path, trust_code: bool) -> ResolvedSource:
    """Load the network in a folder that `save_model` wrote.

    Guarantee: a Python file that the folder names is executed only with `trust_code`.
    """
    network, weights = read_description(folder).network, folder / WEIGHTS
    if not (isinstance(network, str) and of_file(network)):
        return read_saved(folder).found
    require_trust(
        trust_code,
        f"the network in {folder}",
        f"built by {network}, a Python file that is executed",
        f"or name the file yourself: --model {network} --weights {weights}",
    )
    return load_users(network, weights)


def read_saved(folder: Path) -> Saved:
    """The same, with the name and the arguments of the network."""
    path = folder / MODEL
    described = read_description(folder)
    network, arguments = described.network, described.arguments
    if isinstance(network, str) and of_file(network):
        raise _code(folder, network)
    version = library_version(network) if of_library(network) else {}
    try:
        module = build_network(network, arguments)
    except InputError as error:
        raise _damaged(path, error) from None
    state = read_state(folder / WEIGHTS)
    found = described.check_weights(folder)
    fit_state(module, state, str(folder / WEIGHTS))
    files: Config = {MODEL: file_digest(path), WEIGHTS: found}
    spec = dataclasses.replace(described.spec, module=module)
    if not version:  # one of this package knows its arguments in full
        arguments = module.arguments  # type: ignore[assignment]
    return Saved(ResolvedSource(spec, {"files": files, **version}), network, arguments)


def read_description(folder: Path) -> Described:
    """What the folder says of its network. Nothing is built."""
    path = folder / MODEL
    if not path.is_file():
        raise _absent(folder)
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        spec = NetworkSpec(
            nn.Identity(),  # for the network, which comes when the rest is known to be sound
            Preparation.from_config(about["preparation"]),
            _tuple(about["mean"]),
            _tuple(about["std"]),
            _tuple(about["class_names"]),
            channels_last=True,
        )
        return Described(about["network"], about["arguments"], spec, about["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None


def _alone(key: str, value: object) -> Tensor:
    """A copy for the file, which takes no two tensors that share their memory."""
    if not isinstance(value, Tensor):
        raise InputError(
            f"{key!r} of the network",
            f"a {type(value).__name__}",
            "must be a tensor to be saved",
            "keep it as a buffer, or leave it out of the state dict",
        )
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _plain(values: tuple[float, ...] | tuple[str, ...] | None) -> ConfigValue:
    return None if values is None else list(values)


def _tuple(values: list[T] | None) -> tuple[T, ...] | None:
    return None if values is None else tuple(values)


def _absent(folder: Path) -> InputError:
    if (folder / "training.json").is_file():
        return InputError(
            f"the folder {folder}",
            "of a training that is not finished",
            f"must hold a {MODEL}",
            "give the command that began it again, which goes on where it stopped",
        )
    return InputError(
        f"the folder {folder}",
        f"without a {MODEL}",
        "must be one that training wrote",
        f"for a Hugging Face model write hf:{folder}",
    )


def _code(folder: Path, network: str) -> InputError:
    """The error for a network from a Python file, with the options that give the same function."""
    return InputError(
        f"the network in {folder}",
        f"built by {network}",
        "is never built because a folder says so, since that runs a Python file",
        f"name the file yourself: --model {network} --weights {folder / WEIGHTS}",
    )


def _damaged(path: Path, reason: Exception | str) -> InputError:
    known = isinstance(reason, InputError | str)
    return InputError(
        str(path),
        f"damaged ({reason if known else repr(reason)})",
        "must be as deformrs wrote it",
        "save the model again",
    )


def folder_beside(source: str, weights: Path | None) -> Path | None:
    """The folder that says what these weights want, for a network from FILE.py:FUNCTION.

    It is one that training such a network wrote, and the weights are its own. None otherwise.
    """
    if weights is None or not of_file(source) or weights.name != WEIGHTS:
        return None
    path = weights.parent / MODEL
    if not path.is_file():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            str(path),
            f"damaged ({error})",
            "must say what the weights beside it want",
            "save the model again, or move the weights elsewhere",
        ) from None
    network = about.get("network") if isinstance(about, dict) else None
    return weights.parent if isinstance(network, str) and of_file(network) else None


def load_users(source: str, weights: Path | None) -> ResolvedSource:
    """The network of FILE.py:FUNCTION, prepared and normalised as its weights were trained.

    What the folder of the weights says wins over what the function returns.
    """
    folder = folder_beside(source, weights)
    if folder is None or weights is None:
        return load_factory(source, weights)
    described = read_description(folder)
    described.check_weights(folder)
    found, said = load_factory(source, weights), described.spec
    spec = dataclasses.replace(
        found.spec,
        preparation=said.preparation,
        mean=said.mean,
        std=said.std,
        class_names=said.class_names,
    )
    files = found.about["files"]
    assert isinstance(files, dict)
    return ResolvedSource(spec, {"files": files | {MODEL: file_digest(folder / MODEL)}})
