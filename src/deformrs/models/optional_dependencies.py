"""Packages that may be missing, write to the log, draw from the global random state or download."""

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

from deformrs.errors import InputError, first_line, install_command


def import_extra(package: str) -> ModuleType:
    """Return the package; raise an error that says how to install it if it is missing."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise InputError(
            f"the package {package.partition('.')[0]}",
            "not installed" if error.name == package else f"incomplete ({error})",
            "is needed for this model",
            install_command(package),
        ) from None
    except (ImportError, RuntimeError) as error:
        # A torchvision that was built for another torch raises RuntimeError.
        raise InputError(
            f"the package {package.partition('.')[0]}",
            f"installed, but fails ({first_line(error)})",
            "must fit the torch that is installed",
            install_command(package, upgrade=True),
        ) from error


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Silence these loggers: errors are raised, and need not be logged as well."""
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
    """Seed torch's global random state, and restore it afterwards.

    For constructors of layers that take no generator of their own: those of other libraries and
    of the user. Other threads must not draw meanwhile.
    """
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        with torch.device("cpu"):  # another default device has a random state of its own
            yield
    finally:
        generator.set_state(before)


def reachable(address: str) -> bool:
    """Return whether the host of a URL resolves, which takes no time without a network.

    Downloaders retry for most of a minute before they give up.
    """
    parts = urlsplit(address)
    if parts.scheme in urllib.request.getproxies():
        return True  # the proxy resolves names
    try:
        socket.getaddrinfo(parts.hostname, parts.port or 443)
    except OSError:
        return False
    return True


def not_downloaded(source: str) -> InputError:
    """Return the error for a model that only a run names and that would have to be downloaded."""
    return InputError(
        f"the model {source}",
        "not in the cache",
        "must be there: only you start downloads",
        f"name the model yourself, as --model {source}",
    )


def no_weights(source: str, reason: str) -> InputError:
    """Return the error for a network whose published weights cannot be loaded."""
    return InputError(
        f"the model {source}",
        f"without weights ({reason})",
        "needs some",
        "pass a file of them with --weights (in Python, weights=)",
    )
