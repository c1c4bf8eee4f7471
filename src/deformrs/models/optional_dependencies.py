"""Packages that may be absent, that talk too much, draw at random, or want a network."""

from __future__ import annotations

import importlib
import logging
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from urllib.parse import urlsplit

import torch

from deformrs.errors import InputError


def import_extra(package: str, extra: str, purpose: str = "this model") -> ModuleType:
    """The package, or an error that says which extra of this one brings it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise InputError(
            f"the package {package.partition('.')[0]}",
            "not installed" if error.name == package else f"incomplete ({error})",
            f"is needed for {purpose}",
            f"pip install 'deformrs[{extra}]'",
        ) from None
    except (ImportError, RuntimeError) as error:
        # A torchvision that was built for another torch raises RuntimeError.
        raise InputError(
            f"the package {package.partition('.')[0]}",
            f"installed, but fails ({first_line(error)})",
            "must fit the torch that is installed",
            f"pip install --upgrade 'deformrs[{extra}]'",
        ) from error


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Keep these loggers silent for a while: what goes wrong is raised as an error."""
    before = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let code that draws weights from torch's global random state draw them from `seed` alone.

    That state is as before afterwards. Other threads should draw nothing meanwhile.
    """
    # The constructors of layers take no generator of their own. Networks of this package go
    # around them; those of other libraries, and the user's, cannot be made otherwise.
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        with torch.device("cpu"):  # another default device has a state of its own
            yield
    finally:
        generator.set_state(before)


def reachable(address: str) -> bool:
    """Can the host of that address be asked for? Answers at once when there is no network.

    Downloaders try for most of a minute before they give up.
    """
    parts = urlsplit(address)
    if parts.scheme in urllib.request.getproxies():
        return True  # the proxy knows the names
    try:
        socket.getaddrinfo(parts.hostname, parts.port or 443)
    except OSError:
        return False
    return True


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


def no_weights(source: str, reason: str) -> InputError:
    """The error for a name whose published weights cannot be had."""
    return InputError(
        f"the model {source}",
        f"without weights ({reason})",
        "needs some",
        "pass a file of them with --weights (in Python, weights=)",
    )
