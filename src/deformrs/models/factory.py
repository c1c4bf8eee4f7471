"""A network built by a function in the user's own Python file, which is trusted."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.parts import BuiltModel, Found
from deformrs.models.weights import file_digest, fit_state, read_state
from deformrs.plugins import load_object, users_code


def of_file(source: str) -> bool:
    """Does this name a function in a Python file?

    >>> of_file("mymodel.py:build"), of_file("mymodel.py")
    (True, False)
    """
    return source.rpartition(":")[0].endswith(".py")


def load_factory(source: str, weights: Path | None) -> Found:
    """`mymodel.py:build`: call build(), which returns a network or a BuiltModel; load weights."""
    file, _, name = source.rpartition(":")
    path = Path(file)
    built = _build(path, name, source)
    files: Config = {path.name: file_digest(path)}
    if weights is not None:
        fit_state(built.module, read_state(weights), str(weights))
        files[weights.name] = file_digest(weights)
    return Found(built, {"files": files})


def _build(path: Path, name: str, source: str) -> BuiltModel:
    function = load_object(path, name)
    if not callable(function):
        raise InputError(
            source, f"a {type(function).__name__}", "must be a function", "name one that builds"
        )
    with users_code(path, f"the model {source}"):
        built = function()
    if isinstance(built, nn.Module):
        return BuiltModel(built)
    if isinstance(built, BuiltModel):
        return built
    raise InputError(
        f"what {source} returns",
        f"a {type(built).__name__}",
        "must be a torch.nn.Module, or a deformrs.models.BuiltModel",
        "return the network",
    )
