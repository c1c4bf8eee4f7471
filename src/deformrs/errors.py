"""Exceptions that state the name, the value, the rule and the remedy."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from collections.abc import Iterable
from importlib import metadata


class DeformRSError(Exception):
    """Base class of the package's errors.

    >>> str(InputError("alpha", 1.2, "must lie in (0, 1)", "e.g. 0.001"))
    'alpha is 1.2; it must lie in (0, 1): e.g. 0.001'

    Its text is one line: line breaks and control characters, as file names may hold, are escaped.
    """

    def __init__(self, name: str, value: object, rule: str, remedy: str) -> None:
        super().__init__(name, value, rule, remedy)
        self.name, self.value, self.rule, self.remedy = name, value, rule, remedy

    def __str__(self) -> str:
        return printable(f"{self.name} is {self.value}; it {self.rule}: {self.remedy}")


class InputError(DeformRSError, ValueError):
    """An argument is outside what the function allows."""


class ModelError(DeformRSError, RuntimeError):
    """The classifier did something that a certificate cannot be built on."""


class LogitError(ModelError):
    """A logit is NaN or infinite for the image of this index, `deformed` or as it is stored."""

    index: int
    deformed: bool

    @classmethod
    def of(cls, index: int, *, deformed: bool, name: str | None = None) -> LogitError:
        """Return the error for an image, which is called `name` or by its index."""
        kind = "deformed" if deformed else "plain"
        error = cls(
            f"a logit of the model for the {kind} image {index if name is None else name}",
            "NaN or infinite",
            "must be a number",
            "check the weights, the precision and the input range",
        )
        error.index, error.deformed = index, deformed
        return error


class NoMemoryError(ModelError):
    """A batch does not fit the memory of the device."""


class ScarcityWarning(UserWarning):
    """The work continues, but slower than requested; the message says why."""


class UnsupportedError(DeformRSError, TypeError):
    """Each argument is valid, but the combination is not supported."""


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that is spelt most like this one, or None if none is close.

    >>> nearest("rotatoin", ["rotation", "shear"])
    'rotation'
    """
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return close[0] if close else None


def did_you_mean(name: object, known: Iterable[str], fallback: str = "check the spelling") -> str:
    """Return the remedy for a misspelt name: its nearest known spelling, or `fallback`.

    >>> did_you_mean("rotatoin", ["rotation", "shear"])
    "did you mean 'rotation'?"
    """
    close = nearest(name, known)
    return fallback if close is None else f"did you mean {close!r}?"


def damaged(name: object, reason: Exception | str, remedy: str = "restore it") -> InputError:
    """Return the error for a file that does not hold what this package wrote."""
    # The text of a KeyError, among others, does not say that it is about a missing key.
    text = reason if isinstance(reason, str | ValueError) else repr(reason)
    return InputError(str(name), f"damaged ({text})", "must be as deformrs wrote it", remedy)


def install_command(package: str, *, upgrade: bool = False) -> str:
    """Return the pip command that installs an optional package in the versions that are supported.

    It names the package itself: an extra such as deformrs[timm] would have to be found on PyPI,
    wherever deformrs was installed from.

    >>> install_command("pandas").partition(" install ")[2]
    '"pandas>=2.0"'
    """
    # Unless its environment is activated, pip alone would be that of another Python.
    active = sys.prefix in (sys.base_prefix, os.environ.get("VIRTUAL_ENV"))
    words = [*([] if active else [sys.executable, "-m"]), "pip", "install"]
    words += ["--upgrade"] if upgrade else []
    try:
        requirements, torch = metadata.requires("deformrs") or [], metadata.version("torch")
    except metadata.PackageNotFoundError:  # run from a source tree
        requirements, torch = [], ""
    versions = {re.split(r"\W", text)[0]: text.partition(";")[0].strip() for text in requirements}
    words.append(versions.get(package, package))
    if package == "robustbench":  # it imports both, but requires neither
        words += ["setuptools<81", "git+https://github.com/fra31/auto-attack"]
    if torch and package in ("timm", "torchvision", "robustbench"):
        # Each torchvision, which they need, fits one torch: pip would replace the installed one.
        words += [] if package == "torchvision" else ["torchvision"]
        words.append(f"torch=={torch}")
        if "+" in torch:  # from PyTorch's own index, which has one part for each such label
            index = f"https://download.pytorch.org/whl/{torch.partition('+')[2]}"
            words += ["--extra-index-url", index]
    return " ".join(f'"{word}"' if set(word) & set(" <>") else word for word in words)


def printable(text: str) -> str:
    r"""Escape line breaks and control characters.

    >>> printable("a\nb.png")
    'a\\nb.png'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted(text: object) -> str:
    r"""Return a path as one word of a shell command that is safe to copy, whatever its name.

    >>> print(quoted("my run"), quoted("-x"), quoted("a\nb"))
    'my run' ./-x $'a\x0ab'
    """
    word = str(text)
    word = f"./{word}" if word.startswith("-") else word
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_shell_letter, word)) + "'"


def _shell_letter(letter: str) -> str:
    if letter.isprintable():
        return f"\\{letter}" if letter in "\\'" else letter
    # File names keep bytes that are not UTF-8 as these surrogates.
    errors = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", errors))


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message that is not blank.

    >>> first_line(ValueError("no such layer\\nTraceback"))
    'no such layer'
    """
    try:
        return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
    except Exception:  # that of a user's own exception may raise another
        return type(error).__name__


def reason_of(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message.

    >>> reason_of(KeyError("head"))
    "KeyError: 'head'"
    """
    return f"{type(error).__name__}: {first_line(error)}"
