"""Networks of this package as people type them: `small_cnn`, `resnet18:width=32`."""

from __future__ import annotations

import difflib

from torch import nn

from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.extras import first_line
from deformrs.models.networks import NETWORKS

OWN_NAMES = ("small_cnn", "resnet18", "resnet50")
_FIELDS = ("width",)  # the number of classes and the like come from elsewhere


def own_network(text: str) -> tuple[str, Config] | None:
    """The name in `NETWORKS` and the fields that were typed; None for what is none of them.

    >>> own_network("ResNet-18:width=32")
    ('ResNet18', {'width': 32})
    >>> own_network("timm:resnet18")
    """
    typed, _, rest = text.partition(":")
    name = {key.lower(): key for key in NETWORKS}.get(_plainly(typed))
    return None if name is None else (name, _fields(typed, rest))


def nearest_own(text: str) -> str | None:
    """The name that was probably meant."""
    typed, colon, rest = text.partition(":")
    names = {_plainly(name): name for name in OWN_NAMES}
    near = difflib.get_close_matches(_plainly(typed), names, n=1)
    return names[near[0]] + colon + rest if near else None


def build_own(name: str, arguments: Config) -> nn.Module:
    """The network with these arguments, or an error in their words."""
    try:
        return NETWORKS[name](**arguments)
    except InputError:
        raise  # it names the argument
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            f"{name} with {arguments}",
            f"too much ({first_line(error)})",
            "must fit into memory",
            "choose a smaller width",
        ) from None


def _fields(name: str, text: str) -> Config:
    """`width=32`, or `32` alone."""
    values: Config = {}
    for place, item in enumerate(part.strip() for part in text.split(",") if part.strip()):
        key, sign, value = (part.strip() for part in item.partition("="))
        if not sign and place < len(_FIELDS):
            key, value = _FIELDS[place], item
        if key not in _FIELDS or key in values:
            again = "is given twice" if key in values else "must be " + ", ".join(_FIELDS)
            raise InputError(f"a field of {name}", repr(item), again, f"e.g. {name}:width=32")
        # Python refuses to read numbers of thousands of digits.
        number = int(value) if value.isdecimal() and len(value) < 20 else 0
        if number < 1:
            raise InputError(
                f"the {key} of {name}",
                repr(value),
                "must be a whole number of at least 1",
                f"e.g. {name}:{key}=32",
            )
        values[key] = number
    return values


def _plainly(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
