"""Pickles of numbers, lists and byte arrays, read without running anything that is in them.

A pickle is a program that may call any function. Here its calls are answered by two stand-ins
that only remember what they are given; a pickle that names anything else is refused.
"""

from __future__ import annotations

import io
import math
import pickle

import numpy as np
from numpy.typing import NDArray

from deformrs.errors import InputError

Plain = dict[bytes, object]


def read_plain_pickle(data: bytes) -> Plain:
    """The dictionary in that pickle, byte arrays in it as NumPy arrays.

    Guarantee: no function that the pickle names is called, whatever is in it.
    """
    try:
        found = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    # A pickle that is not well-formed fails in many ways: EOFError, IndexError, KeyError, ...
    except Exception as error:
        raise InputError(
            "a pickle",
            f"not readable ({error})",
            "must hold nothing but numbers, text, lists, dictionaries and byte arrays",
            "use the published files",
        ) from None
    if not isinstance(found, dict):
        raise InputError(
            "a pickle", f"one {type(found).__name__}", "must be a dictionary", "use another file"
        )
    return {
        key: value.array if isinstance(value, _Array) else value for key, value in found.items()
    }


class _Kind:
    """Stands in for numpy.dtype."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise pickle.UnpicklingError("an array in it is not of bytes")

    def __setstate__(self, _: object) -> None:
        """Byte order and the like, which bytes do not have."""


class _Array:
    """Stands in for numpy.ndarray and for the function that makes an empty one."""

    array: NDArray[np.uint8]

    def __init__(self, *_: object) -> None:
        self.array = np.zeros(0, np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple() as shape, _Kind(), False | 0, bytes() as raw) if all(
                isinstance(length, int) and length >= 0 for length in shape
            ) and math.prod(shape) == len(raw):
                self.array = np.frombuffer(raw, np.uint8).reshape(shape)
            case _:
                raise pickle.UnpicklingError("an array in it is of another kind")


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy", "dtype"): _Kind,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _STAND_INS[module, name]
