"""Progress bars, in Python only where someone watches: in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from deformrs.errors import InputError, printable

Advance = Callable[[float, str], None]
"""Called with the number of items done in total, and a description of the state."""

SECONDS_BEFORE = 1.0
"""A bar appears after this time, so that quick calls show nothing."""
_SECONDS_BETWEEN = 0.25
_WIDTH = 30


def _ignore(count: int) -> None:
    """Drop a progress report."""


def _ignore_words(words: str) -> None:
    """Drop a description."""


@dataclass(frozen=True)
class Progress:
    """Callbacks that receive the progress of certification, all but the last one as an integer."""

    checked: Callable[[int], None] = _ignore
    """The number of images checked so far, before anything is sampled."""
    sampled: Callable[[int], None] = _ignore
    """The number of samples in the batch that was just counted."""
    decided: Callable[[int], None] = _ignore
    """The number of further images whose queries are decided."""
    resumed: Callable[[int], None] = _ignore
    """The number of samples that an interrupted run had counted."""
    workers: Callable[[str], None] = _ignore_words
    """The workers of an engine that has several, and how busy they are, in words."""


ProgressChoice = Progress | Literal[False] | None
"""None shows a bar in a terminal or a notebook, False does not."""


class _WithWords(Bar):
    """A bar, with the description on a line of its own: both fit on a narrow terminal."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["words"]:
                words = printable(task.fields["words"])
                yield Text("  " + words, overflow="ellipsis", no_wrap=True)


@contextmanager
def terminal_bar(
    console: Console, title: str, total: int, *, transient: bool = False
) -> Iterator[Advance]:
    """Show a bar on a terminal; a transient one is removed at the end."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # What is printed meanwhile appears above the bar; into a file it must go as it is.
    redirected = sys.stdout.isatty() or not transient
    with _WithWords(
        *columns, console=console, transient=transient, redirect_stdout=redirected
    ) as bar:
        task = bar.add_task(title, total=total, words="")
        yield lambda done, words: bar.update(task, completed=done, words=words)


@contextmanager
def notebook_bar(title: str, total: int) -> Iterator[Advance]:
    """Show a bar of text in a notebook, which needs no widgets; it is removed at the end."""
    display = import_module("IPython.display").display
    shown = display({"text/plain": title}, raw=True, display_id=True)
    began = updated = time.monotonic()
    first: float | None = None  # what was done before says nothing about speed

    def advance(done: float, words: str) -> None:
        nonlocal first, updated
        now = time.monotonic()
        first = done if first is None else first
        if now - updated < _SECONDS_BETWEEN:
            return
        updated = now
        filled = round(_WIDTH * min(1.0, done / total))
        left = (total - done) * (now - began) / (done - first) if done > first else None
        text = f"{title} {'━' * filled}{'╌' * (_WIDTH - filled)} {int(done)}/{total}"
        text += "" if left is None else f", {left:.0f} s left"
        shown.update({"text/plain": f"{text}  {printable(words)}"}, raw=True)

    try:
        yield advance
    finally:
        shown.update({"text/plain": ""}, raw=True)


def watched() -> Literal["notebook", "terminal"] | None:
    """Return where someone watches this process, None if nobody does."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if hasattr(shell, "kernel"):
        return "notebook"
    # Without a console, as under pythonw, there is no stderr.
    return "terminal" if sys.stderr is not None and sys.stderr.isatty() else None


class CertificationBar:
    """The progress of a certification, as a bar that appears after a second.

    `samples` is how many an image gets, None where sampling stops early. With a `Progress`, or
    where nobody watches, there is no bar.
    """

    def __init__(self, choice: ProgressChoice, images: int, samples: int | None) -> None:
        if choice is not None and choice is not False and not isinstance(choice, Progress):
            raise InputError("progress", repr(choice), "must be None, False or a Progress", "False")
        self._where = watched() if choice is None else None
        self._images, self._samples = images, samples
        self._began, self._sampled = time.monotonic(), 0
        self._finished, self._ahead = 0, 0.0
        self._workers = ""
        self._open = ExitStack()
        self._advance: Advance | None = None
        self.progress = choice or Progress()
        if self._where is not None:
            self.progress = Progress(
                self._checked, self._count, self._decide, self._resume, self._work
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def finish(self) -> None:
        """Count one more image as finished."""
        self._finished += 1
        self._ahead = max(0.0, self._ahead - 1)
        self._show()

    def _checked(self, images: int) -> None:
        self._show(f"{images} images checked")

    def _count(self, samples: int) -> None:
        self._sampled += samples
        self._resume(samples)

    def _resume(self, samples: int) -> None:
        if self._samples is not None:
            self._ahead += samples / self._samples
        self._show()

    def _decide(self, images: int) -> None:
        if self._samples is None:
            self._ahead += images

    def _work(self, words: str) -> None:
        self._workers = f", {words}"

    def _show(self, words: str = "") -> None:
        seconds = time.monotonic() - self._began
        if self._where is None or seconds < SECONDS_BEFORE:
            return
        if self._advance is None:
            title = "certifying"
            self._advance = self._open.enter_context(
                notebook_bar(title, self._images)
                if self._where == "notebook"
                else terminal_bar(Console(stderr=True), title, self._images, transient=True)
            )
        if self._sampled:
            words = f"{self._sampled / seconds:,.0f} samples/s{self._workers}"
        self._advance(min(self._finished + self._ahead, self._images), words)
