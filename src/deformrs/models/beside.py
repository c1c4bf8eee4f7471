"""A network of the user's own with the weights of a run, whose folder says what they want."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from deformrs.errors import InputError
from deformrs.models.factory import load_factory, of_file
from deformrs.models.parts import Found
from deformrs.models.saved import MODEL, WEIGHTS, read_description
from deformrs.models.weights import file_digest


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


def load_users(source: str, weights: Path | None) -> Found:
    """The network of FILE.py:FUNCTION, prepared and normalised as its weights were trained.

    What the folder of the weights says wins over what the function returns.
    """
    folder = folder_beside(source, weights)
    if folder is None or weights is None:
        return load_factory(source, weights)
    described = read_description(folder)
    described.check_weights(folder)
    found, said = load_factory(source, weights), described.built
    built = dataclasses.replace(
        found.built,
        preparation=said.preparation,
        mean=said.mean,
        std=said.std,
        class_names=said.class_names,
    )
    files = found.about["files"]
    assert isinstance(files, dict)
    return Found(built, {"files": files | {MODEL: file_digest(folder / MODEL)}})
