"""Progress bars on a terminal; elsewhere a line every minute and one at the end of a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from rich.console import Console

from deformrs.bars import Advance as Advance
from deformrs.bars import terminal_bar
from deformrs.cli.terminal import print_plain

SECONDS_BETWEEN_LINES = 60.0


@contextmanager
def step(console: Console, title: str, total: int) -> Iterator[Advance]:
    """Show the progress of one long step."""
    if not console.is_terminal:
        last, began = "", time.monotonic()
        printed = began
        first: float | None = None  # what a resumed run did before says nothing about speed

        def record(done: float, words: str) -> None:
            nonlocal last, printed, first, began
            now = time.monotonic()
            if first is None:
                first, began = done, now
            last = f"{title}: {int(done)}/{total} {words}".strip()
            if now - printed > SECONDS_BETWEEN_LINES:
                printed = now
                speed = (done - first) / (now - began) if now > began else 0.0
                left = f", {(total - done) / speed:.0f} s left" if speed else ""
                print_plain(console, last + left)

        yield record
        print_plain(console, last or title)
        return
    with terminal_bar(console, title, total) as advance:
        yield advance


class Downloads:
    """Shows downloads: called with a file name, the bytes so far and the bytes in total."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open = ExitStack()
        self._name = ""
        self._advance: Advance | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name != self._name or self._advance is None:
            self._open.close()
            self._name = name
            megabytes = max(1, round((total or done) / 1e6))
            bar = step(self._console, f"downloading {name}, MB", megabytes)
            self._advance = self._open.enter_context(bar)
        self._advance(done / 1e6, "")
