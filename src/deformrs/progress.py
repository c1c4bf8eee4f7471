"""Progress bars on a terminal, one plain line a step elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Advance = Callable[[int, str], None]
"""Called with how many are done in all and a few words on how it goes."""


@contextmanager
def step(console: Console, title: str, total: int) -> Iterator[Advance]:
    """Show one long step."""
    if not console.is_terminal:
        last = ""

        def remember(done: int, words: str) -> None:
            nonlocal last
            last = f"{done}/{total} {words}".strip()

        yield remember
        console.print(f"{title}: {last}", highlight=False)
        return
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, words="")
        yield lambda done, words: progress.update(task, completed=done, words=words)
