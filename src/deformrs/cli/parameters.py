"""Parameter types of the command line. Needs no torch."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.core import ParameterSource

from deformrs.errors import did_you_mean
from deformrs.limits import MAX_PIXELS


class Word(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """One of a few words; the error for any other suggests the nearest."""

    name = "word"

    def __init__(self, *words: str) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "|".join(self.words)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if value not in self.words:
            hint = did_you_mean(value, self.words, "choose one")
            self.fail(f"{value!r} must be one of {', '.join(self.words)}; {hint}", param, ctx)
        return str(value)


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """Numbers separated by commas: 0.485,0.456,0.406."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            return tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} must be numbers separated by commas", param, ctx)


class AutomaticNumber(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """A positive integer, or `auto`, which becomes None unless it is to be kept."""

    name = "auto|n"

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str | None:
        if value == "auto":
            return "auto" if self._keep else None
        if not _is_integer(str(value)) or int(str(value)) < 1:
            self.fail(f"{value!r} must be auto, or an integer above 0", param, ctx)
        return int(str(value))


class NonEmpty(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """Text that is not empty, as an unset shell variable would be."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if not str(value).strip(" ,"):
            self.fail("it is empty; leave it out, or give e.g. 10deg", param, ctx)
        return str(value)


class ClassNames(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3
    """A file of class names, which become a tuple."""

    name = "file"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        from deformrs.data.labels import read_class_names

        return read_class_names(Path(str(value)))


class_names_option = click.option(
    "--class-names",
    type=ClassNames(),
    help="File of the model's class names in its order: one per line, or JSON.",
)


max_pixels_option = click.option(
    "--max-pixels",
    type=click.IntRange(min=1),
    help=f"Largest image that is read, in pixels.  [{MAX_PIXELS:,}]",
)


def is_typed(option: str) -> bool:
    """Return whether the user gave this option, rather than leaving its default."""
    source = click.get_current_context().get_parameter_source(option)
    return source not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def split_list(text: str | None) -> tuple[str, ...]:
    """Split `10deg,30deg` into its parts."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def integers(option: str, text: str | None) -> tuple[int, ...]:
    """Parse `0,5,17`, the value of an option."""
    parts = split_list(text)
    if text is not None and not (parts and all(map(_is_integer, parts))):
        raise click.BadParameter(f"{text!r} must be integers, e.g. 0,5,17", param_hint=option)
    return tuple(map(int, parts))


def _is_integer(text: str) -> bool:
    """Return whether a text is an integer of at least 0 and of a sensible size."""
    return re.fullmatch("[0-9]{1,18}", text) is not None


def check_writable(option: str, path: Path | None) -> None:
    """Raise unless a file can be written there: checked before the work, not after it."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise click.BadParameter(
            f"{str(path)!r} must be a file in a folder that exists", param_hint=option
        )
