"""Deformations and noise laws from text: `rotation`, `dct:3`, `uniform:30deg`.

rotation+scaling+translation      one after another, in that order
dct:3   dct:k=3,basis=cosine      with their fields
lens.py:Lens                      a family of one's own, from a Python file
uniform:30deg   gaussian:4px      a law and its scale, in the unit of the family
gaussian:4px,2px                  a scale for each parameter
uniform:30deg+gaussian:0.1        one law for each part of a composition
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deformrs.config import Config, ConfigValue
from deformrs.deformations import Compose, Deformation
from deformrs.errors import DeformRSError, InputError, did_you_mean, reason_of
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.space import Block, Space
from deformrs.units import Unit, check_scale, parse_quantity


def load_object(path: Path, name: str) -> object:
    """Return the object of that name from a Python file, which is executed."""
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
        raise InputError(
            f"{name!r} in {path}",
            "missing",
            "must be defined there",
            did_you_mean(name, names),
        )
    return getattr(module, name)


@contextmanager
def users_code(path: Path, what: str) -> Iterator[None]:
    """Let code from a file import its neighbours, and turn what it raises into one line."""
    entry = str(path.parent.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    except DeformRSError:
        raise  # it says what to do
    except (Exception, SystemExit) as error:
        reason = " ".join(reason_of(error).split())
        raise InputError(
            what, f"failing ({reason})", "must run without errors", "fix it"
        ) from error
    finally:
        sys.path.remove(entry)


_LAWS: dict[str, type[Uniform] | type[Gaussian]] = {"uniform": Uniform, "gaussian": Gaussian}
_OTHER_NAMES = {"zoom": "scaling", "shift": "translation", "normal": "gaussian"}
"""What people call a family or a law, spelt unlike its name here."""


def parse_deformation(text: str) -> Deformation:
    """Return the deformation that a text names.

    >>> parse_deformation("rotation+dct:3")
    Compose(Rotation(), DCT(k=3, basis='dct'))
    """
    parts = [_family(part.strip()) for part in text.split("+")]
    return parts[0] if len(parts) == 1 else Compose(*parts)


def parse_noise(text: str, space: Space) -> NoiseLaw:
    """Return the noise law that a text names. Pixels are those of images of the space's size.

    >>> from deformrs import Rotation
    >>> parse_noise("uniform:180deg", Rotation().space((28, 28)))
    Uniform(scale=3.141592653589793)
    """
    parts = [part.strip() for part in text.split("+")]
    if len(parts) != len(space.blocks):
        families = [block.family for block in space.blocks]
        example = "+".join(f"uniform:{block.unit.example}" for block in space.blocks)
        raise InputError(
            "the noise",
            repr(text),
            f"must have one law for each of {', '.join(families)}"
            if len(families) > 1
            else f"must be one law for {families[0]}",
            f"join them with '+', e.g. {example}" if len(families) > 1 else f"e.g. {example}",
        )
    laws = [
        _law(part, block, space.alone(index))
        for index, (part, block) in enumerate(zip(parts, space.blocks, strict=True))
    ]
    return laws[0] if len(laws) == 1 else Independent(*laws)


def noise_text(law: NoiseLaw, space: Space) -> str:
    """Return the text that `parse_noise` reads as this law on images of any size.

    >>> space = parse_deformation("rotation+translation").space((28, 28))
    >>> noise_text(parse_noise("uniform:0.5rad+gaussian:7px", space), space)
    'uniform:0.5rad+gaussian:0.5'
    """
    parts = []
    laws = law.laws if isinstance(law, Independent) else (law,)
    for part, block in zip(laws, space.blocks, strict=True):
        assert isinstance(part, Uniform | Gaussian)
        scales = part.scale if isinstance(part.scale, tuple) else (part.scale,)
        unit = "rad" if block.unit is Unit.ANGLE else ""
        parts.append(f"{part.name}:{','.join(f'{scale}{unit}' for scale in scales)}")
    return "+".join(parts)


def python_files(text: str) -> list[Path]:
    """Return the Python files that a deformation's text names.

    >>> [file.name for file in python_files("rotation+lens.py:Lens")]
    ['lens.py']
    """
    parts = [part.strip().partition(".py:") for part in text.split("+")]
    return [Path(stem + ".py") for stem, found, _ in parts if found]


def _family(text: str) -> Deformation:
    if ".py:" in text:
        path, _, name = text.partition(".py:")
        found = load_object(Path(path + ".py"), name)
        made = found() if isinstance(found, type) else found
        if not isinstance(made, Deformation):
            raise InputError(
                f"{name} in {path}.py", repr(made), "must be a Deformation", "name its class"
            )
        return made
    name, _, rest = text.partition(":")
    if name not in Deformation.registry or name == Compose.name:
        names = sorted(set(Deformation.registry) - {Compose.name})
        several = "join several with '+'; a file of your own is lens.py:Lens"
        meant = _OTHER_NAMES.get(name, name)
        raise InputError(
            "the deformation",
            repr(name),
            "must be one of " + ", ".join(names),
            several if "," in name else did_you_mean(meant, names, several),
        )
    return Deformation.from_config(_fields(Deformation.registry[name], rest) | {"name": name})


def _fields(family: type, text: str) -> Config:
    """Return the fields of a family from `3,basis=cosine`: by position first, then by name."""
    names = [field.name for field in dataclasses.fields(family)]
    values: Config = {}
    for place, item in enumerate(part.strip() for part in text.split(",") if part.strip()):
        key, sign, value = item.partition("=")
        if not sign:
            if place >= len(names):
                raise InputError(
                    f"a field of {family.__name__}",
                    repr(item),
                    f"is one more than its {len(names)} field(s)",
                    "remove it",
                )
            key, value = names[place], item
        values[key.strip()] = _plain(value.strip())
    return values


def _plain(text: str) -> ConfigValue:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _law(text: str, block: Block, space: Space) -> Uniform | Gaussian:
    name, _, scales = text.partition(":")
    if name not in _LAWS:
        raise InputError(
            "the noise",
            repr(name),
            "must be one of " + ", ".join(_LAWS),
            did_you_mean(_OTHER_NAMES.get(name, name), _LAWS, f"e.g. uniform:{block.unit.example}"),
        )
    if not scales.strip():
        raise InputError(
            "the noise", repr(text), "must have a scale", f"e.g. {name}:{block.unit.example}"
        )
    written = [scale.strip() for scale in scales.split(",")]
    values = tuple(parse_quantity(scale, block.unit, space.size) for scale in written)
    for scale in written:
        check_scale("the noise", scale, block.unit, space.size, f"{name}:{{}}")
    law = _LAWS[name](values if len(values) > 1 else values[0])
    law.check(space)
    return law
