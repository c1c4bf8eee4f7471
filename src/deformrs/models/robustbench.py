"""Networks of RobustBench for CIFAR-10 and CIFAR-100; of its checkpoints only tensors are read."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from deformrs.config import Config
from deformrs.data.cifar10 import CLASS_NAMES
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, UnsupportedError, first_line, nearest
from deformrs.models.optional_dependencies import (
    import_extra,
    no_weights,
    not_downloaded,
    reachable,
    seeded,
)
from deformrs.models.types import NetworkSpec, ResolvedSource
from deformrs.models.weights import State, fit_state, read_state
from deformrs.runs.files import file_digest, make_folder

_DEFAULTS = ["cifar10", "Linf"]  # those of RobustBench's own load_model
_HOST = "https://drive.google.com"
_SIZE = (32, 32)
_CONSTANTS = ("mu", "sigma")  # some networks hold their normalisation, which checkpoints lack
_OF_TRAINING = (".scores", "model_preact_hl1.1.weight")  # ... and some have more than the network


def load_robustbench(name: str, weights: Path | None, download: bool = True) -> ResolvedSource:
    """Return `robustbench:NAME` with weights from a file, the cache, or downloaded if `download`.

    NAME may begin with dataset and threat model: Standard is cifar10/Linf/Standard.

    Guarantee: nothing in a checkpoint is executed, unlike by a plain `torch.load`.
    """
    name, entry = _entry(name)
    source = f"robustbench:{name}"
    file = _cached(name, entry["gdrive_id"], download) if weights is None else weights
    state = read_state(file)
    try:
        with seeded(0), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            network = entry["model"]()
    except Exception as error:  # code of many authors, for many versions of torch and timm
        raise InputError(
            f"the model {source}",
            first_line(error),
            "must be built by RobustBench",
            "choose another",
        ) from error
    fit_state(network, _renamed(state, network.state_dict()), str(file))
    spec = NetworkSpec(  # they normalise their images themselves
        network,
        Preparation(resize=_SIZE[0], crop=_SIZE, channels=3),
        class_names=CLASS_NAMES if name.startswith("cifar10/") else None,
    )
    about: Config = {"files": {file.name: file_digest(file)}}
    about["robustbench"] = metadata.version("robustbench")
    return ResolvedSource(spec, about, name=source)


def _entry(name: str) -> tuple[str, dict[str, Any]]:
    """Return the name with dataset and threat model, and RobustBench's entry."""
    parts = name.split("/")
    full = "/".join(_DEFAULTS[: max(0, 3 - len(parts))] + parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own imports
        package = import_extra("robustbench")
    known = {
        f"{dataset.value}/{threat.value}/{short}": entry
        for dataset, threats in package.model_zoo.model_dicts.items()
        for threat, entries in threats.items()
        for short, entry in entries.items()
    }
    if full not in known:
        close = nearest(full, known)
        raise InputError(
            "the model",
            f"robustbench:{name}",
            "must be DATASET/THREAT/NAME as RobustBench knows it, by default cifar10/Linf/NAME",
            f"did you mean robustbench:{close}?" if close else "see robustbench.github.io",
        )
    if not full.startswith("cifar") or not isinstance(known[full]["gdrive_id"], str):
        raise UnsupportedError(
            f"the model robustbench:{full}",
            "of ImageNet, of several checkpoints or loaded by timm",
            "must be of CIFAR-10 or CIFAR-100, with one checkpoint",
            "choose another, or build it in a Python file: --model net.py:build",
        )
    return full, known[full]


def _cached(name: str, drive: str, download: bool) -> Path:
    """Return the published checkpoint in torch's cache, downloaded if it is not there."""
    source = f"robustbench:{name}"
    file = Path(torch.hub.get_dir(), "robustbench", f"{name}.pt")
    if file.exists():
        return file
    if not download:
        raise not_downloaded(source)
    if not reachable(_HOST):
        raise no_weights(source, f"{_HOST} cannot be reached")
    gdown = import_extra("gdown")
    make_folder(file.parent)
    part = file.with_suffix(".part")
    try:
        gdown.download(id=drive, output=str(part), quiet=not sys.stderr.isatty(), use_cookies=False)
    except Exception as error:  # gdown's own, and those of requests
        raise no_weights(source, first_line(error)) from error
    read_state(part)  # raises for a web page, which Google sends if there were many requests
    return part.replace(file)


def _renamed(state: State, own: State) -> State:
    """Return a checkpoint with the network's keys, as RobustBench's own loader changes them."""
    renamed = {key: own[key] for key in _CONSTANTS if key in own}
    for key, value in state.items():
        short = key.removeprefix("module.").removeprefix("model.")
        if short in own or not short.endswith(_OF_TRAINING):
            renamed[key if key in own else short] = value
    return renamed
