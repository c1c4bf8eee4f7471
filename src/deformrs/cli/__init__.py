"""The command line: it parses, calls and prints."""

from __future__ import annotations

import ctypes
import difflib
import os
import platform
import sys
import warnings
from importlib import import_module
from typing import TextIO

import click

from deformrs import __version__
from deformrs.errors import DeformRSError, ScarcityWarning


def main() -> None:
    """Run the command line; every failure is one line and a non-zero exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    warnings.simplefilter("always", ScarcityWarning)
    warnings.showwarning = _note
    try:
        # Not standalone, click hands the exit code over instead of leaving.
        sys.exit(commands(standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        resumable = sys.argv[1:2] in (["train"], ["certify"], ["sweep"])
        goes_on = "; what was done is kept, and the same command goes on from there"
        _fail("interrupted" + (goes_on if resumable else ""), 130)
    except DeformRSError as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(f"{error}: check the path, the space on the disk and the permissions", 1)
    except Exception as error:
        if os.environ.get("DEFORMRS_TRACEBACK"):
            raise
        reason = f"{type(error).__name__}: {error}"
        _fail(f"unforeseen ({reason}); DEFORMRS_TRACEBACK=1 shows where, please report it", 1)


def _fail(message: str, code: int) -> None:
    click.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(code)


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What this program has to say in a line; what other libraries warn of as it is."""
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
    "pack": "Compress finished runs, e.g. for version control.",
    "bench": "Measure how fast this machine certifies.",
}


class _Verbs(click.Group):
    """The verbs, in the order people use them; each is imported when it is used."""

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
            near = difflib.get_close_matches(name, VERBS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see deformrs --help"
            known = ", ".join(VERBS)
            ctx.fail(f"the verb is {name!r}; it must be one of {known}: {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__)
def commands() -> None:
    """How far may an image be deformed before a classifier's answer can change?

    \b
    Example:
      deformrs quickstart
    """
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Tell glibc to keep large blocks instead of returning them after every batch.

    Page faults otherwise cost more than the arithmetic of a small network. Must happen before
    torch allocates; elsewhere than on glibc there is nothing to do.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        mmap_threshold, trim_threshold = -3, -1
        libc.mallopt(mmap_threshold, 2**30)
        libc.mallopt(trim_threshold, 2**31 - 1)


if __name__ == "__main__":
    main()
