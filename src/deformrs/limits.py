"""Bounded reading: the most that files of others may hold, and functions that read no more.

Images, weights, run folders, sweep files and class names may come from anyone. Each limit is far
above what honest files need, and each error names the file, its size and the limit.
"""

from __future__ import annotations

import errno
import json
import lzma
import os
import re
import stat
import tomllib
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any

from deformrs.errors import InputError, damaged

MAX_PIXELS = 50_000_000
"""Pixels of an image, unless `max_pixels` or --max-pixels says otherwise."""
MAX_IMAGES = 2_000_000
"""Images of a labels.csv or an .npz file."""
MAX_CLASSES = 100_000
MAX_PARAMETERS = 2**20
"""Parameters of a deformation in a stored run: those of a vector field on 724 x 724 pixels."""

MAX_WEIGHTS = 2**28
"""Weights of a network of this package: 1 GiB."""

IMAGE_BYTES = 2**28
RUN_BYTES = 2**29
"""The certificates of a run, unpacked."""
LINE_BYTES = 2**22
"""One certificate: twice that of 100,000 classes that were all predicted."""
JSON_BYTES = 2**24
TOML_BYTES = 2**18
TABLE_BYTES = 2**26
"""A labels.csv, or a list of class names."""
PUBLISHED_BYTES = 2**28
"""A file of MNIST or CIFAR-10."""
WEIGHTS_BYTES = 2**36
HEADER_BYTES = 2**24
"""The header of a .safetensors file."""

_UNPACKED_BYTES, _UNPACKED_RATIO = 2**26, 64
_DECODER_BYTES = 2**27  # xz -9 needs 65 MiB
_DEPTH = 64
_DIGITS = 20  # those of a seed
_DOTTED = re.compile(r"""(?:\.\s*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')\s*){32}""")

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_file(path: Path, *, links: bool = True) -> BufferedReader:
    """Return a file opened for reading. A link is refused without `links`, as in run folders.

    Guarantee: only a regular file is opened for reading, whatever replaces it meanwhile: no
    device, pipe or socket.
    """
    try:
        # Without waiting for the other end of a pipe; what was opened is checked, not the name.
        descriptor = os.open(path, _FLAGS | (0 if links else getattr(os, "O_NOFOLLOW", 0)))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _irregular(path, "a socket, or a device that is not there") from None
        if error.errno == errno.ELOOP and not links and path.is_symlink():
            raise _irregular(path, "a link") from None
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = next((words for is_kind, words in _KINDS if is_kind(mode)), "no file")
            raise _irregular(path, kind)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_file(path: Path, most: int, *, links: bool = True) -> bytes:
    """Return the content of a regular file of at most so many bytes."""
    with open_file(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise too_large(str(path), size, most)
        return file.read(size)  # and not what is appended meanwhile


def name_of(file: BufferedReader, path: Path) -> str:
    """Return a path that opens this very file again, where the system has one; else its path."""
    own = f"/dev/fd/{file.fileno()}"
    return own if os.path.exists(own) else str(path)


def read_text(path: Path, most: int, *, links: bool = True, encoding: str = "utf-8") -> str:
    """Return the text of a regular file of at most so many bytes."""
    return read_file(path, most, links=links).decode(encoding)


def read_json(path: Path, remedy: str = "restore it") -> Any:
    """Return what a JSON file of a run folder holds, which must not be a link."""
    content = read_file(path, JSON_BYTES, links=False)
    try:
        return parse_json(content)
    except ValueError as error:
        raise damaged(path, error, remedy) from None


def parse_json(content: str | bytes) -> Any:
    """Return plain values from JSON of bounded depth and numbers; ValueError if it is damaged.

    >>> parse_json('{"n": [1, 2.5, null]}')
    {'n': [1, 2.5, None]}
    """
    try:
        values = json.loads(content, parse_int=_integer)
    except RecursionError:
        raise ValueError(f"nested more than {_DEPTH} deep") from None
    text = content if isinstance(content, str) else content.decode(errors="replace")
    if text.count("[") + text.count("{") > _DEPTH:
        _check_depth(values)
    return values


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML file of bounded depth; ValueError if it is damaged."""
    if _DOTTED.search(text):  # tomllib would take time that grows with the cube of the length
        raise ValueError("a key of more than 32 parts")
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {_DEPTH} deep") from None
    _check_depth(values)
    return values


def unpack_xz(path: Path, packed: bytes, most: int = RUN_BYTES) -> bytes:
    """Return the content of an .xz file, without unpacking more than its size makes plausible."""
    most = min(most, max(_UNPACKED_BYTES, _UNPACKED_RATIO * len(packed)))
    try:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECODER_BYTES)
        content = decoder.decompress(packed, most + 1)
    except lzma.LZMAError as error:
        raise damaged(path, error) from None
    if len(content) > most:
        raise too_large(f"{path}, unpacked,", len(content), most)
    if not decoder.eof or decoder.unused_data:
        raise damaged(path, "it has no end" if not decoder.eof else "more follows its end")
    return content


def unpack_gzip(name: str, packed: bytes, most: int) -> bytes:
    """Return the content of a .gz file of at most so many bytes; ValueError if it is damaged."""
    decoder = zlib.decompressobj(wbits=31)
    try:
        content = decoder.decompress(packed, most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(content) > most:
        raise too_large(f"{name}, unpacked,", len(content), most)
    if not decoder.eof:
        raise ValueError("it has no end")
    return content


def plausible_size(packed: int, unpacked: int) -> bool:
    """Return whether arrays may take so many bytes, given their size in the file."""
    return unpacked <= max(2**30, 16 * packed)


def too_large(
    name: str, size: int, most: int, remedy: str = "check where it comes from"
) -> InputError:
    """Return the error for a file of too many bytes."""
    more = "more than " if size == most + 1 else ""
    return InputError(
        name, f"of {more}{size - bool(more):,} bytes", f"must have at most {most:,}", remedy
    )


class Room:
    """Numbers that the lines of a file may stand for: more, the longer the file is.

    A line names the classes that were predicted, and stands for the counts of all of them: without
    a bound, a short file of forged lines would fill any memory.
    """

    def __init__(self, size: int) -> None:
        # 2**24 numbers take 128 MiB. A line for 20,000 classes that names one has 90 per byte.
        self._left = min(2**29, 2**24 + 128 * size)

    def take(self, numbers: int) -> None:
        """Raise ValueError if there is no room left for so many numbers more."""
        self._left -= numbers
        if self._left < 0:
            raise ValueError("more classes and parameters than a file of its size can stand for")


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS + 1:
        raise ValueError(f"an integer of {len(digits):,} digits")
    return int(digits)


def _check_depth(values: object) -> None:
    level = [values]
    for _ in range(_DEPTH):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError(f"nested more than {_DEPTH} deep")


def _irregular(path: Path, kind: str) -> InputError:
    return InputError(str(path), kind, "must be a regular file", "replace it by the file itself")
