"""Run the command line: in this process, or, where a test needs it, in one of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

from click.testing import CliRunner

import torchvision_ops
from deformrs.cli import commands, main
from deformrs.errors import DeformRSError

TESTS = Path(__file__).parent

# Tests run several processes; one thread each is fastest, and results are compared byte by byte.
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
    "COLUMNS": "100",
}


def command(*arguments: str | Path) -> list[str]:
    """Return the command line of a process, with torchvision importable beside a CPU build."""
    code = (
        "import torchvision_ops; torchvision_ops.declare(); from deformrs.cli import main; main()"
    )
    start = ["-c", code] if _needs_torchvision(arguments) else ["-m", "deformrs"]
    return [sys.executable, *start, *map(str, arguments)]


def deformrs(
    *arguments: str | Path, cwd: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run it in this process, as `deformrs` would in its own, and expect that exit code."""
    words = ["deformrs", *map(str, arguments)]
    if _needs_torchvision(arguments):
        torchvision_ops.declare()
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv, columns = sys.argv, os.environ.get("COLUMNS")
    exit_code: object = 0
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)  # as Python does by default
        sys.argv, os.environ["COLUMNS"] = words, "100"
        try:
            main()
        except SystemExit as leaving:
            exit_code = leaving.code or 0
        finally:
            sys.argv = argv
            os.environ.pop("COLUMNS")
            if columns is not None:
                os.environ["COLUMNS"] = columns
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    assert exit_code == code, f"exit {exit_code}\n{texts[0]}\n{texts[1]}"
    return subprocess.CompletedProcess(words, code, *texts)


def fails(*arguments: str | Path, cwd: Path | None = None, code: int = 1) -> str:
    """Run what must fail: one line on standard error, no traceback. Return that line."""
    done = deformrs(*arguments, cwd=cwd, code=code)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in done.stderr
    return lines[0]


def _needs_torchvision(arguments: tuple[str | Path, ...]) -> bool:
    """Return whether an argument names such a library, or a run whose model may."""
    return any(
        str(part).startswith(("timm:", "torchvision:", "hf:", "--run")) for part in arguments
    )


def inside(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Invoke the command in this process; return its output and its errors."""
    done = CliRunner().invoke(commands, arguments)
    if isinstance(done.exception, DeformRSError):  # `main` prints it as one line
        assert code == 1, done.exception
        return done.stdout, f"error: {done.exception}"
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout, done.stderr


def run_inside(*arguments: str | Path) -> str:
    """Invoke the command in this process; return its output, and raise its errors."""
    done = CliRunner().invoke(commands, [str(part) for part in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


# Options of `deformrs train` for a network that trains in a moment.
SMOOTHING = ["--deformation", "rotation", "--noise", "uniform:54deg"]
PLAIN = ["--model", "small_cnn:width=4", *SMOOTHING, "--device", "cpu", "--no-tensorboard"]
QUICK = [*PLAIN, "--epochs", "2", "--batch-size", "8"]
