"""Lines of text on the terminal. Needs no torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from deformrs.errors import printable

if TYPE_CHECKING:
    from rich.console import Console


def echo(*lines: str, err: bool = False) -> None:
    """Print lines, on standard error with `err`.

    Guarantee: each is one line without control characters, whatever file, class or run it names.
    """
    for line in lines:
        # Not by click, which would write into a progress bar: it is drawn again below this.
        print(printable(line), file=sys.stderr if err else sys.stdout, flush=True)


def print_plain(console: Console, *lines: str) -> None:
    """Print lines on a console as `echo` does: without markup, colours or wrapping."""
    for line in lines:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
