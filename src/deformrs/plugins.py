"""Python files of the user's own: a network's factory, a family of deformations."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deformrs.errors import DeformRSError, InputError


def load_object(path: Path, name: str) -> object:
    """What that file calls `name`. The file is the user's own code and runs as such."""
    if not path.is_file():
        raise InputError(f"the Python file {path}", "missing", "must be a file", "check the path")
    # A name of its own, so that no installed package is hidden by the user's file.
    module_name = f"deformrs_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError("the Python file", path, "must end in .py", "rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up
    with users_code(path, f"the Python file {path}"):
        spec.loader.exec_module(module)
    if not hasattr(module, name):
        names = [key for key in vars(module) if not key.startswith("_")]
        near = difflib.get_close_matches(name, names, n=1)
        raise InputError(
            f"{name!r} in {path}",
            "missing",
            "must be defined there",
            f"did you mean {near[0]!r}?" if near else "check the spelling",
        )
    return getattr(module, name)


@contextmanager
def users_code(path: Path, what: str) -> Iterator[None]:
    """Let code from that file import its neighbours, and turn what it raises into one line."""
    entry = str(path.parent.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    except DeformRSError:
        raise  # it says what to do
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            what, f"failing ({reason})", "must run without errors", "mend it"
        ) from error
    finally:
        sys.path.remove(entry)
