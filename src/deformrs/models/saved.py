"""A network of this package in a folder: model.json says what it is, model.safetensors holds it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TypeVar

from safetensors.torch import save
from torch import nn

from deformrs.config import Config, ConfigValue
from deformrs.errors import InputError
from deformrs.models.networks import build_network, name_and_arguments
from deformrs.models.parts import BuiltModel, Found, check_normalisation
from deformrs.models.weights import file_digest, fit_state, read_state
from deformrs.preparation import Preparation
from deformrs.runs.files import sync_folder, write_atomically

MODEL, WEIGHTS = "model.json", "model.safetensors"

T = TypeVar("T")


def save_model(
    folder: Path,
    module: nn.Module,
    preparation: Preparation,
    class_names: tuple[str, ...] | None = None,
    *,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> None:
    """Write a network of this package so that `load_model(folder)` finds it again.

    `mean` and `std` are for a network that does not normalise its pictures itself.

    Guarantee: a folder that was left half written is refused when it is loaded, never mixed.
    """
    check_normalisation(mean, std)
    name, arguments = name_and_arguments(module)
    folder.mkdir(parents=True, exist_ok=True)
    content = save({k: v.detach().cpu().contiguous() for k, v in module.state_dict().items()})
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


def load_saved(folder: Path) -> Found:
    """The network in a folder that `save_model` wrote."""
    path = folder / MODEL
    if not path.is_file():
        raise InputError(
            f"the folder {folder}",
            f"without a {MODEL}",
            "must be one that training wrote",
            f"for a Hugging Face model write hf:{folder}",
        )
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        preparation = Preparation.from_config(about["preparation"])
        built = BuiltModel(
            build_network(about["network"], about["arguments"]),
            preparation,
            _tuple(about["mean"]),
            _tuple(about["std"]),
            _tuple(about["class_names"]),
            channels_last=True,
        )
        digest = about["sha256"]
    except InputError as error:
        raise _damaged(path, str(error)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, repr(error)) from None
    state = read_state(folder / WEIGHTS)
    found = file_digest(folder / WEIGHTS)
    if found != digest:
        raise _damaged(folder / WEIGHTS, f"not the weights that {MODEL} speaks of")
    fit_state(built.module, state, str(folder / WEIGHTS))
    return Found(built, {"files": {MODEL: file_digest(path), WEIGHTS: found}})


def _plain(values: tuple[float, ...] | tuple[str, ...] | None) -> ConfigValue:
    return None if values is None else list(values)


def _tuple(values: list[T] | None) -> tuple[T, ...] | None:
    return None if values is None else tuple(values)


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(
        str(path), f"damaged ({reason})", "must be as deformrs wrote it", "save the model again"
    )
