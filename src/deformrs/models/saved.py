"""Networks in run folders and in the user's Python files.

A run folder holds `model.json`, which describes its network with the digest of its weights and of
the description, and `model.safetensors`, the weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from deformrs.config import Config
from deformrs.data.labels import check_class_names
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, damaged, quoted
from deformrs.models.networks import (
    build_network,
    check_name,
    library_of,
    name_and_arguments,
    of_library,
)
from deformrs.models.types import (
    NetworkSpec,
    ResolvedSource,
    check_normalisation,
    require_trust,
)
from deformrs.models.weights import fit_state, read_state
from deformrs.runs.files import file_digest, make_folder, write_atomically
from deformrs.runs.records import read_sealed, sealed
from deformrs.specs import load_object, users_code

MODEL, WEIGHTS = "model.json", "model.safetensors"
TRAINING, BEST = "training.json", "best"
"""The settings of a training, and the folder of its best epoch."""
_SAVE_AGAIN = "save the model again"


@dataclass(frozen=True)
class Description:
    """The content of a `model.json`: all that is known of a network but its weights."""

    folder: Path
    network: str
    arguments: Config
    preparation: Preparation
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    class_names: tuple[str, ...] | None
    sha256: str

    def applied_to(self, spec: NetworkSpec) -> NetworkSpec:
        """Return the network with the preprocessing that is described here."""
        return dataclasses.replace(
            spec,
            preparation=self.preparation,
            mean=self.mean,
            std=self.std,
            class_names=self.class_names,
        )

    def check_weights(self) -> None:
        """Raise unless the weights in the folder are those that are described."""
        if file_digest(self.folder / WEIGHTS) != self.sha256:
            raise damaged(
                self.folder / WEIGHTS, f"not the weights that {MODEL} describes", _SAVE_AGAIN
            )

    @property
    def uses_code(self) -> bool:
        """Whether a Python file builds the network."""
        return isinstance(self.network, str) and of_file(self.network)

    @property
    def explicit_options(self) -> str:
        """The options that load the network by naming its Python file."""
        return f"--model {quoted(self.network)} --weights {quoted(self.folder / WEIGHTS)}"


def of_file(source: str) -> bool:
    """Return whether this names a function in a Python file.

    >>> of_file("mymodel.py:build"), of_file("mymodel.py")
    (True, False)
    """
    return source.rpartition(":")[0].endswith(".py")


def load_factory(source: str, weights: Path | None) -> ResolvedSource:
    """Call `mymodel.py:build`, which returns a network or a NetworkSpec, and load weights into it.

    If training such a network wrote the weights, the description in their folder wins over the
    preprocessing that the function returns.
    """
    file, _, function = source.rpartition(":")
    path = Path(file)
    folder = folder_of_weights(source, weights)
    description = None if folder is None else read_description(folder)
    if description is not None:
        description.check_weights()
    spec = _call(path, function, source)
    files: Config = {path.name: file_digest(path)}
    if weights is not None:
        fit_state(spec.module, read_state(weights), str(weights))
        files[weights.name] = file_digest(weights)
    if description is not None:
        spec = description.applied_to(spec)
        files[MODEL] = file_digest(description.folder / MODEL)
    return ResolvedSource(spec, {"files": files}, name=f"{path.name}:{function}")


def load_saved(folder: Path, trust_code: bool = False) -> ResolvedSource:
    """Return the network in a folder that `save_model` wrote.

    Guarantee: a Python file that the folder names is executed only with `trust_code`.
    """
    description = read_description(folder)
    if description.uses_code:
        require_trust(
            trust_code,
            f"the network in {folder}",
            f"built by {description.network}, a Python file that is executed",
            f"or name the file yourself: {description.explicit_options}",
        )
        return load_factory(description.network, folder / WEIGHTS)
    network = description.network
    version = library_of(network)[2] if of_library(network) else {}
    try:
        module = build_network(network, description.arguments)
    except InputError as error:
        raise damaged(folder / MODEL, error, _SAVE_AGAIN) from None
    state = read_state(folder / WEIGHTS, links=False)
    description.check_weights()
    fit_state(module, state, str(folder / WEIGHTS))
    spec = description.applied_to(NetworkSpec(module, channels_last=True))
    files: Config = {MODEL: file_digest(folder / MODEL), WEIGHTS: description.sha256}
    return ResolvedSource(spec, {"files": files, **version})


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
    """Write a network to a folder that `load_model` reads.

    `mean` and `std` are for a network that does not normalise its images itself. `described` is
    the name and the arguments for `build_network`, for a network that is not of this package. It
    may be FILE.py:FUNCTION, which loading the folder executes only if it is trusted.

    Guarantee: a folder that was left half written is refused when it is loaded, never mixed.
    """
    check_normalisation(mean, std)
    name, arguments = name_and_arguments(module) if described is None else described
    if not of_file(name):
        check_name(name)
    content = save({key: _unshared(key, value) for key, value in module.state_dict().items()})
    make_folder(folder)
    write_atomically(folder / WEIGHTS, content)
    about: Config = {
        "network": name,
        "arguments": arguments,
        "preparation": preparation.to_config(),
        "mean": None if mean is None else list(mean),
        "std": None if std is None else list(std),
        "class_names": None if class_names is None else list(class_names),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    # Last, with the digest of the weights: between the two replacements the folder does not fit.
    write_atomically(folder / MODEL, sealed(about))


def read_description(folder: Path) -> Description:
    """Return the content of a folder's `model.json`; the network is not built."""
    path = folder / MODEL
    if not path.is_file():
        raise _without_model(folder)
    about: Any = read_sealed(path, _SAVE_AGAIN)
    try:
        mean, std, names = (
            None if about[key] is None else tuple(about[key])
            for key in ("mean", "std", "class_names")
        )
        check_normalisation(mean, std)
        if names is not None:
            check_class_names(about["class_names"])
        preparation = Preparation.from_config(about["preparation"])
        network, arguments, digest = about["network"], about["arguments"], about["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, error, _SAVE_AGAIN) from None
    return Description(folder, network, arguments, preparation, mean, std, names, digest)


def folder_of_weights(source: str, weights: Path | None) -> Path | None:
    """Return the folder in which training a network from FILE.py:FUNCTION wrote these weights.

    None if `source` is no such network, or the weights come from elsewhere.
    """
    if weights is None or not of_file(source) or weights.name != WEIGHTS:
        return None
    path = weights.parent / MODEL
    if not path.is_file():
        return None
    about = read_sealed(path, "save the model again, or move the weights elsewhere")
    network = about.get("network")
    return weights.parent if isinstance(network, str) and of_file(network) else None


def _call(path: Path, name: str, source: str) -> NetworkSpec:
    function = load_object(path, name)
    if not callable(function):
        raise InputError(
            source, f"a {type(function).__name__}", "must be a function", "name one that builds"
        )
    with users_code(path, f"the model {source}"):
        returned = function()
    if isinstance(returned, nn.Module):
        return NetworkSpec(returned)
    if isinstance(returned, NetworkSpec):
        return returned
    raise InputError(
        f"the return value of {source}",
        f"a {type(returned).__name__}",
        "must be a torch.nn.Module, or a deformrs.models.NetworkSpec",
        "return the network",
    )


def _unshared(key: str, value: object) -> Tensor:
    """Return a copy of a tensor: a .safetensors file takes no two that share memory."""
    if not isinstance(value, Tensor):
        raise InputError(
            f"{key!r} of the network",
            f"a {type(value).__name__}",
            "must be a tensor to be saved",
            "keep it as a buffer, or leave it out of the state dict",
        )
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _without_model(folder: Path) -> InputError:
    if (folder / TRAINING).is_file():
        return InputError(
            f"the folder {folder}",
            "of a training that is not finished",
            f"must hold a {MODEL}",
            "run the command that started it again: training resumes where it stopped",
        )
    return InputError(
        f"the folder {folder}",
        f"without a {MODEL}",
        "must be one that training wrote",
        f"for a Hugging Face model write {quoted(f'hf:{folder}')}",
    )
