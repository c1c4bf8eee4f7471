"""A network built by a function in the user's own Python file, which is trusted."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn

from deformrs.config import Config
from deformrs.errors import DeformRSError, InputError
from deformrs.models.extras import first_line
from deformrs.models.parts import BuiltModel, Found
from deformrs.models.weights import file_digest, fit_state, read_state, require_file


def load_factory(source: str, weights: Path | None) -> Found:
    """`mymodel.py:build`: call build(), which returns a network or a BuiltModel; load weights."""
    file, _, name = source.rpartition(":")
    path = Path(file)
    require_file("the Python file", path)
    with _importable(path.parent):
        build = _function(_run(path, source), path, name)
        built = _call(build, source)
    files: Config = {path.name: file_digest(path)}
    if weights is not None:
        fit_state(built.module, read_state(weights), str(weights))
        files[weights.name] = file_digest(weights)
    return Found(built, {"files": files})


def _run(path: Path, source: str) -> ModuleType:
    # A name of its own, so that no installed package is hidden by the user's file.
    name = f"deformrs_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("the Python file", path, "must end in .py", "rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look themselves up there
    try:
        spec.loader.exec_module(module)
    except DeformRSError:
        raise  # it says what to do
    except Exception as error:
        raise _failed(source, error) from error
    return module


def _function(module: ModuleType, path: Path, name: str) -> Callable[[], object]:
    found = getattr(module, name, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    names = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    near = difflib.get_close_matches(name, names, n=1)
    raise InputError(
        f"the function {name!r} in {path}",
        "missing",
        "must be there to build the network",
        f"did you mean {near[0]!r}?" if near else f"write {path}:NAME of a function in it",
    )


def _call(build: Callable[[], object], source: str) -> BuiltModel:
    try:
        built = build()
    except DeformRSError:
        raise  # it says what to do
    except Exception as error:
        raise _failed(source, error) from error
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


def _failed(source: str, error: Exception) -> InputError:
    return InputError(
        f"the model {source}",
        f"not built ({type(error).__name__}: {first_line(error)})",
        "must be built without arguments and errors",
        "correct the file",
    )


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the file import its neighbours, as it could if it were run."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)
