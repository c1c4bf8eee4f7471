"""The command line in this process: what it does, without starting Python anew."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from deformrs.cli import commands
from deformrs.errors import DeformRSError


def inside(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Run it in the working directory and expect that exit code; what it says, and its errors."""
    done = CliRunner().invoke(commands, arguments)
    if isinstance(done.exception, DeformRSError):  # `main` turns it into a line
        assert code == 1, done.exception
        return done.stdout, f"error: {done.exception}"
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout, done.stderr


def run_inside(*arguments: str | Path) -> str:
    """Run it to its end, and give what it says; what goes wrong is raised."""
    done = CliRunner().invoke(commands, [str(part) for part in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
