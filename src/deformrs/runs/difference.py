"""What differs between two configurations, for people."""

from __future__ import annotations

from deformrs.config import Config, ConfigValue


def difference(found: Config, asked: Config) -> str:
    """Every setting that differs, by its full name: `options.noise: a there, b here`."""
    there, here = _flat(found), _flat(asked)
    keys = [key for key in there | here if there.get(key) != here.get(key)]
    return ", ".join(
        f"{key}: {_short(there.get(key))} there, {_short(here.get(key))} here" for key in keys
    )


def _flat(config: Config, prefix: str = "") -> Config:
    flat: Config = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _short(value: ConfigValue) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
