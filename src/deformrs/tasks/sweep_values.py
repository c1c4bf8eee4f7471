"""Values in a sweep's tables: each must fit the type of the option that it stands for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from deformrs.checks import is_real
from deformrs.errors import InputError

Hint = object
"""A type as an annotation says it."""
Value = str | int | float | bool | tuple[str, ...] | tuple[float, ...] | None
Values = dict[str, Value]
"""Options by their names, each of its own type."""

Strings, Numbers = tuple[str, ...], tuple[float, ...]
_RULES: dict[Hint, tuple[str, str]] = {
    bool: ("must be true or false", "without quotes"),
    int: ("must be a whole number", "without quotes, e.g. 100"),
    float: ("must be a number", "without quotes, e.g. 0.1"),
    str: ("must be text", 'in quotes, e.g. "cifar10"'),
    Strings: ("must be a list of texts", 'e.g. ["10deg", "30deg"]'),
    Numbers: ("must be a list of numbers", "e.g. [0.5, 0.5, 0.5]"),
}


def hints_of(kind: type, *names: str) -> dict[str, Hint]:
    """The types of a dataclass's fields, of all or of those named."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in names} if names else hints


def checked(table: object, hints: dict[str, Hint], where: str) -> Values:
    """The values of a table, if all of them may stand there. `-` and `_` in a key are one.

    >>> checked({"batch-size": 4, "seed": 1}, {"batch_size": int | None, "seed": int}, "[train]")
    {'batch_size': 4, 'seed': 1}
    """
    if not isinstance(table, dict):
        raise InputError(where, repr(table), "must be a table", "lines of key = value")
    values: Values = {}
    for written, value in table.items():
        key = str(written).replace("-", "_")
        if key not in hints:
            raise unknown_key(str(written), hints, where)
        if key in values:
            raise InputError(f"{key} in {where}", "there twice", "must be there once", "remove one")
        values[key] = fitted(f"{key} in {where}", value, hints[key])
    return values


def unknown_key(key: str, known: Iterable[str], where: str) -> InputError:
    """The error for a key that means nothing there, with the nearest that does."""
    names = list(known)
    near = difflib.get_close_matches(key.replace("-", "_"), names, n=1)
    return InputError(
        f"the key {key!r} in {where}",
        "unknown",
        "must be one of " + ", ".join(names),
        f"did you mean {near[0]!r}?" if near else "remove it",
    )


def fitted(name: str, value: object, hint: Hint) -> Value:
    """The value as that type; a number may stand for a float, one text for a list of one."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is Literal:
        return _word(name, value, tuple(map(str, get_args(hint))))
    if hint == Strings and isinstance(value, str):
        value = [value]
    if not _fits(value, hint):
        rule, example = _RULES[hint]
        raise InputError(name, repr(value), rule, example)
    if hint is float:
        return float(value)  # type: ignore[arg-type]
    if hint == Numbers:
        return tuple(map(float, value))  # type: ignore[call-overload]
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def _fits(value: object, hint: Hint) -> bool:
    if hint == Strings:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if hint == Numbers:
        return isinstance(value, list) and all(is_real(item) for item in value)
    if hint is float:
        return is_real(value)
    return type(value) is hint


def _word(name: str, value: object, words: tuple[str, ...]) -> str:
    if value in words:
        return str(value)
    near = difflib.get_close_matches(str(value), words, n=1)
    raise InputError(
        name,
        repr(value),
        "must be one of " + ", ".join(words),
        f"did you mean {near[0]!r}?" if near else "choose one",
    )
