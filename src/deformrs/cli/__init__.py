"""The command line. Each verb is a module, imported when it is used."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from itertools import pairwise
from typing import NoReturn, TextIO

import click

from deformrs import __version__
from deformrs.cli.terminal import echo
from deformrs.errors import DeformRSError, InputError, ScarcityWarning, did_you_mean, reason_of
from deformrs.memory import keep_freed_memory


def main() -> None:
    """Run the command line; every failure is a one-line error and a non-zero exit code."""
    _open_streams()
    output = sys.stdout
    warnings.simplefilter("always", ScarcityWarning)
    warnings.showwarning = _show_warning
    try:
        _check_place()
        # In standalone mode click would print errors in its own form.
        code = commands(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        code = error.exit_code
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
    except SystemExit as error:
        # Where the reader has gone, rich exits, and so does click, having replaced the stream.
        if isinstance(error.__context__, BrokenPipeError) or sys.stdout is not output:
            raise
        _fail(f"sys.exit({error.code!r}) was called by code that was run: remove that call", 1)
    except BaseException as error:
        if os.environ.get("DEFORMRS_TRACEBACK"):
            raise
        why = f"unexpected ({reason_of(error)})"
        _fail(f"{why}; DEFORMRS_TRACEBACK=1 shows where, please report it", 1)
    sys.exit(code)


def _check_place() -> None:
    """Raise if the working directory was removed, where some libraries would end the process."""
    try:
        os.getcwd()
    except OSError:
        raise InputError(
            "the working directory", "removed", "must be there", "change into another"
        ) from None


def _open_streams() -> None:
    """Let text that cannot be encoded be printed, and nothing be printed where streams are closed.

    A file opened later would take the place of a closed stream, and what libraries print.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif mode == "w":
            stream.reconfigure(errors="replace")


_LONGEST_WORD, _LONGEST_LINE = 500, 3000


def _fail(message: str, code: int) -> NoReturn:
    words = (
        f"{word[:_LONGEST_WORD]}…" if len(word) > _LONGEST_WORD else word
        for word in message.split()
    )
    line = " ".join(words)
    line = f"{line[:_LONGEST_LINE]}…" if len(line) > _LONGEST_LINE else line
    echo(f"error: {line}", err=True)
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
    if issubclass(category, ScarcityWarning):
        echo(f"note: {message}", err=True)
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        echo(*text.rstrip().split("\n"), err=True)


VERBS = {
    "quickstart": "Train a small network on digits, certify it against rotation, draw the result.",
    "train": "Train a network under the noise that certifies it.",
    "certify": "Certify labelled images: how far may each be deformed?",
    "sweep": "Train and certify several networks, and compare them.",
    "report": "Make a page, figures and tables of one or several runs.",
    "card": "Write the model card of a run for the Hugging Face Hub.",
    "gallery": "Draw images under deformations that their certificates cover.",
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
    keep_freed_memory()


if __name__ == "__main__":
    main()
