"""Objects that a run's configuration can store: to plain values and back."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from deformrs.errors import InputError, did_you_mean

Config = dict[str, "ConfigValue"]
ConfigValue = str | int | float | bool | None | list["ConfigValue"] | Config


class Configurable:
    """Mix-in for frozen dataclasses with a `name`, registered under their root class.

    A root (`Deformation`, `NoiseLaw`) owns a `registry`; every subclass that sets `name` is
    registered when it is defined. `to_config` and `from_config` are inverse to each other.
    """

    name: ClassVar[str]
    registry: ClassVar[dict[str, type]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            if hasattr(cls, "name"):
                raise InputError(
                    f"the name of {cls.__qualname__}",
                    f"inherited ({cls.name!r})",
                    "must be its own: configurations and regions know a class by its name",
                    "set name in the class",
                )
            return
        known = cls.registry.get(cls.name)
        # Running a notebook cell again defines the same class again: that is no conflict.
        if known is not None and _full_name(known) != _full_name(cls):
            raise InputError(
                f"the name of {cls.__qualname__}",
                repr(cls.name),
                f"belongs to {_full_name(known)} already",
                "choose another",
            )
        cls.registry[cls.name] = cls

    def check_registered(self) -> None:
        """Raise unless the name of this object's class leads back to it."""
        name = getattr(self, "name", None)
        if self.registry.get(str(name)) is not type(self):
            raise InputError(
                f"the name of {type(self).__qualname__}",
                repr(name),
                "must be registered for this very class",
                "set name in the class body",
            )
        if not dataclasses.is_dataclass(self):
            raise InputError(
                type(self).__qualname__,
                "an ordinary class",
                "must be a dataclass, to be compared and written down",
                "put @dataclass(frozen=True) above it",
            )

    def to_config(self) -> Config:
        """Return the object as plain values: its name and its fields."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {"name": self.name} | {f.name: _plain(getattr(self, f.name)) for f in fields}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the object that `to_config` stored."""
        if not isinstance(config, dict):
            raise InputError(
                "the configuration", repr(config), "must be a mapping", "e.g. {'name': 'rotation'}"
            )
        values = dict(config)
        name = values.pop("name", None)
        if not isinstance(name, str) or name not in cls.registry:
            raise InputError(
                "the name",
                repr(name),
                "must be one of " + ", ".join(sorted(cls.registry)),
                did_you_mean(name, cls.registry),
            )
        kind = cls.registry[name]
        if not issubclass(kind, cls):
            raise InputError("the name", repr(name), f"must name a {cls.__name__}", "correct it")
        fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
        for key in values:
            if key not in fields:
                raise InputError(
                    f"a field of {name}",
                    repr(key),
                    "must be one of " + (", ".join(fields) or "none: it takes no fields"),
                    "remove it or correct the spelling",
                )
        for key, field in fields.items():
            if key not in values and field.default is dataclasses.MISSING:
                raise InputError(f"the field {key!r} of {name}", "missing", "is needed", "add it")
        return kind.from_fields(values)

    @classmethod
    def list_from_config(cls, configs: ConfigValue) -> list[Self]:
        """Return the objects of a list in a configuration."""
        if not isinstance(configs, list):
            raise InputError("the parts", repr(configs), "must be a list", "one entry a part")
        return [cls.from_config(config) for config in configs]  # type: ignore[arg-type]

    @classmethod
    def from_fields(cls, values: Config) -> Self:
        """Return the object with these fields, as `to_config` stored them."""
        return cls(**values)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _plain(value: object) -> ConfigValue:
    if isinstance(value, Configurable):
        return value.to_config()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InputError(
        "a field", repr(value), "must be a plain value to be written down", "use numbers or strings"
    )
