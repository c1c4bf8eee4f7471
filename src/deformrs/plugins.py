"""Python files of the user's own: a network's factory, a family of deformations."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from pathlib import Path

from deformrs.errors import InputError


def load_object(path: Path, name: str | None) -> object:
    """What that file calls `name`; with None the file is only run, for what it defines.

    The file is the user's own code and runs as such.
    """
    if not path.is_file():
        raise InputError("the Python file", path, "must exist", "check the path")
    module_name = f"deformrs_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError("the Python file", path, "must end in .py", "rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            "the Python file", f"{path}, which fails ({reason})", "must run", "mend it"
        ) from error
    if name is None:
        return module
    if not hasattr(module, name):
        near = difflib.get_close_matches(name, dir(module), n=1)
        raise InputError(
            f"{name} in {path}",
            "missing",
            "must be defined there",
            f"did you mean {near[0]!r}?" if near else "check the spelling",
        )
    return getattr(module, name)
