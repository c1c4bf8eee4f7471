"""The command line. Each verb is a module, imported when it is used."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import warnings
from importlib import import_module
from itertools import pairwise
from typing import TextIO

import click

from deformrs import __version__
from deformrs.errors import DeformRSError, ScarcityWarning, did_you_mean


def main() -> None:
    """Run the command line; every failure is a one-line error and a non-zero exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    warnings.simplefilter("always", ScarcityWarning)
    warnings.showwarning = _show_warning
    try:
        # In standalone mode click would print errors in its own form.
        sys.exit(commands(standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        resumable = sys.argv[1:2] in (["train"], ["certify"], ["sweep"])
        resume = "; what was done is kept, and the same command resumes it"
        _fail("interrupted" + (resume if resumable else ""), 130)
    except DeformRSError as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(f"{error}: check the path, the space on the disk and the permissions", 1)
    except Exception as error:
        if os.environ.get("DEFORMRS_TRACEBACK"):
            raise
        reason = f"{type(error).__name__}: {error}"
        _fail(f"unexpected ({reason}); DEFORMRS_TRACEBACK=1 shows where, please report it", 1)


def _fail(message: str, code: int) -> None:
    click.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(code)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print the package's own warnings as a line, those of other libraries as Python does."""
    text = f"note: {message}"
    if not issubclass(category, ScarcityWarning):
        text = warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    click.echo(text, err=True)


VERBS = {
    "quickstart": "Train a small network on digits, certify it against rotation, draw the result.",
    "train": "Train a network under the noise that certifies it.",
    "certify": "Certify labelled images: how far may each be deformed?",
    "sweep": "Train and certify several networks, and compare them.",
    "report": "Make a page, figures and tables of one or several runs.",
    "gallery": "Draw images under deformations that provably keep their label.",
    "predict": "Predict the class of images, with the certified radius of each.",
    "verify": "Check that runs are complete, unchanged, and what their models answer.",
    "pack": "Compress finished runs, e.g. for version control.",
    "bench": "Measure how fast this machine certifies.",
}


class _Verbs(click.Group):
    """The verbs, in the order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"deformrs.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in VERBS:
            hint = did_you_mean(name, VERBS, "see deformrs --help")
            ctx.fail(f"the verb is {name!r}; it must be one of {', '.join(VERBS)}: {hint}")
        _check_values(ctx, args)
        return super().resolve_command(ctx, args)


def _check_values(ctx: click.Context, args: list[str]) -> None:
    """Refuse values that are empty, as an unset shell variable leaves them."""
    for before, value in pairwise(args):
        option, assigned, rest = value.partition("=")
        if assigned and option.startswith("--") and not rest.strip():
            before, value = option, ""
        if not value.strip() and before != "--note":
            name = before if before.startswith("-") else f"the argument after {before!r}"
            ctx.fail(f"{name} is empty; leave it out, or give a value (is a variable unset?)")


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__)
def commands() -> None:
    """Certify how far an image may be deformed before a classifier's prediction can change.

    \b
    Example:
      deformrs quickstart
    """
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Keep large blocks of memory in the process instead of returning them after every batch.

    Page faults would cost more than the arithmetic of a small network. This must happen before
    torch allocates, and only glibc needs it.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        mmap_threshold, trim_threshold = -3, -1
        libc.mallopt(mmap_threshold, 2**30)
        libc.mallopt(trim_threshold, 2**31 - 1)


if __name__ == "__main__":
    main()
