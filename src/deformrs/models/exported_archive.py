"""A .pt2 file made harmless: `torch.export.load` runs what it finds, so it is given a clean copy.

The file is a zip of JSON (the program) and raw tensors, and may hold much else that torch would
run while loading: pickles, compiled libraries, formulas for sizes that are evaluated as Python,
names that become source code, calls of any function that can be reached from `torch`. The copy
is made from the parts that a classifier needs, after a look at every word in them.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from deformrs.errors import InputError

_PROGRAM = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_TENSORS = {  # the list of tensors, and how their files are called
    "data/weights/model_weights_config.json": re.compile(r"weight_\d+"),
    "data/constants/model_constants_config.json": re.compile(r"tensor_\d+"),
}
_HEADERS = ("archive_format", "archive_version", "byteorder", ".data/version")

_WORD = re.compile(r"[\w.+-]*", re.ASCII)
_TEXT = re.compile(r"[\w .,>-]*", re.ASCII)  # e.g. the equation of an einsum
_OPERATOR = re.compile(r"torch\.ops\.aten\.(?!save\b|from_file\b)\w+\.\w+", re.ASCII)
_NUMBER = re.compile(r"_operator\.(add|sub|mul|floordiv|mod|neg|pow|eq|ne|lt|le|gt|ge|getitem)")
_FORMULA = re.compile(  # e.g. Mul(Integer(2), Symbol('s0', positive=True, integer=True))
    r"(?:Symbol\('[a-z]+\d+'|[a-z]+=(?:True|False)|[\d\s(),-]|Integer|Rational|Add|Mul|Pow|Max|Min"
    r"|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv|Equality|Unequality|(?:Strict)?(?:Less|Greater)Than)*",
    re.ASCII,
)
_CONTAINERS = {None, "builtins.tuple", "builtins.list", "builtins.dict"}
# Notes for people, and Python code.
_DROPPED: dict[str, object] = {"metadata": {}, "guards_code": []}


def clean_copy(path: Path) -> io.BytesIO:
    """The program and its tensors, in a new archive.

    Guarantee: the copy holds no pickle, no library and no text that torch would run as code.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            records = _records(path, archive)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        # RuntimeError: encrypted, or nested too deep.
        raise _refused(path, f"no archive ({error})", "export the model again") from None
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(f"model/{name}", content)
    copy.seek(0)
    return copy


def _records(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    names = [name.partition("/")[2] for name in archive.namelist()]
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
        raise _refused(path, "compressed, as torch does not write it", "export the model again")
    if len(set(names)) != len(names) or _PROGRAM not in names:
        raise _refused(path, f"without a {_PROGRAM}", "export it with torch 2.9 or newer")
    root = archive.namelist()[0].partition("/")[0]

    def read(name: str) -> bytes:
        try:
            return archive.read(f"{root}/{name}")
        except KeyError:
            raise _refused(path, f"without {name}", "export it with torch 2.9 or newer") from None

    records = {name: read(name) for name in _HEADERS if name in names}
    records[_PROGRAM] = json.dumps(_checked(path, _parsed(path, read(_PROGRAM)))).encode()
    for listing, called in _TENSORS.items():
        tensors = _checked(path, _parsed(path, read(listing)))
        records[listing] = json.dumps(tensors).encode()
        folder = listing.rpartition("/")[0]
        for file, numbers in _tensor_files(path, tensors, called):
            records[f"{folder}/{file}"] = read(f"{folder}/{file}")
            if numbers and not records[f"{folder}/{file}"]:  # torch would take zeros
                raise _refused(path, f"without the numbers of {file}", "export the model again")
    if _SAMPLES in names:
        _check_pickle(path, read(_SAMPLES))
    records[_SAMPLES] = b""  # only tracing wants them
    return records


def _tensor_files(
    path: Path, tensors: dict[str, Any], called: re.Pattern[str]
) -> Iterator[tuple[str, int]]:
    """Each file of a list of tensors, and how many numbers are read from it."""
    try:
        for entry in tensors["config"].values():
            file = str(entry["path_name"])
            if entry["use_pickle"] or not called.fullmatch(file):
                raise _pickled(path, f"{file} is one")
            yield file, math.prod(size["as_int"] for size in entry["tensor_meta"]["sizes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise _refused(path, f"damaged ({error!r})", "export the model again") from None


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise _refused(path, f"damaged ({error})", "export the model again") from None
    if not isinstance(parsed, dict):
        raise _refused(path, "damaged (no mapping)", "export the model again")
    return parsed


def _checked(path: Path, value: Any, key: str = "") -> Any:
    """The value with every text in it looked at, as its key demands."""
    if key in _DROPPED:
        return _DROPPED[key]
    if isinstance(value, dict):
        for name in value:
            _check_text(path, name, "")
        return {name: _checked(path, inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_checked(path, inner, key) for inner in value]
    if isinstance(value, str):
        _check_text(path, value, key)
    return value


def _check_text(path: Path, text: str, key: str) -> None:
    if key in ("in_spec", "out_spec"):
        fine = _plain_containers(text)
    elif key == "target":
        fine = bool(_OPERATOR.fullmatch(text) or _NUMBER.fullmatch(text))
    elif key == "expr_str":
        fine = bool(_FORMULA.fullmatch(text))
    else:
        fine = bool((_TEXT if key == "as_string" else _WORD).fullmatch(text))
    if not fine:
        raise _refused(
            path,
            f"one with {text[:60]!r} as {key or 'a name'}",
            "export a network made of plain tensor operations",
        )


def _plain_containers(text: str) -> bool:
    """Does a description of arguments speak of tuples, lists and mappings of words alone?"""

    def plain(spec: Any) -> bool:
        context = json.loads(spec["context"] or "null")
        if context is not None and not isinstance(context, list):
            return False
        words = all(isinstance(word, str) and _WORD.fullmatch(word) for word in context or ())
        return words and spec["type"] in _CONTAINERS and all(map(plain, spec["children_spec"]))

    try:
        _, spec = json.loads(text)
        return plain(spec)
    except (ValueError, KeyError, TypeError):
        return False


def _check_pickle(path: Path, content: bytes) -> None:
    """It is left out of the copy; but a file that hides something deserves no trust at all."""
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # broken content fails in any way
        raise _pickled(path, f"{_SAMPLES}: {type(error).__name__}") from None


def _pickled(path: Path, which: str) -> InputError:
    return _refused(
        path, f"one with a pickle that could run code ({which})", "export the model again, on CPU"
    )


def _refused(path: Path, state: str, remedy: str) -> InputError:
    return InputError(
        f"the exported program {path}", state, "must hold a program and plain tensors alone", remedy
    )
