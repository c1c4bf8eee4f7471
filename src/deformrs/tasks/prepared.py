"""How pictures are made ready, where a model says one thing and options another."""

from __future__ import annotations

from typing import Protocol

from deformrs.preparation import Interpolation, Preparation


class Prepared(Protocol):
    """Options on how pictures are made ready. None: as the model expects."""

    @property
    def resize(self) -> int | None: ...

    @property
    def crop(self) -> int | None: ...

    @property
    def interpolation(self) -> Interpolation | None: ...

    @property
    def channels(self) -> int | None: ...


def prepared(asked: Prepared, expected: Preparation) -> Preparation:
    """What is expected, but for what was asked."""
    return Preparation(
        resize=expected.resize if asked.resize is None else asked.resize,
        crop=expected.crop if asked.crop is None else (asked.crop, asked.crop),
        interpolation=asked.interpolation or expected.interpolation,
        channels=expected.channels if asked.channels is None else asked.channels,
    )
