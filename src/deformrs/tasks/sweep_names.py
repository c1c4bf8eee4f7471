"""Names for the folders of a sweep's runs: readable, harmless as paths, no two alike."""

from __future__ import annotations

import hashlib
import re

from deformrs.errors import InputError
from deformrs.tasks.sweep_values import Values

REPORT = "report"
"""The folder beside the runs that a report of them goes to."""
_LONGEST = 100
_WORDS = {"%": "pct", "°": "deg"}


def made_name(*parts: str) -> str:
    """A name of these parts in letters that every file system takes.

    >>> made_name("rotation+scaling", "uniform:54deg+uniform:30%")
    'rotation-scaling_uniform-54deg-uniform-30pct'
    """
    plain = [_plain(part) for part in parts if part]
    name = "_".join(plain)
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{_digest(parts)}"


def option_parts(values: Values, before: str = "") -> tuple[str, ...]:
    """A part for every option that a run has of its own.

    >>> option_parts({"consistency": 10.0})
    ('consistency-10',)
    """
    return tuple(f"{before}{key.replace('_', '-')}-{_shown(v)}" for key, v in values.items())


class Names:
    """Names that were given out, with what each stands for. Case alone tells no folders apart."""

    def __init__(self) -> None:
        self._taken: dict[str, object] = {}

    def add(self, name: str, meaning: object, *, made: bool, where: str) -> str:
        """The name; a made one that reads like another's gets a mark of its meaning.

        Two runs of one meaning, or of one given name, are an error.
        """
        if made and self._taken.get(name.casefold(), meaning) != meaning:
            name = f"{name}-{_digest(meaning)}"
        if name.casefold() in self._taken:
            raise InputError(
                f"the name of {where or 'a run'}",
                f"{name!r}, as that of another run",
                "must be its own",
                "remove one of them, or give one another name",
            )
        self._taken[name.casefold()] = meaning
        return name


def check_name(name: str, where: str) -> None:
    """Raise unless a folder of the user's naming lies beside the others and is none of ours."""
    if not re.fullmatch(r"[\w=,+-]([\w=,+. -]*[\w=,+-])?", name) or len(name) > _LONGEST:
        raise InputError(
            f"name in {where}",
            repr(name),
            f"must be a plain folder name of at most {_LONGEST} letters, digits, '.', '-' and '_'",
            "e.g. 'shift'",
        )
    if name.casefold() == REPORT:
        raise InputError(
            f"name in {where}", repr(name), "is kept for the report of all runs", "choose another"
        )


def _plain(text: str) -> str:
    # Of a file of one's own, the folder it lies in says little.
    text = "+".join(part.strip().rpartition("/")[2] for part in text.split("+"))
    for sign, word in _WORDS.items():
        text = text.replace(sign, word)
    return re.sub(r"[^a-zA-Z0-9_.=]+", "-", text.replace(".py:", "-")).strip("-.") or "x"


def _shown(value: object) -> str:
    return _plain(f"{value:g}" if isinstance(value, float) else str(value))


def _digest(meaning: object) -> str:
    return hashlib.sha256(repr(meaning).encode()).hexdigest()[:6]
