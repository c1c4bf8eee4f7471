"""What `deformrs train` writes down of itself, as certification reads it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from deformrs.config import Config
from deformrs.data import HeldOut
from deformrs.errors import InputError


@dataclass(frozen=True)
class TrainingNote:
    """The options of a training, what it says of its data, and what it held out of them."""

    options: Config
    data: Config
    held_out: HeldOut | None

    def option(self, key: str) -> str | None:
        """An option that is a text, and not an empty one."""
        return text_of(self.options, key)


def read_note(path: Path) -> TrainingNote | None:
    """The note in that file; None where there is no file, or something else wrote it."""
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, error) from None
    if not isinstance(found, dict):
        raise _damaged(path, "no mapping")
    if found.get("command") != "train":
        return None
    options, data = found.get("options"), found.get("data")
    if not isinstance(options, dict) or not isinstance(data, dict):
        raise _damaged(path, "options and data are needed")
    for key in ("data", "deformation", "noise"):
        if text_of(options, key) is None:
            raise _damaged(path, f"the option {key} is needed")
    return TrainingNote(options, data, _held_out(path, found, data))


def text_of(config: Config, key: str) -> str | None:
    """The text under that key; None where there is none, or an empty one."""
    value = config.get(key)
    return value if isinstance(value, str) and value else None


def _held_out(path: Path, found: Config, data: Config) -> HeldOut | None:
    share, seed, digest = data.get("hold_out", 0), found.get("seed"), text_of(data, "sha256")
    if share == 0:
        return None
    if not isinstance(seed, int) or digest is None:
        raise _damaged(path, "pictures were held out, but seed or sha256 is missing")
    try:
        return HeldOut(share, seed, digest)  # type: ignore[arg-type]  # it checks that itself
    except InputError as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, reason: object) -> InputError:
    return InputError(
        str(path), f"damaged ({reason})", "must be as deformrs train wrote it", "restore it"
    )
